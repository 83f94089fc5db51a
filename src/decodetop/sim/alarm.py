"""Wakes the loop at an instant, to a fraction of a millisecond: loops' own timers are 1 ms coarse."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Protocol

from decodetop.core.clock import SECOND_NS, SystemClock

SOON_NS = 60_000
"""Nearer than this an interval timer is no help: the loop is asked to come round again."""


class MonotonicClock(SystemClock):
    """`now_ns` is CLOCK_MONOTONIC itself, so that stamps of the server and of a client on the box may be subtracted."""

    def __init__(self) -> None:
        self._zero_ns = 0


class Wake(Protocol):
    def set(self, due_ns: int, callback: Callable[[], None]) -> None:
        """Call `callback` at `due_ns` of the clock; what was pending is forgotten."""


class Alarm:
    """One pending call at a time, driven by the process's interval timer: main thread only, one per process."""

    def __init__(self, clock: MonotonicClock, loop: asyncio.AbstractEventLoop, spin_ns: int = 0) -> None:
        """The last `spin_ns` before the instant are waited in a busy loop: exact, at the price of a core."""
        self._clock = clock
        self._loop = loop
        self._spin_ns = spin_ns
        self._due_ns = 0
        self._callback: Callable[[], None] | None = None
        loop.add_signal_handler(signal.SIGALRM, self._ring)

    def set(self, due_ns: int, callback: Callable[[], None]) -> None:
        """Call `callback` at `due_ns`; what was pending is forgotten."""
        self._due_ns = due_ns
        self._callback = callback
        self._arm()

    def close(self) -> None:
        """Before the loop ends: without its handler an alarm would end the process."""
        self._callback = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._loop.remove_signal_handler(signal.SIGALRM)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)

    def _arm(self) -> None:
        left_ns = self._due_ns - self._spin_ns - self._clock.now_ns()
        if left_ns < SOON_NS:
            self._loop.call_soon(self._ring)
        else:
            signal.setitimer(signal.ITIMER_REAL, left_ns / SECOND_NS)

    def _ring(self) -> None:
        callback = self._callback
        if callback is None:
            return
        left_ns = self._due_ns - self._clock.now_ns()
        if left_ns > self._spin_ns + SOON_NS:
            self._arm()
            return
        while left_ns > 0 and (self._spin_ns or left_ns <= SOON_NS):
            left_ns = self._due_ns - self._clock.now_ns()
        self._callback = None
        callback()
