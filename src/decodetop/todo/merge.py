"""Three-way merge of two lists that come from one, item by item and field by field. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from decodetop.todo.document import TODOWRITE_FIELDS, Document, Item, canonical, fold_content, same, with_ids

_ABSENT: Any = object()
SIMILAR = 0.6
"""The ratio of common text (difflib) from which on a changed content is taken for an edit."""
HEAD = 400
"""Characters of two contents that are compared."""
_DROPPED, _UNKNOWN = 2, 5


def merge3(base: Document, ours: Document, theirs: Document, *, note_conflicts: bool = True) -> Document:
    """What both sides changed, together. An edit wins over a removal; where both changed one field, ours stands and
    theirs is kept in the item's `conflicts`. A new item of ours whose id theirs gave to another item is renamed.
    """
    ours = renamed(ours, renames(base, ours, theirs))
    old, mine, other = base.by_id, ours.by_id, theirs.by_id
    merged: dict[str, Item] = {}
    for id in {**mine, **other}:
        before, here, there = old.get(id), mine.get(id), other.get(id)
        if here is not None and there is not None:
            merged[id] = _item(before or {}, here, there, note_conflicts)
        elif before is None or not same(here or there, before):
            kept = here if here is not None else there
            assert kept is not None
            merged[id] = kept
    order = _order(base.ids, ours.ids, theirs.ids, merged)
    fields = dict(_item(base.fields, ours.fields, theirs.fields, False))
    if len({base.next_id, ours.next_id, theirs.next_id}) > 1 or "next_id" in fields:
        fields["next_id"] = max(ours.next_id, theirs.next_id, base.next_id)
    return Document(fields=fields, items=tuple(merged[id] for id in order))


def heal(theirs: Document, base: Document, newest: Document | None = None) -> Document:
    """What was read (ids may be missing), seen against the version it was made from: a tool that rewrites the list
    with its own fields only, or without ids, means the items it names by content, and has not taken the other fields
    away. Words that only the newest version knows name its item.
    """
    newest = newest or Document()
    known = {**newest.by_id, **base.by_id}
    named = _identified(theirs, {**newest.words_by_id, **base.words_by_id}, max(base.next_id, newest.next_id))
    items = []
    for item, read in zip(named.items, theirs.items, strict=True):
        twin = known.get(item["id"])
        foreign = "id" not in read or read.keys() <= TODOWRITE_FIELDS
        if foreign and twin is not None and similar(twin, item):
            whole = {**twin, **item}
            item = twin if same(twin, whole) else whole
        items.append(item)
    fields = theirs.fields if "schema" in theirs.fields else {**base.fields, **theirs.fields}
    return Document(fields=fields, items=tuple(items))


def likely_base(theirs: Document, versions: Sequence[Document]) -> Document:
    """The version (oldest first, at least one) that `theirs`, as read, was most likely made from.

    An editor's open buffer and an agent that rewrites its whole list don't know what was written since they read the
    file; measured against the newest version they would seem to take all of that back. The nearest version is the
    base; the newest of equals, or if it shares no item with any. A file of our own shape that is an older version to
    the letter was put back on purpose.
    """
    newest = versions[-1]
    if "schema" in theirs.fields and any(_distance(with_ids(theirs), version) == 0 for version in versions):
        return newest
    numbered = theirs.fields.get("next_id")
    nearest, least = newest, None
    for version in reversed(versions):
        read = heal(theirs, version)
        later = _UNKNOWN if numbered is not None and numbered != version.next_id else 0
        distance = _distance(read, version) + later
        if (least is None or distance < least) and not version.by_id.keys().isdisjoint(read.ids):
            nearest, least = version, distance
            if least == 0:
                break
    return nearest


def knows_nothing_else(theirs: Document, before: Document, newest: Document) -> bool:
    """Whether `theirs`, as read, holds nothing of `newest` that was not in the list `before` it: an agent goes on with
    its own list and has not looked at ours since.
    """
    else_known = newest.by_id.keys() - before.by_id.keys()
    return else_known.isdisjoint(heal(theirs, before, newest).ids)


def similar(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two contents under one id are one item, edited: agents begin each new plan with id 1 again."""
    same_words: bool = one["content"] == other["content"]
    return same_words or _alike(fold_content(one["content"]), fold_content(other["content"]))


@lru_cache(maxsize=1024)
def _alike(one: str, other: str) -> bool:
    """What both begin and end with is enough where that is most of them; else their heads, for the comparison takes the
    product of the lengths: 8 kB against 8 kB, 7 s.
    """
    most = min(len(one), len(other))
    before = next((at for at in range(most) if one[at] != other[at]), most)
    behind = next((at for at in range(most - before) if one[-1 - at] != other[-1 - at]), most - before)
    if 2 * (before + behind) >= SIMILAR * (len(one) + len(other)):
        return True
    return SequenceMatcher(None, one[:HEAD], other[:HEAD], autojunk=False).ratio() >= SIMILAR


