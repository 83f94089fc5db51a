"""The log a server's figures may come from: which one it is, what its newest decode line says, why it can't be read."""

from __future__ import annotations

from pathlib import Path

from decodetop.core.clock import SECOND_NS, Clock
from decodetop.core.thread import CallThread
from decodetop.server.discover import Found
from decodetop.server.journal import Journal, Unit
from decodetop.server.log import DecodeLine, DecodeLog
from decodetop.server.logfile import FileLog, ServerLog

NO_LOG = "no log of it is known: --server-log FILE names one"


class FollowedLog:
    """Of one server: the file that was `named` for it, else its standard output, else its unit's journal."""

    def __init__(self, clock: Clock, thread: CallThread, named: Path | None) -> None:
        self._clock = clock
        self._thread = thread
        self._named = None if named is None else FileLog(named, clock, thread)
        self._log: ServerLog | None = self._named
        self._lines = DecodeLog()
        self._retired: list[ServerLog] = []

    @property
    def where(self) -> str | None:
        return None if self._log is None else self._log.where

    @property
    def trouble(self) -> str | None:
        """Why it says nothing; None while it can be read."""
        return NO_LOG if self._log is None else self._log.trouble

    def follow(self, found: Found, unit: Unit | None) -> None:
        """Another process answers at the address: its log, from now on."""
        if self._log is not None and self._log is not self._named:
            self._retired.append(self._log)
        self._lines = DecodeLog()
        if self._named is not None:
            self._log = self._named
        elif found.log is not None:
            self._log = FileLog(found.log, self._clock, self._thread)
        else:
            self._log = None if unit is None else Journal(unit, found.started_wall_ns / SECOND_NS, self._clock)

    async def line(self) -> DecodeLine | None:
        """The newest decode line, None when there is none of late."""
        if self._log is None:
            return None
        self._lines.feed(await self._log.grown(), self._clock.now_ns())
        return self._lines.at(self._clock.now_ns())

    async def head(self) -> str:
        """The beginning of what the server wrote; empty when there is none to be read."""
        return "" if self._log is None else await self._log.head()

    async def let_go(self) -> None:
        """End what followed the logs of before."""
        while self._retired:
            await self._retired.pop().close()

    async def close(self) -> None:
        await self.let_go()
        if self._log is not None:
            await self._log.close()
