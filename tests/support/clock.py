"""A clock that moves only when told: tests of hours take no time."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from decodetop.core.clock import SECOND_NS


class ManualClock:
    """`advance` wakes sleepers in order and lets the loop settle after each."""

    def __init__(self, wall_ns: int = 1_796_000_000 * SECOND_NS) -> None:
        self._now_ns = 0
        self._wall_ns = wall_ns
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now_ns(self) -> int:
        return self._now_ns

    def wall_ns(self) -> int:
        return self._wall_ns + self._now_ns

    async def sleep_until(self, t_ns: int) -> None:
        if t_ns <= self._now_ns:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (t_ns, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        end_ns = self._now_ns + int(seconds * SECOND_NS)
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end_ns:
            t_ns, _, future = heapq.heappop(self._sleepers)
            self._now_ns = max(self._now_ns, t_ns)
            if not future.done():
                future.set_result(None)
            await settle()
        self._now_ns = end_ns
        await settle()


async def settle(turns: int = 30) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
