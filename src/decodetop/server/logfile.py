"""A server's log, where its standard output is a file: its beginning, and what it grew by. Blocking."""

from __future__ import annotations

from pathlib import Path

from decodetop.core.regular import open_regular

HEAD_BYTES = 2 << 20
"""vLLM's start-up is its first 100 kB or so."""
GROWN_BYTES = 256 << 10
"""A log that grew more between two looks is read from this far before its end."""


class LogFile:
    """`path` is read only. Every method raises OSError when it can't be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset: int | None = None

    def head(self) -> str:
        with open_regular(self._path) as file:
            return file.read(HEAD_BYTES).decode("utf-8", "replace")

    def grown(self) -> str:
        """What was added since the last call; nothing the first time: nobody knows how old that is."""
        with open_regular(self._path) as file:
            end = file.seek(0, 2)
            before = end if self._offset is None else self._offset
            start = max(0 if before > end else before, end - GROWN_BYTES)
            file.seek(start)
            text = file.read(end - start)
        self._offset = end
        return text.decode("utf-8", "replace")
