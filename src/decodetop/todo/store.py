"""The checklist's file: read whole, written whole, never lost.

Our own processes take turns by a lock. Another program's edit is seen because the file is read again right before it
is replaced: if it changed, the change is made anew on what it is now.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from decodetop.errors import DataError
from decodetop.todo.atomic import locked, real_path, replace, sweep, sync_folder, write_error
from decodetop.todo.document import SCHEMA, Document, ShapeError, bytes_of, same, unnamed_document, with_ids
from decodetop.todo.merge import heal

FILE_NAME = "todo.json"
FILE_MAX_BYTES = 64 << 20
"""A larger file is not a checklist."""
_TRIES = 50
"""How often an edit is made anew because the file keeps changing under it."""


class BrokenFileError(DataError):
    """The file is there and is no checklist: `data` is what it holds."""

    def __init__(self, message: str, hint: str, data: bytes) -> None:
        super().__init__(message, hint)
        self.data = data


class TodoStore:
    """`read` and `update` block on the disk; they may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME

    def read(self, base: Document | None = None) -> Document:
        """What the file holds, seen against `base` (what was known of it before); empty if there is no file.

        Raises BrokenFileError if it is no checklist and DataError if it can't be read.
        """
        return self._parsed(self.read_bytes(), base)

    def read_bytes(self) -> bytes | None:
        """None if there is no file. Raises DataError."""
        try:
            with self.path.open("rb") as file:
                data = file.read(FILE_MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            hint = "check its permissions, or use another folder with --investigation DIR"
            raise DataError(f"can't read {self.path}: {error.strerror}", hint) from error
        if len(data) > FILE_MAX_BYTES:
            raise DataError(f"{self.path} is larger than {FILE_MAX_BYTES >> 20} MiB", "that is not a checklist")
        return data

    def update(
        self,
        change: Callable[[Document], Document],
        base: Document | None = None,
        *,
        over_broken: Document | None = None,
    ) -> Document:
        """Put `change` of what the file holds in its place, and return that. `change` may be called several times.

        A broken file is copied aside first; then BrokenFileError is raised, or `over_broken` taken for its content.
        Raises DataError if it can't be written, or has a schema this version does not write; the file is intact then.
        """
        target = real_path(self.path)
        with locked(target):
            sweep(target)
            for _ in range(_TRIES):
                data = self.read_bytes()
                theirs, whole = self._theirs(target, data, base, over_broken)
                ours = change(theirs)
                if whole and same(ours.fields, theirs.fields) and same(ours.items, theirs.items):
                    return ours
                self._refuse_newer(theirs)
                if replace(target, bytes_of(ours), lambda seen=data: self.read_bytes() == seen):  # type: ignore[misc]
                    return ours
        raise DataError(f"{self.path} keeps changing under the edit", "another program rewrites it all the time")

    def keep_aside(self, data: bytes) -> Path:
        """A copy of a broken file's bytes beside it, durable; the copy that is there already if it is the same."""
        target = real_path(self.path)
        number = 1
        try:
            while (aside := target.with_name(f"{target.name}.broken-{number}")).exists():
                if aside.read_bytes() == data:
                    return aside
                number += 1
            replace(aside, data)
            sync_folder(aside.parent)
        except OSError as error:
            raise write_error(target, error) from error
        return aside

    def _theirs(
        self, target: Path, data: bytes | None, base: Document | None, over_broken: Document | None
    ) -> tuple[Document, bool]:
        """What the file holds, and whether that is all of it."""
        try:
            return self._parsed(data, base), data is not None
        except BrokenFileError as error:
            aside = self.keep_aside(error.data)
            if over_broken is not None:
                return over_broken, False
            hint = f"a copy is in {aside.name}; mend the file, or move it away and `decodetop todo import` the copy"
            raise BrokenFileError(error.message, hint, error.data) from error

    def _parsed(self, data: bytes | None, base: Document | None) -> Document:
        if data is None:  # gone from disk is not "all items removed": what was known of it is written again
            return base or Document()
        try:
            if not data.strip() and base is not None and base.items:
                raise ShapeError("it is empty")  # another program is about to fill it, or was stopped before it did
            read = unnamed_document(_json(data)) if data.strip() else Document()
        except (ValueError, RecursionError) as error:
            hint = "mend the file, or move it away and `decodetop todo import` it: whole items are saved"
            raise BrokenFileError(f"{self.path} is not a checklist: {_reason(error)}", hint, data) from error
        return with_ids(read) if base is None else heal(read, base)

    def _refuse_newer(self, theirs: Document) -> None:
        schema = theirs.schema
        if schema != SCHEMA or isinstance(schema, bool):
            message = f"{self.path} has schema {schema!r}; this decodetop writes schema {SCHEMA} and leaves it alone"
            raise DataError(message, "a newer decodetop wrote it: use that one, or another --investigation DIR")


def _json(data: bytes) -> Any:
    return json.loads(data.decode("utf-8-sig"))


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text at byte {error.start}"
    if isinstance(error, ShapeError):
        return str(error)
    return "its JSON is nested too deeply" if isinstance(error, RecursionError) else f"{error}"
