"""Captures on disk: one JSON file each under the investigation, written whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from decodetop.core.atomic import make_folder, replace
from decodetop.core.decode import NotDecoded, decode
from decodetop.core.encode import encode
from decodetop.core.regular import read_regular
from decodetop.errors import DataError
from decodetop.steps.reading import SCHEMA, Capture

FOLDER = "captures"
COMPARED = ".compared"
"""The two compared last, so that a later report tells of them: no capture, so it does not end as one."""
CAPTURE_MAX_BYTES = 64 << 20


class _Schema(msgspec.Struct):
    schema: int = 0


class _File(msgspec.Struct, frozen=True):
    schema: int
    capture: Capture


class _Compared(msgspec.Struct, frozen=True):
    """`newest` = the newest capture then."""

    schema: int
    pair: tuple[str, str]
    newest: str


class CaptureStore:
    """`captures` newest first. `unreadable` files are left where they are. `compared` = the two compared last."""

    def __init__(self, investigation: Path) -> None:
        self._folder = investigation / FOLDER
        self.captures: tuple[Capture, ...] = ()
        self.unreadable: tuple[str, ...] = ()
        self._compared: _Compared | None = None

    @property
    def compared(self) -> tuple[str, str] | None:
        """None too when a capture was made since."""
        kept, newest = self._compared, self.captures[0].id if self.captures else None
        return None if kept is None or kept.newest != newest else kept.pair

    def load(self) -> None:
        """Read what is there. Never raises: a folder or file that can't be read is named in `unreadable`."""
        found: list[Capture] = []
        bad: list[str] = []
        try:
            paths = sorted(self._folder.glob("*.json"))
        except OSError as error:
            self.unreadable = (f"{self._folder}: {error.strerror or error}",)
            return
        for path in paths:
            try:
                found.append(_decode(read_regular(path, CAPTURE_MAX_BYTES)))
            except (OSError, NotDecoded, DataError) as error:
                bad.append(f"{path.name}: {error}")
        self.captures = tuple(sorted(found, key=_age))
        self.unreadable = tuple(bad)
        with contextlib.suppress(OSError, NotDecoded):
            self._compared = decode(read_regular(self._folder / COMPARED), _Compared)

    def compare(self, pair: tuple[str, str]) -> None:
        """Keep these two. Raises DataError if the disk refuses; then they are known here only."""
        self._compared = _Compared(SCHEMA, pair, self.captures[0].id if self.captures else "")
        make_folder(self._folder)
        replace(self._folder / COMPARED, encode(self._compared))

    def add(self, capture: Capture) -> None:
        """Store one; an older one of the same files and time is replaced. Raises DataError if the disk refuses."""
        path = self._folder / f"{capture.id}.json"
        data = encode(_File(SCHEMA, capture))
        make_folder(self._folder)
        replace(path, data)
        others = (one for one in self.captures if one.id != capture.id)
        self.captures = (capture, *others)


def capture_id(paths: Sequence[str], made_wall_ns: int | None) -> str:
    """Stable for the same files: the first one's name and the time they were written."""
    name = Path(paths[0]).name.split(".trace.json")[0].split(".pt")[0] if paths else "trace"
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)[:80]
    return f"{safe.strip('.') or 'trace'}-{made_wall_ns or 0:x}"


def made_wall_ns(paths: Sequence[str]) -> int | None:
    """When the newest of the files was written."""
    times = []
    for path in paths:
        with contextlib.suppress(OSError):
            times.append(Path(path).stat().st_mtime_ns)
    return max(times, default=None)


def _age(capture: Capture) -> tuple[int, str]:
    return -(capture.made_wall_ns or 0), capture.id


def _decode(data: bytes) -> Capture:
    schema = decode(data, _Schema).schema
    if schema > SCHEMA:
        raise DataError(f"schema {schema} is newer than this decodetop reads ({SCHEMA})")
    return decode(data, _File).capture
