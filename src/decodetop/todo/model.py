"""Edits of the checklist: each takes a document and gives the next one. Pure; the caller brings the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from decodetop.core.stamp import stamp_of
from decodetop.errors import UsageError
from decodetop.todo.document import Document, Item, parents_of, status_of, tree
from decodetop.todo.merge import merge3, renamed
from decodetop.todo.reading import CLOSED, AddAttempt, AddEvidence, AddTodo, EditTodo, MoveTodo

UNDO_DEPTH = 100
WORDS_SHOWN = 48
"""Characters of an item's words within a message."""
_REQUIRED = ("content", "status")


def add(document: Document, command: AddTodo, wall_ns: int) -> tuple[Document, str]:
    """The document with the new item, and its id. Raises UsageError if it has no words."""
    id = f"t{document.next_id}"
    near = document.get(command.after_id) if command.after_id else None
    parent = command.parent if command.parent is not None else (near or {}).get("parent")
    status = status_of(command.status)
    item: Item = {"id": id, "content": one_line(command.content), "status": status}
    optional = {
        "priority": command.priority,
        "notes": command.notes,
        "hypothesis": command.hypothesis,
        "expected": command.expected,
        "parent": parent,
    }
    item |= {name: value for name, value in optional.items() if value}
    if command.evidence:
        item["evidence"] = [_linked(one.kind, one.ref, one.summary, wall_ns) for one in command.evidence]
    item["status_history"] = [{"status": status, "at": stamp_of(wall_ns)}]
    items = [*document.items, item]
    if near is not None:
        ordered = tree(document.items)
        items = [old for old, _ in ordered]
        items.insert(_behind(ordered, near["id"]), item)
    fields = {**document.fields, "next_id": document.next_id + 1}
    return Document(fields=fields, items=tuple(items)), id


def edit(document: Document, command: EditTodo, wall_ns: int) -> Document:
    """Raises UsageError for an unknown id, or for taking away what an item must have."""
    item = item_of(document, command.id)
    wanted = {name: getattr(command, name) for name in command.__struct_fields__ if name != "id"}
    changes: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    if "content" in changes:
        changes["content"] = one_line(changes["content"])
    if "status" in changes:
        changes["status"] = status_of(changes["status"])
        if not changes["status"]:
            raise UsageError("an item's status can't be empty", "use pending, in_progress, completed or cancelled")
        if changes["status"] != item["status"]:
            stamp = {"status": changes["status"], "at": stamp_of(wall_ns)}
            changes["status_history"] = [*_entries(item, "status_history"), stamp]
    if "blocked_by" in changes:
        changes["blocked_by"] = [item_of(document, id)["id"] for id in dict.fromkeys(changes["blocked_by"])]
        if command.id in changes["blocked_by"]:
            raise UsageError("an item can't wait for itself", "name another one")
    if "parent" in changes:
        if changes["parent"]:
            _refuse_circle(document, command.id, changes["parent"])
        # in tree order it stays about where it was seen
        document = Document(fields=document.fields, items=tuple(item for item, _ in tree(document.items)))
    if isinstance(item.get("conflicts"), list):
        changes["conflicts"] = [
            entry for entry in item["conflicts"] if not (isinstance(entry, dict) and entry.get("field") in changes)
        ]
    return _replaced(document, _applied(item, changes))


def attempt(document: Document, command: AddAttempt, wall_ns: int) -> Document:
    """Raises UsageError for an unknown id."""
    entry = {"at": stamp_of(wall_ns), "change": one_line(command.change), "outcome": command.outcome}
    entry |= {"reason": command.reason} if command.reason else {}
    tail = {"links": list(command.links)} if command.links else {}
    return _appended(document, command.id, "attempts", entry | tail)


def evidence(document: Document, command: AddEvidence, wall_ns: int) -> Document:
    """The same thing linked a second time changes nothing. Raises UsageError for an unknown id."""
    id = command.id if command.id is not None else next(iter(in_progress(document)), None)
    if id is None:
        return document
    entry = _linked(command.kind, command.ref, command.summary, wall_ns)
    for old in _entries(item_of(document, id), "evidence"):
        if isinstance(old, dict) and (old.get("kind"), old.get("ref")) == (command.kind, command.ref):
            return document
    return _appended(document, id, "evidence", entry)


def _linked(kind: str, ref: str, summary: str | None, wall_ns: int) -> Item:
    return {"at": stamp_of(wall_ns), "kind": kind, "ref": ref} | ({"summary": summary} if summary else {})


def move(document: Document, command: MoveTodo) -> Document:
    """Past `by` siblings, as far as there are any. Raises UsageError for an unknown id."""
    item_of(document, command.id)
    parents = parents_of(document.items)
    siblings = [item["id"] for item, _ in tree(document.items) if parents[item["id"]] == parents[command.id]]
    place = siblings.index(command.id)
    target = min(max(place + command.by, 0), len(siblings) - 1)
    if target == place:
        return document
    siblings.insert(target, siblings.pop(place))
    known = {item["id"]: item for item in document.items}
    queue = iter([known[id] for id in siblings])
    moving = set(siblings)
    moved = [next(queue) if item["id"] in moving else item for item in document.items]
    return Document(fields=document.fields, items=tuple(item for item, _ in tree(moved)))


