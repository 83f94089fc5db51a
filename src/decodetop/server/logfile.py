"""A server's log: the file named for it or its standard output; `journal` for one that a systemd unit runs."""

from __future__ import annotations

from collections.abc import Callable
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
    """Neither call raises: what can't be read says nothing but `trouble`, and the server is not kept waiting for it."""

    @property
    def where(self) -> str:
        """A path, or whose journal."""

    @property
    def trouble(self) -> str | None:
        """Why the last call could read nothing; None when it could."""

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
        self.where = _name(path)
        self.trouble: str | None = None
        self._file = LogFile(path)
        self._clock = clock
        self._thread = thread

    async def head(self) -> str:
        return await self._read(self._file.head)

    async def grown(self) -> str:
        return await self._read(self._file.grown)

    async def _read(self, read: Callable[[], str]) -> str:
        try:
            text = await within(self._clock, FILE_S, self._thread.call(read))
        except Late:
            self.trouble = f"no answer from its disk within {FILE_S:g} s"
        except OSError as error:
            self.trouble = (error.strerror or str(error)).lower()
        else:
            self.trouble = None
            return text
        return ""

    async def close(self) -> None:
        """Nothing is held open."""


def _name(path: Path) -> str:
    """Of a process's open file, what the kernel says it is."""
    if path.parts[:2] != ("/", "proc"):
        return str(path)
    try:
        return str(path.readlink())
    except OSError:
        return str(path)
