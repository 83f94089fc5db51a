"""The one owner of time: nothing else calls `time.*` or `datetime.now`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
SECOND_NS = 1_000_000_000


class Clock(Protocol):
    def now_ns(self) -> int:
        """Monotonic ns since the session began."""

    def wall_ns(self) -> int:
        """Epoch ns; for stamps people read, never for durations."""

    async def sleep_until(self, t_ns: int) -> None:
        """Return once `now_ns() >= t_ns`."""


class SystemClock:
    """CLOCK_MONOTONIC, so stamps of processes on one box may be compared."""

    def __init__(self) -> None:
        self._zero_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._zero_ns

    def wall_ns(self) -> int:
        return time.time_ns()

    async def sleep_until(self, t_ns: int) -> None:
        while (wait_ns := t_ns - self.now_ns()) > 0:
            await asyncio.sleep(wait_ns / SECOND_NS)


class Late(Exception):
    """The work was not done by its deadline; it goes on in `task`."""

    def __init__(self, task: asyncio.Future[Any]) -> None:
        super().__init__("past its deadline")
        self.task = task


async def within(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """Await `work`, or raise Late after `seconds` of `clock` and leave it running."""
    task = asyncio.ensure_future(work)
    alarm = asyncio.ensure_future(clock.sleep_until(clock.now_ns() + int(seconds * SECOND_NS)))
    try:
        await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        task.cancel()
        raise
    finally:
        alarm.cancel()
    if not task.done():
        raise Late(task)
    return task.result()