def _distance(theirs: Document, version: Document) -> int:
    """How far `theirs` is from `version`, in fields: what it holds that the version did not know weighs most."""
    left = dict(version.by_id)
    unknown = 0
    differing = 0
    for item in theirs.items:
        twin = left.pop(item["id"], None)
        if twin is None:
            unknown += 1
        elif item != twin:
            differing += sum(item.get(name) != twin.get(name) for name in {**item, **twin})
    return differing + _DROPPED * len(left) + _UNKNOWN * unknown


def _identified(theirs: Document, known: Mapping[str, str], next_id: int) -> Document:
    """`known` = the words of the items that there are, by id."""
    free: dict[str, list[str]] = {}
    taken = {item["id"] for item in theirs.items if "id" in item}
    for id, words in known.items():
        if id not in taken:
            free.setdefault(words, []).append(id)
    items: list[Item] = []
    for item, words in zip(theirs.items, theirs.words, strict=True):
        same_words = free.get(words)
        items.append({"id": same_words.pop(0), **item} if "id" not in item and same_words else item)
    next_id = max(next_id, Document(items=tuple(item for item in items if "id" in item)).next_id)
    named = with_ids(Document(fields={**theirs.fields, "next_id": next_id}, items=tuple(items)))
    return Document(fields=theirs.fields, items=named.items)


def renames(base: Document, ours: Document, theirs: Document) -> dict[str, str]:
    """Fresh ids that a merge gives to new items of ours whose id is another new item's in theirs."""
    old = base.by_id
    clash = [
        item["id"]
        for item in ours.items
        if item["id"] in theirs.by_id
        and item["id"] not in old
        and fold_content(item["content"]) != fold_content(theirs.by_id[item["id"]]["content"])
    ]
    first = max(base.next_id, ours.next_id, theirs.next_id)
    return {id: f"t{number}" for number, id in enumerate(clash, first)}


def renamed(document: Document, fresh: Mapping[str, str]) -> Document:
    """With these ids, also where an item names another one."""
    if not fresh:
        return document
    return Document(fields=document.fields, items=tuple(_redirected(item, fresh) for item in document.items))


def _redirected(item: Item, fresh: Mapping[str, str]) -> Item:
    item = {**item, "id": fresh.get(item["id"], item["id"])}
    if isinstance(item.get("parent"), str):
        item["parent"] = fresh.get(item["parent"], item["parent"])
    if isinstance(item.get("blocked_by"), list):
        item["blocked_by"] = [fresh.get(id, id) if isinstance(id, str) else id for id in item["blocked_by"]]
    return item


def _item(base: Item, ours: Item, theirs: Item, note: bool) -> Item:
    if same(theirs, ours) or same(theirs, base):
        return ours
    merged: Item = {}
    conflicts: list[Item] = []
    for name in {**ours, **theirs}:
        before, here, there = (side.get(name, _ABSENT) for side in (base, ours, theirs))
        value = _value(before, here, there)
        if value is not _ABSENT:
            merged[name] = value
        if value is here and there is not _ABSENT and not same(here, there) and not same(there, before):
            conflicts.append({"field": name, "theirs": there})
    if note and conflicts:
        kept = merged.get("conflicts")
        kept = list(kept) if isinstance(kept, list) else []
        merged["conflicts"] = kept + [entry for entry in conflicts if not _within(entry, kept)]
    return merged


def _value(before: Any, here: Any, there: Any) -> Any:
    if same(here, there) or same(there, before):
        return here
    if same(here, before) or here is _ABSENT:
        return there
    if there is _ABSENT:
        return here
    if isinstance(here, list) and isinstance(there, list):
        return _list(before if isinstance(before, list) else [], here, there)
    return here


def _list(before: list[Any], here: list[Any], there: list[Any]) -> list[Any]:
    """What neither side took away, in their order, then what we added. Equal entries are told apart by their number."""
    counts = [Counter(map(canonical, entries)) for entries in (before, here, there)]
    left = {entry: _count(*(count[entry] for count in counts)) for entry in {**counts[1], **counts[2]}}
    merged = []
    for entry in (*there, *here):
        if left[canonical(entry)] > 0:
            left[canonical(entry)] -= 1
            merged.append(entry)
    return merged


def _count(before: int, here: int, there: int) -> int:
    """How often an entry stays: as the side that changed it says; the same change on both sides counts once."""
    if here >= before and there >= before:
        return max(here, there)
    if here <= before and there <= before:
        return min(here, there)
    return here + there - before


def _order(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str], kept: Mapping[str, Any]) -> list[str]:
    """Ours if it moved items, else theirs; the other side's new items after the neighbour they were put behind."""
    lead, other = (ours, theirs) if _moved(base, ours) else (theirs, ours)
    order = [id for id in lead if id in kept]
    placed, passed = set(order), {*base, *other}
    before: str | None = None
    for id in other:
        if id in kept and id not in placed:
            place = order.index(before) + 1 if before in placed else 0
            while place < len(order) and order[place] not in passed:
                place += 1
            order.insert(place, id)
            placed.add(id)
        before = id if id in kept else before
    return order


def _moved(base: Sequence[str], side: Sequence[str]) -> bool:
    present, old = set(side), set(base)
    return [id for id in base if id in present] != [id for id in side if id in old]


def _within(entry: Any, entries: Sequence[Any]) -> bool:
    return any(same(entry, one) for one in entries)
