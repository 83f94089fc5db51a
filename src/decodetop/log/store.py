"""The log on disk: `log.ndjson`, one JSON object a line, only ever appended to.

{"schema": 1, "at": "2026-11-30T14:03:27.000Z", "kind": "note", "text": "...", "ref": ..., "key": ..., "data": {...}}

Each line stands for itself, so a killed writer costs at most the line it was writing. Processes take turns by a lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from decodetop.core.atomic import locked, real_path, sync_folder, write_error
from decodetop.core.decode import decode_lax
from decodetop.core.regular import present
from decodetop.core.stamp import stamp_of, wall_ns_of
from decodetop.errors import DataError
from decodetop.log.reading import Entry

FILE_NAME = "log.ndjson"
SCHEMA = 1
READ_MAX_BYTES = 32 << 20
"""Of a longer log only the end is read."""
ONCE = ("status", "attempt", "run", "capture")
"""Kinds whose key names one thing for ever; of the others the same key soon again is the same thing."""
AGAIN_NS = 15 * 1_000_000_000
"""Two processes that watch one box see the same within this time."""


class LogStore:
    """Not for several threads at once. Keeps its place, so that only what is new is read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self.entries: list[Entry] = []
        self.unreadable = 0
        self._at: tuple[int, int] = (0, 0)
        """Inode and offset read so far."""
        self._torn = b""
        """A last line without its end."""
        self._keys: dict[str, int] = {}

    def read(self) -> bool:
        """Take in what was appended since; False if nothing was. No file is an empty log. Raises DataError."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return self._forget() if self._at[0] else False
        except OSError as error:
            raise DataError(f"can't read {self.path}: {error.strerror}", "check its permissions") from error
        try:
            return self._read(handle)
        finally:
            os.close(handle)

    def append(self, entries: Sequence[Entry]) -> None:
        """Put those at the end that are not there yet; on disk when this returns. Raises DataError, nothing added."""
        target = real_path(self.path)
        with locked(target):
            self.read()
            fresh = list(self._fresh(entries))
            if not fresh:
                return
            self._write(target, b"".join(map(_line, fresh)))
            with contextlib.suppress(DataError):  # they are on disk, and read at the next look
                self.read()

    def holds(self, entry: Entry) -> bool:
        """Whether it is the same thing as one that is there."""
        if entry.key is None or entry.key not in self._keys:
            return False
        return entry.kind in ONCE or abs(entry.wall_ns - self._keys[entry.key]) <= AGAIN_NS

    def _fresh(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        seen: set[str] = set()
        for entry in entries:
            if not self.holds(entry) and not (entry.key in seen and entry.kind in ONCE):
                yield entry
            seen |= {entry.key} if entry.key else set()

    def _write(self, target: Path, data: bytes) -> None:
        new = not present(target)
        try:
            handle = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise write_error(target, error) from error
        try:
            before = os.fstat(handle).st_size
            try:
                rest = memoryview(b"\n" + data if self._torn else data)
                while rest:
                    rest = rest[os.write(handle, rest) :]
                os.fsync(handle)
            except OSError as error:
                with contextlib.suppress(OSError):  # under the lock: what stands behind is our own half
                    os.ftruncate(handle, before)
                raise write_error(target, error) from error
        finally:
            os.close(handle)
        if new:
            sync_folder(target.parent)

    def _read(self, handle: int) -> bool:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise DataError(f"{self.path} is no file", "move it away, or use another --investigation DIR")
        inode, offset = self._at
        if inode != found.st_ino or found.st_size < offset:
            self._forget()
            offset = max(0, found.st_size - READ_MAX_BYTES)
        if found.st_size == offset:
            self._at = (found.st_ino, offset)
            return False
        try:
            data = _all_of(handle, offset, found.st_size - offset)
        except OSError as error:
            raise DataError(f"can't read {self.path}: {error.strerror}", "is the disk all right?") from error
        whole, newline, self._torn = data.rpartition(b"\n")
        self._at = (found.st_ino, offset + len(whole) + len(newline))
        for line in whole.split(b"\n"):
            self._take(line)
        return True

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        entry = _entry(line)
        if entry is None:
            self.unreadable += 1
            return
        self.entries.append(entry)
        if entry.key is not None:
            self._keys[entry.key] = entry.wall_ns

    def _forget(self) -> bool:
        self.entries, self.unreadable, self._at, self._torn, self._keys = [], 0, (0, 0), b"", {}
        return True


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """By time; what was told late stands where it belongs."""
    return sorted(entries, key=lambda entry: entry.wall_ns)


def _line(entry: Entry) -> bytes:
    fields: dict[str, Any] = {"schema": SCHEMA, "at": stamp_of(entry.wall_ns), "kind": entry.kind, "text": entry.text}
    rest = {"ref": entry.ref, "key": entry.key, "data": entry.data}
    fields |= {name: value for name, value in rest.items() if value}
    try:
        return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair: it goes out as an escape
        return json.dumps(fields).encode() + b"\n"


def _entry(line: bytes) -> Entry | None:
    try:
        fields = decode_lax(line)
        wall_ns = wall_ns_of(fields["at"])
        kind, text = fields["kind"], fields["text"]
    except (ValueError, LookupError, TypeError):
        return None
    if wall_ns is None or not isinstance(kind, str) or not isinstance(text, str):
        return None
    ref, key, data = fields.get("ref"), fields.get("key"), fields.get("data")
    return Entry(
        wall_ns=wall_ns,
        kind=kind,
        text=text.encode("utf-8", "replace").decode(),
        ref=ref if isinstance(ref, str) else None,
        key=key if isinstance(key, str) else None,
        data=data if isinstance(data, dict) else {},
    )


def _all_of(handle: int, offset: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.pread(handle, min(size, 1 << 20), offset)):
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return b"".join(parts)
