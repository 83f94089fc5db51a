"""The log of an investigation: what happened, in order. It is what one reads the next morning."""

from __future__ import annotations

from typing import Any

import msgspec

from decodetop.core.sample import Command, Reading

KINDS = ("status", "changed", "attempt", "server", "run", "capture", "finding", "cleared", "note")
"""status, attempt = of the checklist; changed = a status without its time, by another tool or by undo; server = seen,
restarted, other flags; finding, cleared = raised and gone.
"""

RESTARTED = " restarted: "
"""In a server's entry: what differs stands behind it."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. `wall_ns` is epoch ns. `ref` names it in its own store: an item, a run, an endpoint.

    `key` tells it from others, so that several processes log one thing once; a note has none. `data` is for programs.
    """

    wall_ns: int
    kind: str
    text: str
    ref: str | None = None
    key: str | None = None
    data: dict[str, Any] = {}


class LogReading(Reading, frozen=True, kw_only=True):
    """The newest `entries`, oldest first, of `total`. `unsaved` = why entries are only in memory.

    `problem` = what is wrong with the file.
    """

    path: str
    entries: tuple[Entry, ...] = ()
    total: int = 0
    unsaved: str | None = None
    problem: str | None = None


class AddNote(Command, frozen=True, kw_only=True):
    """Write a line into the log; `item` is the checklist's it is about."""

    title = "write a note"

    text: str
    item: str | None = None
