"""The box's own traffic: a few seeded users inside the server, so that a demo has something to show.

They are requests like any other to the batch and to the metrics, but need no client process. They give way: a request
from outside ends theirs, and they come back when the box has been quiet for a while; so a benchmark measures alone.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Protocol

from decodetop.core.clock import SECOND_NS, Clock
from decodetop.sim.asks import Ask
from decodetop.sim.chunks import Answer, token_ids
from decodetop.sim.model import noise
from decodetop.sim.serving import Request

QUIET_S = 6.0
"""After the last request from outside."""
PERIOD_S = 0.25


class Place(Protocol):
    def submit(self, request: Request) -> None: ...

    def withdraw(self, request: Request) -> None: ...


class _Nowhere:
    """A visitor reads nothing: the answer is not sent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def send(self, data: bytes) -> int:
        return self._clock.now_ns()

    def finish(self, status: int, body: bytes | None) -> None:
        """Nothing waits."""

    def cut(self) -> None:
        """Nothing to close."""


class Visitors:
    """`count` users; each asks, reads its answer, thinks, and asks again."""

    def __init__(self, count: int, clock: Clock, place: Place, model: str, seed: int = 0) -> None:
        self._clock = clock
        self._place = place
        self._model = model
        self._seed = seed
        self._number = itertools.count(1)
        self._users: list[Request | None] = [None] * count
        self._ready_ns = [clock.now_ns() + at * 700_000_000 for at in range(count)]
        self._quiet_until_ns = 0

    def give_way(self) -> None:
        """A request from outside has come (or goes on)."""
        self._quiet_until_ns = self._clock.now_ns() + int(QUIET_S * SECOND_NS)
        for at, request in enumerate(self._users):
            if request is not None:
                self._users[at] = None
                if request.end is None:
                    self._place.withdraw(request)

    async def run(self, outside: Callable[[], int]) -> None:
        """Until cancelled. `outside` = how many requests from outside are being served."""
        while True:
            await asyncio.sleep(PERIOD_S)
            if outside():
                self.give_way()
            now_ns = self._clock.now_ns()
            if now_ns < self._quiet_until_ns:
                continue
            for at, request in enumerate(self._users):
                self._visit(at, request, now_ns)

    def _visit(self, at: int, request: Request | None, now_ns: int) -> None:
        if request is not None:
            if request.end is not None:
                self._users[at] = None
                self._ready_ns[at] = now_ns + int((1.5 + 1.4 * self._draw(at, 3)) * SECOND_NS)
            return
        if now_ns < self._ready_ns[at]:
            return
        number = next(self._number)
        prompt = tuple(f"v{number}-{word}" for word in range(int(500 + 350 * self._draw(number, 1))))
        ask = Ask(
            api="completions",
            model=self._model,
            prompt=prompt,
            max_tokens=int(600 + 400 * self._draw(number, 2)),
            stream=False,
            include_usage=False,
            continuous_usage=False,
        )
        answer = Answer(ask, f"visitor-{number}", 0, token_ids(self._seed, 0))
        visit = Request(ask, answer, _Nowhere(self._clock), now_ns, internal=True)
        self._users[at] = visit
        self._place.submit(visit)

    def _draw(self, number: int, what: int) -> float:
        return noise(self._seed, what, number)
