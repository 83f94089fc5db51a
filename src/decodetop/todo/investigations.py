"""The investigations of this user: folders side by side, each with its question; one of them is open.

An investigation that is put away stays where it is, with a word in its `investigation.json`: nothing is moved from
under a decodetop that has it open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from decodetop.core.atomic import make_folder
from decodetop.core.regular import is_root, named_path
from decodetop.core.stamp import stamp_of
from decodetop.errors import DataError, UsageError
from decodetop.todo.question import FILE_NAME as QUESTION_FILE
from decodetop.todo.question import read_fields, write_fields
from decodetop.todo.reading import CLOSED, Investigation
from decodetop.todo.store import FILE_NAME as TODO_FILE
from decodetop.todo.store import TodoStore

_SLUG = re.compile(r"[^a-z0-9]+")
_MARKS = (TODO_FILE, QUESTION_FILE, "runs.sqlite", "log.ndjson", "captures", "tapes")
"""A folder with one of these is an investigation."""
NAME_MOST = 60


def listed(root: Path, current: Path) -> tuple[Investigation, ...]:
    """Those in `root` and the `current` one wherever it is, the last changed first. Never raises for a broken one."""
    folders = [*_folders(root)]
    if not any(_same(folder, current) for folder in folders):
        folders.append(current)
    found = [look(folder, current) for folder in folders]
    return tuple(sorted(found, key=lambda one: -(one.changed_wall_ns or 0)))


def look(folder: Path, current: Path) -> Investigation:
    """One folder, as far as it can be read."""
    problems = []
    question, archived = None, False
    try:
        fields = read_fields(folder)
        asked = fields.get("question")
        question = asked if isinstance(asked, str) and asked.strip() else None
        archived = bool(fields.get("archived"))
    except DataError as error:
        problems.append(error.message)
    closed = whole = None
    try:
        document = TodoStore(folder).read()
        whole, closed = len(document.items), sum(item["status"] in CLOSED for item in document.items)
        question = question or document.title
    except DataError as error:
        problems.append(error.message)
    return Investigation(
        name=folder.name,
        path=str(folder),
        question=question,
        todos=whole,
        closed=closed,
        changed_wall_ns=_changed_ns(folder),
        current=_same(folder, current),
        archived=archived,
        problem="; ".join(problems) or None,
    )


def create(root: Path, name: str, question: str) -> Path:
    """A new one, with its question. Raises UsageError if there is one of the name, and DataError."""
    folder = place_of(root, name)
    if any((folder / mark).exists() for mark in _MARKS):
        raise UsageError(f"{folder} is an investigation already", f"open it: decodetop investigation open {name}")
    make_folder(folder)
    write_fields(folder, question=" ".join(question.split()))
    return folder


def fresh_name(root: Path, question: str) -> str:
    """A folder's name made of a question, that is not taken."""
    base = _SLUG.sub("-", question.lower()).strip("-")[:NAME_MOST].strip("-") or "investigation"
    name, number = base, 2
    while (root / name).exists():
        name, number = f"{base}-{number}", number + 1
    return name


def existing(root: Path, name: str) -> Path:
    """The folder that `name` means. Raises UsageError if there is none."""
    folder = place_of(root, name)
    if not folder.is_dir():
        raise UsageError(f"there is no investigation {name!r} ({folder})", "`decodetop investigation list` shows them")
    return folder


def archive(folder: Path, wall_ns: int | None) -> None:
    """Put it away at that time; None = take it out again. Raises DataError."""
    write_fields(folder, archived=None if wall_ns is None else stamp_of(wall_ns))


def place_of(root: Path, name: str) -> Path:
    """A name is a folder of `root`; what holds a slash is a path. Raises UsageError for what can't be one."""
    if "/" in name:
        folder = named_path(name, "the investigation").absolute()
        if is_root(folder):
            raise UsageError(f"{name!r} is the root folder, not an investigation's", "name a folder of its own")
        return folder
    if not name.strip() or name.startswith(".") or not name.isprintable():
        raise UsageError(f"{name!r} is no name for an investigation", "use letters and digits, for example why-51-tok")
    return root / name


def _folders(root: Path) -> Iterator[Path]:
    try:
        entries = sorted(root.iterdir())
    except OSError:  # nobody has made one yet, or it may not be read: then none is known
        return
    for folder in entries:
        try:
            if any((folder / mark).exists() for mark in _MARKS):
                yield folder
        except OSError:
            continue


def _changed_ns(folder: Path) -> int | None:
    found = []
    for mark in _MARKS:
        try:
            found.append((folder / mark).stat().st_mtime_ns)
        except OSError:
            continue
    return max(found, default=None)


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.expanduser().absolute()
