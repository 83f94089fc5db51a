"""Serving at fixed times: the k-th token of every request is due at arrival + TTFT + k x ITL. For judging clients."""

from __future__ import annotations

import heapq
import itertools

import msgspec

from decodetop.core.clock import Clock
from decodetop.sim.alarm import Wake
from decodetop.sim.model import Load, noise
from decodetop.sim.serving import Emitter, Request

SPIN_NS = 300_000
"""Waited in a busy loop before an instant: timers are a quarter of a millisecond late."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Fixed times in ms. `batched` = all requests emit at common instants, `itl_ms` apart (TTFT is then rounded up to
    one); `jitter_ms` moves each chunk by up to that much either way; `tokens` = tokens in a chunk.
    """

    ttft_ms: float
    itl_ms: float
    batched: bool = False
    jitter_ms: float = 0.0
    tokens: int = 1


class Exact:
    """Serves each request by the clock alone."""

    def __init__(self, clock: Clock, alarm: Wake, emitter: Emitter, schedule: Schedule, seed: int = 0) -> None:
        self.running: list[Request] = []
        self.waiting: tuple[Request, ...] = ()
        self.load = Load(t_ns=clock.now_ns())
        self._clock = clock
        self._alarm = alarm
        self._emitter = emitter
        self._schedule = schedule
        self._seed = seed
        self._number = itertools.count()
        self._due: list[tuple[int, int, int, Request]] = []

    @property
    def kv_tokens(self) -> int:
        return sum(request.context for request in self.running)

    def submit(self, request: Request) -> None:
        self._emitter.accept(request)
        self.running.append(request)
        first_ns = request.received_ns + int(self._schedule.ttft_ms * 1e6)
        if self._schedule.batched:
            grid_ns = int(self._schedule.itl_ms * 1e6)
            first_ns = -(-first_ns // grid_ns) * grid_ns
        self._plan(first_ns, next(self._number), request)
        self._arm()

    def withdraw(self, request: Request) -> None:
        self._emitter.leave(request)
        if request in self.running:
            self.running.remove(request)

    def _plan(self, due_ns: int, number: int, request: Request) -> None:
        """`due_ns` is the instant before jitter, from which the next one is counted."""
        shift = noise(self._seed, number, len(request.sent_ns)) * self._schedule.jitter_ms * 1e6
        heapq.heappush(self._due, (due_ns + int(shift), number, due_ns, request))

    def _arm(self) -> None:
        if self._due:
            self._alarm.set(self._due[0][0], self._ring)

    def _ring(self) -> None:
        now_ns = self._clock.now_ns()
        while self._due and self._due[0][0] <= now_ns:
            _, number, due_ns, request = heapq.heappop(self._due)
            if request.end is not None:
                continue
            self._emitter.emit(request, self._schedule.tokens, self._clock.now_ns)
            if request.end is None:
                self._plan(due_ns + int(self._schedule.itl_ms * 1e6), number, request)
            elif request in self.running:
                self.running.remove(request)
        self._arm()
