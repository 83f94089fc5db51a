"""The trace files of a capture: which are new, which are whole, and taking them into the investigation. Blocking."""

from __future__ import annotations

import contextlib
import shutil
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from decodetop.errors import DataError, TraceError
from decodetop.steps.folder import is_rank
from decodetop.steps.inflate import TraceBytes

END_BYTES = 64


class Stamp(NamedTuple):
    """What changes while a file is being written."""

    size: int
    mtime_ns: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """New trace files by name: whole ones, and those still (or never to be) finished. `stamps` tells change."""

    whole: tuple[Path, ...] = ()
    unfinished: tuple[Path, ...] = ()
    stamps: tuple[Stamp, ...] = ()


def whole(path: Path, given_up: Callable[[], bool] = lambda: False) -> bool:
    """Whether it has its end: the last bracket, and of gzip the trailer with the right checksum. Not once `given_up`:
    all of it is read, which takes seconds a gigabyte."""
    try:
        content = TraceBytes(path)
    except TraceError:
        return False
    end = b""
    try:
        for block in content:
            end = block[-END_BYTES:].rstrip() or end
            if given_up():
                return False
    finally:
        content.close()
    return content.damage is None and end.endswith((b"}", b"]"))


class Folder:
    """A folder that traces come to. `begin` first: what is there then is not of this capture."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before: frozenset[tuple[Path, Stamp]] = frozenset()
        self._seen: dict[Path, Stamp] = {}
        self._whole: dict[Path, Stamp] = {}
        self._left = threading.Event()

    def leave(self) -> None:
        """Nobody waits any more: a look under way ends soon. From any thread."""
        self._left.set()

    def begin(self) -> None:
        self._before = frozenset(self._there().items())

    def look(self) -> Found:
        """A file is whole when it has its end, and its size and time were the same at the last look."""
        now = {path: stamp for path, stamp in self._there().items() if (path, stamp) not in self._before}
        for path, stamp in now.items():
            still = self._seen.get(path) == stamp
            if still and self._whole.get(path) != stamp and whole(path, self._left.is_set):
                self._whole[path] = stamp
        self._seen = now
        done = [path for path, stamp in now.items() if self._whole.get(path) == stamp]
        return Found(
            whole=tuple(sorted(done)),
            unfinished=tuple(sorted(now.keys() - set(done))),
            stamps=tuple(now[path] for path in sorted(now)),
        )

    def _there(self) -> dict[Path, Stamp]:
        """In the folder and one below: newer engines make one per profile. Empty when it can't be read."""
        there: dict[Path, Stamp] = {}
        for pattern in ("*", "*/*"):
            with contextlib.suppress(OSError):
                for path in self.path.glob(pattern):
                    if is_rank(path.name):
                        with contextlib.suppress(OSError):
                            seen = path.stat()
                            if stat.S_ISREG(seen.st_mode):
                                there[path] = Stamp(seen.st_size, seen.st_mtime_ns)
        return there


def taken(paths: Sequence[Path], folder: Path) -> tuple[Path, ...]:
    """The files copied to `folder`. Raises DataError; nothing half-copied stays, nor is it ever called a trace."""
    copies = []
    for path in paths:
        copy, half = folder / path.name, folder / f".{path.name}.half"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, half)
            half.replace(copy)
        except OSError as error:
            with contextlib.suppress(OSError):
                half.unlink(missing_ok=True)
            message = f"can't copy {path} to {folder}: {error.strerror or error}"
            raise DataError(message, f"open it where it is: decodetop steps {path}") from error
        copies.append(copy)
    return tuple(copies)


def cleared(folder: Path) -> None:
    """Take a folder of ours away, as far as we may."""
    shutil.rmtree(folder, ignore_errors=True)


def tidied(folder: Path) -> None:
    """Take it away if nothing came to it."""
    with contextlib.suppress(OSError):
        folder.rmdir()
