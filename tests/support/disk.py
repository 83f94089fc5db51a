"""Stand-ins for the disk's thread and the folder's watch, so that a test needs no waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Inline:
    """A caller without a thread. `stuck` = calls never return."""

    busy = False

    def __init__(self) -> None:
        self.stuck = False

    async def call(self, function: Callable[[], T]) -> T:
        if self.stuck:
            await asyncio.Event().wait()
        return function()

    def close(self) -> None:
        pass


class Watched:
    """A watch that speaks when the test says so."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    async def __call__(self, folder: Path, names: frozenset[str]) -> AsyncIterator[None]:
        while True:
            await self.changed.wait()
            self.changed.clear()
            yield None
