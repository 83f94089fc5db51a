"""Merging a list that was read elsewhere into the checklist. Pure.

The same block a second time changes statuses only: agents print their whole list after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from decodetop.core.outside import plain
from decodetop.core.stamp import stamp_of
from decodetop.todo.document import Document, Item, fold_content
from decodetop.todo.formats.block import Block
from decodetop.todo.merge import similar


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """Ids of what an import did. `remarks` are the block's, and what was noticed on the way."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: int = 0
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        counts = f"{len(self.added)} added, {len(self.changed)} changed, {self.unchanged} as they were"
        return "; ".join((counts, *self.remarks))


def import_block(document: Document, block: Block, wall_ns: int) -> tuple[Document, Imported]:
    """Each item of the block is matched by id or uuid, else by content and its occurrence; the rest is added."""
    block = _worded(block)
    items = list(document.items)
    matches = _matches(document, block.items)
    next_id = document.next_id
    taken = set(document.ids)
    ids: list[str] = []
    added, changed, remarks = [], [], list(block.remarks)
    for entry, place in zip(block.items, matches, strict=True):
        if place is not None:
            ids.append(items[place]["id"])
            updated = _updated(items[place], entry, wall_ns)
            if updated is not items[place]:
                items[place] = updated
                changed.append(updated["id"])
            continue
        id = entry.get("id")
        if not id or id in taken:
            if id:
                remarks.append(f"id {id} is another item's here: imported as t{next_id}")
            id = f"t{next_id}"
        parent = _parent(block, ids)
        items.append(_added(entry, id, parent, wall_ns))
        ids.append(id)
        added.append(id)
        taken.add(id)
        next_id = Document(fields={"next_id": next_id}, items=(items[-1],)).next_id
    if block.passed:
        lines = (
            "1 line is no item and was"
            if len(block.passed) == 1
            else f"{len(block.passed)} lines are no items and were"
        )
        remarks.append(f"{lines} left out: {plain(block.passed[0])[:60]}")
    fields = {**document.fields, "next_id": next_id} if added else document.fields
    report = Imported(
        added=tuple(added),
        changed=tuple(changed),
        unchanged=len(block.items) - len(added) - len(changed),
        remarks=tuple(remarks),
    )
    return Document(fields=fields, items=tuple(items)), report


def _worded(block: Block) -> Block:
    """Without entries that have no words: nothing could tell such an item from the next."""
    kept = [at for at, item in enumerate(block.items) if item["content"].strip()]
    left_out = len(block.items) - len(kept)
    if not left_out:
        return block
    words = "1 item has no words and was" if left_out == 1 else f"{left_out} items have no words and were"
    return msgspec.structs.replace(
        block,
        items=tuple(block.items[at] for at in kept),
        depths=tuple(block.depths[at] for at in kept),
        remarks=(*block.remarks, f"{words} left out"),
    )


def _matches(document: Document, entries: Sequence[Item]) -> list[int | None]:
    """For each entry the place of the item it is, or None."""
    free = dict(enumerate(document.items))
    found: list[int | None] = [None] * len(entries)

    def settle(name: Callable[[Item], Any], accept: Callable[[Item, Item], bool] = lambda entry, item: True) -> None:
        named: dict[Any, list[int]] = {}
        for place, item in free.items():
            named.setdefault(name(item), []).append(place)
        for number, entry in enumerate(entries):
            places = named.get(name(entry)) if found[number] is None and name(entry) else None
            if places and accept(entry, document.items[places[0]]):
                found[number] = place = places.pop(0)
                del free[place]

    settle(lambda item: item.get("id") and (item["id"], _words(item)))
    settle(lambda item: isinstance(item.get("uuid"), str) and item["uuid"])
    settle(_words)
    settle(lambda item: item.get("id"), similar)
    return found


def _words(item: Item) -> str:
    return fold_content(item["content"])


def _updated(item: Item, entry: Item, wall_ns: int) -> Item:
    changes: Item = {}
    if _words(entry) != _words(item):
        changes["content"] = entry["content"]
    if entry["status"] != item["status"]:
        history = item.get("status_history")
        stamp = {"status": entry["status"], "at": stamp_of(wall_ns)}
        changes["status"] = entry["status"]
        changes["status_history"] = [*(history if isinstance(history, list) else []), stamp]
    return {**item, **changes} if changes else item


def _added(entry: Item, id: str, parent: str | None, wall_ns: int) -> Item:
    item = {"id": id, **{name: value for name, value in entry.items() if name not in ("id", "parent")}}
    if parent is not None:
        item["parent"] = parent
    if not isinstance(item.get("status_history"), list):
        item["status_history"] = [{"status": item["status"], "at": stamp_of(wall_ns)}]
    return item


def _parent(block: Block, ids: Sequence[str]) -> str | None:
    """The id here of the parent of the block's next entry: the last one less deep, or the one it names."""
    number = len(ids)
    named = block.items[number].get("parent")
    if isinstance(named, str):
        return next((ids[n] for n in range(number) if block.items[n].get("id") == named), named)
    depth = block.depths[number]
    return next((ids[n] for n in reversed(range(number)) if block.depths[n] < depth), None) if depth else None
