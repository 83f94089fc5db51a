"""The way back for the commands: edits made by `decodetop todo`, kept beside the list in `.todo.json.undo`.

A help, so its absence or a broken one is no trouble: then there is nothing to undo.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from decodetop.core.atomic import locked, real_path, replace
from decodetop.core.decode import decode_lax
from decodetop.core.regular import read_regular
from decodetop.errors import DataError
from decodetop.todo.document import Document, json_of, same, unnamed_document, with_ids
from decodetop.todo.model import Undo
from decodetop.todo.store import FILE_MAX_BYTES, FILE_NAME

SCHEMA = 1
KEPT = 20
ITEMS_KEPT = 5_000
"""Of all versions together: each edit keeps the whole list twice."""


class Past:
    """Of the checklist in `folder`. Every method blocks on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def record(self, before: Document, after: Document) -> None:
        """An edit was made. Raises DataError."""
        if not same(before.items, after.items):
            self.change(lambda undo: undo.record(before, after))

    def undo(self) -> Undo:
        """What there is to take back and to make again."""
        try:
            kept = decode_lax(read_regular(self._path, FILE_MAX_BYTES))
            done, undone = (tuple(map(_pair, kept[name])) for name in ("done", "undone"))
        except (OSError, ValueError, LookupError, TypeError):
            return Undo()
        return Undo(done=done, undone=undone)

    def change(self, change: Callable[[Undo], Undo]) -> None:
        """No other command comes between. Raises DataError, and what `change` raises; the file is intact then."""
        path = self._path
        with locked(path):
            self._refuse_newer()
            undo = change(self.undo())
            done, undone = list(undo.done[-KEPT:]), list(undo.undone[-KEPT:])
            while len(done) > 1 and sum(len(before.items) + len(after.items) for before, after in done) > ITEMS_KEPT:
                del done[0]
            kept = {"schema": SCHEMA, "done": [*map(_fields, done)], "undone": [*map(_fields, undone)]}
            replace(path, json.dumps(kept).encode(), durable=False)

    def _refuse_newer(self) -> None:
        try:
            schema = decode_lax(read_regular(self._path, FILE_MAX_BYTES)).get("schema")
        except (OSError, ValueError, AttributeError):
            return
        if isinstance(schema, int) and schema > SCHEMA:
            message = f"{self._path} has schema {schema}; this decodetop writes schema {SCHEMA} and leaves it alone"
            raise DataError(message, "a newer decodetop wrote it: use that one to take edits back")

    @property
    def _path(self) -> Path:
        target = real_path(self._folder / FILE_NAME)
        return target.with_name(f".{target.name}.undo")


def _pair(value: Any) -> tuple[Document, Document]:
    before, after = (with_ids(unnamed_document(one)) for one in value)
    return before, after


def _fields(pair: tuple[Document, Document]) -> list[Any]:
    return list(map(json_of, pair))