def restore(document: Document, item: Item) -> Document:
    """Put an item that is gone back at the end; one that is there stays as it is."""
    if document.get(item["id"]) is not None:
        return document
    return Document(fields=document.fields, items=(*document.items, item))


def in_progress(document: Document) -> tuple[str, ...]:
    """Ids of the items in progress; more than one is allowed but worth a word."""
    return tuple(item["id"] for item in document.items if item["status"] == "in_progress")


def closed_without_why(item: Mapping[str, Any]) -> bool:
    """Closed, and nothing says what came of it."""
    return item["status"] in CLOSED and not says_what_came(item) and not item.get("notes")


def says_what_came(item: Mapping[str, Any]) -> bool:
    """Evidence, an attempt or a reason: what an item should have when it is closed."""
    return any(item.get(name) for name in ("evidence", "attempts", "reason"))


def item_of(document: Document, id: str) -> Item:
    """Raises UsageError if there is none."""
    item = document.get(id)
    if item is None:
        raise UsageError(f"no item {id!r} in the checklist", "`decodetop todo` lists the items with their ids")
    return item


def one_line(text: str) -> str:
    """Raises UsageError if there are no words in it."""
    line = " ".join(text.split())
    if not line:
        raise UsageError("an item needs words", 'for example: decodetop todo add "profile one decode step"')
    return line


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """Edits made here, as (before, after). Taking one back is a merge, so edits made elsewhere since then stay."""

    done: tuple[tuple[Document, Document], ...] = ()
    undone: tuple[tuple[Document, Document], ...] = ()

    def record(self, before: Document, after: Document) -> Undo:
        return Undo(done=(*self.done[-(UNDO_DEPTH - 1) :], (before, after)))

    def renamed(self, fresh: Mapping[str, str]) -> Undo:
        """Of items that got other ids, since another decodetop had given theirs away in the meantime."""
        done, undone = (
            tuple((renamed(before, fresh), renamed(after, fresh)) for before, after in pairs)
            for pairs in (self.done, self.undone)
        )
        return Undo(done=done, undone=undone) if fresh else self

    def undo(self, now: Document) -> tuple[Undo, Document]:
        """Nothing to take back: `now` as it is."""
        if not self.done:
            return self, now
        before, after = self.done[-1]
        back = Undo(done=self.done[:-1], undone=(*self.undone, (before, after)))
        return back, merge3(after, now, before, note_conflicts=False)

    def redo(self, now: Document) -> tuple[Undo, Document]:
        if not self.undone:
            return self, now
        before, after = self.undone[-1]
        again = Undo(done=(*self.done, (before, after)), undone=self.undone[:-1])
        return again, merge3(before, now, after, note_conflicts=False)


def words_of(document: Document, id: str) -> str:
    """The item's own words, cut to fit a line; its id when it is not there."""
    item = document.get(id)
    content = id if item is None else " ".join(str(item.get("content", id)).split())
    return content if len(content) <= WORDS_SHOWN else f"{content[: WORDS_SHOWN - 1]}…"


def difference(before: Document, after: Document) -> str:
    """What the second has otherwise than the first, in a line: items by their words, and their status."""
    was = {item["id"]: item for item in before.items}
    now = {item["id"]: item for item in after.items}
    parts = [f"{words_of(after, id)} is back" for id in now if id not in was]
    parts += [f"{words_of(before, id)} is gone" for id in was if id not in now]
    for id in (id for id in now if id in was and was[id] != now[id]):
        fields = sorted(name for name in {*was[id], *now[id]} if was[id].get(name) != now[id].get(name))
        told = f"is {now[id].get('status')} again" if "status" in fields else f"has its {', '.join(fields)} as then"
        parts.append(f"{words_of(after, id)} {told}")
    if not parts:
        return "the order of the items" if list(was) != list(now) else "nothing, an edit made elsewhere stands"
    return "; ".join(parts[:2]) + (f" and {len(parts) - 2} more" if len(parts) > 2 else "")


def _refuse_circle(document: Document, id: str, parent: str) -> None:
    """Raises UsageError if the item stands above its new parent, or there is no such parent."""
    above: str | None = item_of(document, parent)["id"]
    parents = parents_of(document.items)
    while above is not None:
        if above == id:
            raise UsageError(f"{words_of(document, id)} can't be a part of its own part", "name another item")
        above = parents[above]


def _behind(ordered: Sequence[tuple[Item, int]], id: str) -> int:
    """The place behind an item and all below it, of items in tree order."""
    place = next(place for place, (item, _) in enumerate(ordered) if item["id"] == id)
    depth = ordered[place][1]
    return next((later for later in range(place + 1, len(ordered)) if ordered[later][1] <= depth), len(ordered))


def _applied(item: Item, changes: Mapping[str, Any]) -> Item:
    kept = {**item, **changes}
    return {name: value for name, value in kept.items() if name not in changes or value or name in _REQUIRED}


def _appended(document: Document, id: str, name: str, entry: Item) -> Document:
    item = item_of(document, id)
    return _replaced(document, {**item, name: [*_entries(item, name), entry]})


def _entries(item: Mapping[str, Any], name: str) -> list[Any]:
    """A list field; what stands there in another shape is kept as its first entry."""
    value = item.get(name)
    return value if isinstance(value, list) else [] if value is None else [value]


def _replaced(document: Document, item: Item) -> Document:
    items = tuple(item if old["id"] == item["id"] else old for old in document.items)
    return Document(fields=document.fields, items=items)
