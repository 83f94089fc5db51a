"""A server's log: the file named for it or its standard output; `journal` for one that a systemd unit runs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from decodetop.core.clock import Clock, Late, within
from decodetop.core.regular import open_regular
from decodetop.core.thread import CallThread

HEAD_BYTES = 2 << 20
"""vLLM's start-up is its first 100 kB or so."""
GROWN_BYTES = 256 << 10
"""A log that grew more between two looks is read from this far before its end."""
FILE_S = 1.0


class ServerLog(Protocol):
    """Neither call raises: what can't be read says nothing, and the server is not kept waiting for it."""

    async def head(self) -> str:
        """The first `HEAD_BYTES` of what the server wrote."""

    async def grown(self) -> str:
        """What was added since the last call; nothing the first time: nobody knows how old that is."""

    async def close(self) -> None:
        """End whatever follows it."""


class LogFile:
    """`path` is read only. Blocking; every method raises OSError when it can't be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset: int | None = None

    def head(self) -> str:
        with open_regular(self._path) as file:
            return file.read(HEAD_BYTES).decode("utf-8", "replace")

    def grown(self) -> str:
        with open_regular(self._path) as file:
            end = file.seek(0, 2)
            before = end if self._offset is None else self._offset
            start = max(0 if before > end else before, end - GROWN_BYTES)
            file.seek(start)
            text = file.read(end - start)
        self._offset = end
        return text.decode("utf-8", "replace")


class FileLog:
    """A `LogFile` read on a thread."""

    def __init__(self, path: Path, clock: Clock, thread: CallThread) -> None:
        self._file = LogFile(path)
        self._clock = clock
        self._thread = thread

    async def head(self) -> str:
        try:
            return await within(self._clock, FILE_S, self._thread.call(self._file.head))
        except (Late, OSError):
            return ""

    async def grown(self) -> str:
        try:
            return await within(self._clock, FILE_S, self._thread.call(self._file.grown))
        except (Late, OSError):
            return ""

    async def close(self) -> None:
        """Nothing is held open."""
