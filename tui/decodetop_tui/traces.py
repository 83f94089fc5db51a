"""What the file picker offers: folders and traces, the ranks of one capture as one entry."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from decodetop.core.regular import is_file, named_path
from decodetop.errors import UsageError

SUFFIXES = (".json", ".json.gz")
MOST_ENTRIES = 2000
"""Entries of a folder looked at, so that a huge one can't hold the screen."""

_RANK = re.compile(r"(TP-|rank[-_]?)(\d+)", re.IGNORECASE)
_STAMP = re.compile(r"\d{10,}")


class Entry(NamedTuple):
    """A folder (no `paths`), a trace, or the traces of several ranks. `size` in bytes, of all of them."""

    name: str
    paths: tuple[str, ...]
    size: int
    modified_ns: int


class Found(NamedTuple):
    """`folder` is what was looked at; `problem` why it could not be."""

    folder: str
    entries: tuple[Entry, ...]
    problem: str | None = None


def look(typed: str) -> Found:
    """The folder of a typed path and what in it begins with (or holds) its last part: folders, then new traces."""
    try:
        path = named_path(typed or ".", "the path")
    except UsageError as error:
        return Found(typed, (), error.message)
    folder, start = (path, "") if typed.endswith(("/", "~")) or not typed else (path.parent, path.name)
    try:
        with os.scandir(folder) as scan:
            seen = [_entry(entry) for _, entry in zip(range(MOST_ENTRIES), scan, strict=False)]
    except OSError as error:
        return Found(str(folder), (), f"{folder}: {error.strerror}")
    entries = [entry for entry in seen if entry is not None]
    folders = sorted(entry for entry in entries if not entry.paths)
    files = sorted((entry for entry in entries if entry.paths), key=lambda entry: -entry.modified_ns)
    shown = [*folders, *captures(files), *files]
    wanted = start.lower()
    kept = [entry for entry in shown if wanted in entry.name.lower()]
    kept.sort(key=lambda entry: not entry.name.lower().startswith(wanted))
    return Found(str(folder), tuple(kept))


def size_words(size: int) -> str:
    """`512 kB`, `4.0 MB`; bytes below 1 kB would be no trace."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"


def captures(files: Sequence[Entry]) -> list[Entry]:
    """One entry for each capture of several ranks."""
    groups: dict[str, list[Entry]] = {}
    for entry in files:
        name = _STAMP.sub(lambda stamp: stamp[0][:9], _RANK.sub(r"\1*", entry.name))
        if "*" in name:
            groups.setdefault(name, []).append(entry)
    found = []
    for group in groups.values():
        if len(group) > 1:
            group.sort(key=lambda entry: _rank(entry.name))
            name = _RANK.sub(r"\1*", group[0].name, count=1)
            paths = tuple(path for entry in group for path in entry.paths)
            newest = max(entry.modified_ns for entry in group)
            found.append(Entry(f"{name}  all {len(group)} ranks", paths, sum(entry.size for entry in group), newest))
    return sorted(found, key=lambda entry: -entry.modified_ns)


def typed_paths(typed: str) -> tuple[str, ...]:
    """The files a typed path or pattern names: `prof/*TP-*.json.gz`. Empty when there are none."""
    try:
        path = named_path(typed, "the path")
    except UsageError:
        return ()
    if any(mark in typed for mark in "*?["):
        try:
            return tuple(sorted(str(one) for one in path.parent.glob(path.name) if is_file(one)))
        except (ValueError, OSError):
            return ()
    return (str(path),) if is_file(path) else ()


def _rank(name: str) -> int:
    match = _RANK.search(name)
    return int(match[2]) if match else 0


def _entry(found: os.DirEntry[str]) -> Entry | None:
    try:
        if found.is_dir():
            return None if found.name.startswith(".") else Entry(f"{found.name}/", (), 0, 0)
        if not found.name.endswith(SUFFIXES):
            return None
        stat = found.stat()
    except OSError:
        return None
    return Entry(found.name, (found.path,), stat.st_size, stat.st_mtime_ns)
