"""The checklist's file: read whole, written whole, never lost.

Our own processes take turns by a lock. Another program's edit is seen because the file is read again right before it
is replaced: if it changed, the change is made anew on what it is now.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from decodetop.core.atomic import locked, real_path, replace, sweep, sync_folder, write_error
from decodetop.core.decode import decode_lax
from decodetop.core.regular import read_regular, size_words
from decodetop.errors import DataError
from decodetop.todo.document import (
    SCHEMA,
    Document,
    ShapeError,
    bytes_of,
    json_of,
    normalise,
    same,
    unnamed_document,
    with_ids,
)
from decodetop.todo.formats.todowrite import lists_in_text
from decodetop.todo.merge import heal, knows_nothing_else, likely_base, merge3

FILE_NAME = "todo.json"
FILE_MAX_BYTES = 64 << 20
"""A larger file is not a checklist."""
_TRIES = 30
"""How often an edit is made anew, or half a file read again, because another program keeps writing it."""


class BrokenFileError(DataError):
    """The file is there and is no checklist: `data` is what it holds."""

    def __init__(self, message: str, hint: str, data: bytes) -> None:
        super().__init__(message, hint)
        self.data = data


class NewerSchemaError(DataError):
    """A later decodetop wrote the file: it may be shown, not written."""


EARLIER_KEPT, EARLIER_ITEMS_KEPT = 16, 1_000
"""Versions remembered beside the file, and their items together: they are written anew with each edit."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What any decodetop wrote `last`, and the last list a `foreign` tool wrote before that; None = not known.

    `earlier` = what was written before, oldest first: another tool may have read one of them and write it back now.
    """

    last: Document | None = None
    foreign: Document | None = None
    earlier: tuple[Document, ...] = ()

    @property
    def all(self) -> tuple[Document, ...]:
        return tuple(one for one in (self.foreign, *self.earlier, self.last) if one is not None)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What one decodetop knows: the list that it and the file `agreed` on, the `foreign` one that is in it, what any
    decodetop had written `last` then, and the `versions` that the file was known to hold, oldest first.
    """

    agreed: Document
    foreign: Document | None
    last: Document | None
    versions: tuple[Document, ...]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds: `theirs`. `document` is that and what some tool that did not know of it had taken back.

    `whole` is False if the file does not hold all of the document: it is to be written even if nobody edits.
    `foreign` = the newest list that is in it of a tool that does not know our shape. `last` = what any decodetop had
    written last when it was read.
    """

    document: Document
    theirs: Document
    whole: bool = True
    foreign: Document | None = None
    last: Document | None = None


class TodoStore:
    """`read` and `update` block on the disk; they may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._memory_read: tuple[bytes, Memory] = b"", Memory()

    def read(self) -> Document:
        """What the file holds; empty if there is no file.

        Raises BrokenFileError if it is no checklist and DataError if it can't be read.
        """
        memory = self.memory()
        return self.parse(self._read_whole(), None, memory).document

    def read_bytes(self) -> bytes | None:
        """None if there is no file. Raises DataError."""
        try:
            return read_regular(self.path, FILE_MAX_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            hint = "check its permissions, or use another folder with --investigation DIR"
            raise DataError(f"can't read {self.path}: {error.strerror}", hint) from error

    def _read_whole(self) -> bytes | None:
        """Another program that writes the file in place is done with it some microseconds later."""
        for _ in range(_TRIES):
            data = self.read_bytes()
            if data is None or data.rstrip().endswith((b"}", b"]")):
                break
        return data

    def update(self, change: Callable[[Document], Document]) -> Document:
        """Put `change` of what the file holds in its place, and return that. `change` may be called several times.

        Raises DataError as `save` does; a broken file is copied aside and then BrokenFileError raised.
        """
        return self._put(lambda seen: change(seen.document), None, False)[0]

    def save(self, now: Document, known: Known | None, over_broken: bool = False) -> tuple[Document, Seen]:
        """Put what `now` has otherwise than `known.agreed` into what the file holds; return that and what it held.

        Nothing known: all of `now` is new to it. A broken file is copied aside first; then BrokenFileError is raised,
        or with `over_broken` what was agreed taken for its content. Raises DataError if the file can't be written, or
        has a schema this version does not write; the file is intact then.
        """
        agreed = known.agreed if known is not None else Document()
        return self._put(lambda seen: merge3(agreed, now, seen.document), known, over_broken)

    def _put(self, change: Callable[[Seen], Document], known: Known | None, over_broken: bool) -> tuple[Document, Seen]:
        target = real_path(self.path)
        with locked(target):
            sweep(target)
            sweep(self._memory_path)
            for _ in range(_TRIES):
                data = self._read_whole()
                seen = self._seen(data, known, over_broken)
                ours = change(seen)
                if seen.whole and same(ours.fields, seen.document.fields) and same(ours.items, seen.document.items):
                    return ours, seen
                self.refuse_newer(seen.theirs)
                written = bytes_of(ours)
                if len(written) > FILE_MAX_BYTES:
                    message = (
                        f"the checklist would be {size_words(len(written))} large, above {size_words(FILE_MAX_BYTES)}"
                    )
                    raise DataError(message, "nothing was changed: take fewer items")
                if replace(target, written, partial(self._holds, data)):
                    self._remember(ours, seen)
                    return ours, msgspec.structs.replace(seen, last=ours)
        raise DataError(f"{self.path} keeps changing under the edit", "another program rewrites it all the time")

    def keep_aside(self, data: bytes) -> Path:
        """A copy of a broken file's bytes beside it, durable; the copy that is there already if it is the same."""
        target = real_path(self.path)
        number = 1
        try:
            while (aside := target.with_name(f"{target.name}.broken-{number}")).exists():
                if read_regular(aside, FILE_MAX_BYTES) == data:
                    return aside
                number += 1
            replace(aside, data)
            sync_folder(aside.parent)
        except OSError as error:
            raise write_error(target, error) from error
        return aside

    def parse(self, data: bytes | None, known: Known | None = None, memory: Memory | None = None) -> Seen:
        """The document in the file's bytes (None = no file), seen against what is known; without the lock `memory` was
        read before them. Raises BrokenFileError.

        Decodetops take turns, so what any of them wrote last is all that they know together: tools that rewrite the
        list from their own memory are merged with that, and not with what one screen happened to read in between.
        """
        agreed = known.agreed if known is not None else Document()
        if data is None:  # gone from disk is not "all items removed": what was known of it is written again
            return _only(known, whole=not agreed.items)
        try:
            if not data.strip() and agreed.items:
                raise ShapeError("it is empty")  # another program is about to fill it, or was stopped before it did
            read = unnamed_document(_json(data)) if data.strip() else Document()
        except (ValueError, RecursionError) as error:
            hint = "mend the file, or move it away and `decodetop todo import` it: whole items are saved"
            raise BrokenFileError(f"{self.path} is not a checklist: {_reason(error)}", hint, data) from error
        memory = self.memory() if memory is None else memory
        if not data.strip() and memory.last is not None:  # as if it were gone: nobody meant that
            return Seen(document=memory.last, theirs=memory.last, whole=False, foreign=memory.foreign, last=memory.last)
        if not read.items:
            return Seen(document=read, theirs=read, last=memory.last)
        if known is None:
            seen = _seen_against(read, memory.all, memory.last, memory.foreign)
        elif memory.last is None or (known.last is not None and same(memory.last.items, known.last.items)):
            seen = _seen_against(read, (*memory.all, *known.versions), agreed, known.foreign)
        else:
            seen = _seen_against(read, (*known.versions, *memory.all), memory.last, memory.foreign)
        return msgspec.structs.replace(seen, last=memory.last)

    def memory(self) -> Memory:
        """What is known from earlier, also of other decodetops; a help, so its absence is no trouble."""
        try:
            data = read_regular(self._memory_path, 2 * FILE_MAX_BYTES)
            if data == self._memory_read[0]:
                return self._memory_read[1]
            kept = _json(data)
            last, foreign = (kept[name] and with_ids(unnamed_document(kept[name])) for name in ("last", "foreign"))
            earlier = tuple(with_ids(unnamed_document(one)) for one in kept.get("earlier", ()))
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return Memory()
        memory = Memory(last=last or None, foreign=foreign or None, earlier=earlier)
        self._memory_read = data, memory
        return memory

    def _remember(self, ours: Document, seen: Seen) -> None:
        memory = self.memory()
        earlier = [*memory.earlier, *([memory.last] if memory.last is not None else [])][-EARLIER_KEPT:]
        while earlier and sum(len(one.items) for one in earlier) > EARLIER_ITEMS_KEPT:
            del earlier[0]
        kept: dict[str, Any] = {name: one and json_of(one) for name, one in (("last", ours), ("foreign", seen.foreign))}
        kept["earlier"] = list(map(json_of, earlier))
        data = json.dumps(kept).encode()
        try:
            replace(self._memory_path, data, durable=False)
        except DataError:  # until another decodetop writes it, ours is the last all the same
            data = self._memory_read[0]
        self._memory_read = data, Memory(last=ours, foreign=seen.foreign, earlier=tuple(earlier))

    @property
    def _memory_path(self) -> Path:
        target = real_path(self.path)
        return target.with_name(f".{target.name}.last")

    def _seen(self, data: bytes | None, known: Known | None, over_broken: bool) -> Seen:
        try:
            return self.parse(data, known)
        except BrokenFileError as error:
            aside = self.keep_aside(error.data)
            if over_broken and known is not None:
                return _only(known, whole=False)
            hint = f"a copy is in {aside.name}; mend the file, or move it away and `decodetop todo import` the copy"
            raise BrokenFileError(error.message, hint, error.data) from error

    def _holds(self, data: bytes | None) -> bool:
        return self.read_bytes() == data

    def refuse_newer(self, theirs: Document) -> None:
        """Raises NewerSchemaError if a later decodetop wrote what was read."""
        schema = theirs.schema
        if schema != SCHEMA or isinstance(schema, bool):
            message = f"{self.path} has schema {schema!r}; this decodetop writes schema {SCHEMA} and leaves it alone"
            raise NewerSchemaError(message, "a newer decodetop wrote it: use that one, or another --investigation DIR")


def _only(known: Known | None, whole: bool) -> Seen:
    """Of a file that says nothing: what is known."""
    if known is None:
        return Seen(document=Document(), theirs=Document(), whole=whole)
    return Seen(document=known.agreed, theirs=known.agreed, whole=whole, foreign=known.foreign, last=known.last)


def _seen_against(
    read: Document, versions: Sequence[Document], last: Document | None, foreign: Document | None
) -> Seen:
    """`read` as what some program made of one of the versions, merged with the `last`, which `foreign` is a part of."""
    cold = with_ids(read)
    ours = "schema" in read.fields
    if not versions:
        return Seen(document=cold, theirs=cold, foreign=None if ours else cold)
    newest = last or versions[-1]
    from_memory = not ours and foreign is not None and knows_nothing_else(read, foreign, newest)
    base = foreign if from_memory and foreign is not None else likely_base(read, versions)
    theirs = heal(read, base, newest)
    document = theirs if last is None else merge3(base, last, theirs)
    whole = same(document.items, cold.items)
    return Seen(document=document, theirs=theirs, whole=whole, foreign=foreign if ours else theirs)


def _json(data: bytes) -> Any:
    return decode_lax(data.decode("utf-8-sig"))


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text at byte {error.start}"
    return str(error)


def salvaged(data: bytes) -> Document:
    """The whole items of a broken file, so that they can be shown."""
    found = lists_in_text(data.decode("utf-8", "replace"))
    if not found:
        return Document()
    longest = max(found, key=lambda one: len(one.entries))
    return with_ids(Document(items=tuple(map(normalise, longest.entries))))
