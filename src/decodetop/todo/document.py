"""The todo file as data: items are plain JSON objects, so that fields and values nobody here knows survive. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeGuard, TypeVar

import msgspec

SCHEMA = 1
"""Of the file `{"schema": 1, "next_id": N, "todos": [...]}`."""

Item = dict[str, Any]
"""One item as it stands in the file. After `document_of` it has a text `id`, `content` and `status`."""

TODOWRITE_FIELDS = frozenset({"id", "content", "status", "priority", "activeForm"})
"""What agents' todo tools write; one that rewrites a list drops every other field (reference: todo formats C1)."""

_CONTENT_ALIASES = ("content", "subject", "step", "title", "text", "task", "description", "name")
_STATUS_ALIASES = {
    "open": "pending",
    "todo": "pending",
    "not_started": "pending",
    "doing": "in_progress",
    "active": "in_progress",
    "done": "completed",
    "closed": "completed",
    "complete": "completed",
    "canceled": "cancelled",
    "deleted": "cancelled",
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
    "cancelled": "cancelled",
    "blocked": "blocked",
}
_PRIORITY_ALIASES = {"high": "high", "medium": "medium", "med": "medium", "low": "low"}
_OWN_ID = re.compile(r"t([1-9][0-9]{0,8})")

M = TypeVar("M", bound=Mapping[str, Any])


class ShapeError(ValueError):
    """JSON, but no list of items."""


class Document(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """`fields` is the top level without `todos`. Treated as immutable, items included: what is found out is kept."""

    fields: dict[str, Any] = {}
    items: tuple[Item, ...] = ()

    @property
    def schema(self) -> Any:
        return self.fields.get("schema", SCHEMA)

    @property
    def title(self) -> str | None:
        """What the list says it is about; the investigation's question, where there is one, comes first."""
        title = self.fields.get("title")
        return title if _is_text(title) else None

    @cached_property
    def next_id(self) -> int:
        """The number of the next own id; ids are never used again, so it is kept in the file."""
        kept = self.fields.get("next_id")
        floor = kept if isinstance(kept, int) and not isinstance(kept, bool) else 1
        return max([floor, *(number + 1 for number in map(_own_number, self.ids))])

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple(item["id"] for item in self.items)

    @cached_property
    def by_id(self) -> Mapping[str, Item]:
        """The first of each id, in order."""
        found: dict[str, Item] = {}
        for item in self.items:
            found.setdefault(item["id"], item)
        return found

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The items' contents, folded. Items need no ids for it."""
        return tuple(fold_content(item["content"]) for item in self.items)

    @cached_property
    def words_by_id(self) -> Mapping[str, str]:
        return dict(zip(self.ids, self.words, strict=True))

    def get(self, id: str) -> Item | None:
        return self.by_id.get(id)


def status_of(text: str) -> str:
    """A known status under its standard name; anything else verbatim."""
    return _STATUS_ALIASES.get(_status_key(text), text)


def is_known_status(text: str) -> bool:
    return _status_key(text) in _STATUS_ALIASES


def priority_of(text: str) -> str:
    return _PRIORITY_ALIASES.get(text.strip().lower(), text)


def fold_content(text: str) -> str:
    """What two contents are compared by: case and spacing don't tell items apart."""
    return " ".join(text.split()).casefold()


def list_of(parsed: Any) -> list[Any] | None:
    """The items of a JSON value: an array, or an object's `todos` or `plan`; None if it is neither."""
    if isinstance(parsed, list):
        return parsed
    if isinstance(parsed, dict):
        for key in ("todos", "plan"):
            if isinstance(parsed.get(key), list):
                return list(parsed[key])
    return None


def unnamed_document(parsed: Any) -> Document:
    """The document of a todo file's JSON, items in our shape but perhaps without an id. Raises ShapeError."""
    if isinstance(parsed, dict) and not {"todos", "plan"} & parsed.keys():
        return Document(fields=dict(parsed))
    entries = list_of(parsed)
    if entries is None:
        raise ShapeError('it holds no list of items, neither an array nor {"todos": [...]}')
    key = "todos" if isinstance(parsed, dict) and isinstance(parsed.get("todos"), list) else "plan"
    fields = {name: value for name, value in parsed.items() if name != key} if isinstance(parsed, dict) else {}
    return Document(fields=fields, items=tuple(map(normalise, entries)))


def document_of(parsed: Any) -> Document:
    """The same, every item under its own id: the same ids at each call. Raises ShapeError."""
    return with_ids(unnamed_document(parsed))


def normalise(entry: Any) -> Item:
    """A foreign item in our shape: `content` and `status` are text under their own names, the rest is untouched."""
    item: Item = dict(entry) if isinstance(entry, dict) else {"content": entry}
    if item.get("content", "") is None:
        del item["content"]
    named = next((name for name in _CONTENT_ALIASES if _is_text(item.get(name))), None)
    if not isinstance(item.get("content", ""), str):  # a number or a list is shown as it stands
        named = None
    content = item.pop(named) if named else item.pop("content", "")
    item.pop("content", None)
    item = {"content": content if isinstance(content, str) else json.dumps(content), **item}
    if named not in ("content", "description") and _is_text(item.get("description")) and "notes" not in item:
        item["notes"] = item.pop("description")
    status = item.get("status")
    for flag in ("done", "completed"):
        if status is None and isinstance(item.get(flag), bool):
            status = "completed" if item.pop(flag) else "pending"
    item["status"] = status_of(status) if isinstance(status, str) and status else "pending"
    if isinstance(item.get("priority"), str):
        item["priority"] = priority_of(item["priority"])
    if "id" in item:
        id = item.pop("id")
        if isinstance(id, int) and not isinstance(id, bool):
            id = str(id)
        if _is_text(id):
            item = {"id": id.strip(), **item}
    return item


def with_ids(document: Document) -> Document:
    """Every item under its own id: one that has none, or a second one of the same, gets the next own id."""
    taken: set[str] = set()
    unnamed: dict[int, None] = {}
    for place, item in enumerate(document.items):
        if "id" not in item or item["id"] in taken:
            unnamed[place] = None
        else:
            taken.add(item["id"])
    if not unnamed:
        return document
    items = list(document.items)
    named = Document(fields=document.fields, items=tuple(item for n, item in enumerate(items) if n not in unnamed))
    for number, place in enumerate(unnamed, named.next_id):
        items[place] = {"id": "", **items[place]} | {"id": f"t{number}"}
    return Document(fields=document.fields, items=tuple(items))


def json_of(document: Document) -> dict[str, Any]:
    """What the file holds, the schema number first."""
    known = {"schema": SCHEMA, "next_id": document.next_id}
    rest = {name: value for name, value in document.fields.items() if name not in known}
    return {**known, **rest, "todos": list(document.items)}


def bytes_of(document: Document) -> bytes:
    """The file's bytes: UTF-8, indented, one trailing newline."""
    whole = json_of(document)
    try:
        text = json.dumps(whole, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate came in as an escape: it goes out as one
        text = json.dumps(whole).encode()
    try:
        return msgspec.json.format(text, indent=2) + b"\n"
    except msgspec.DecodeError:  # NaN, which the standard library reads and writes
        return json.dumps(whole, indent=2).encode() + b"\n"


def tree(items: Sequence[M]) -> list[tuple[M, int]]:
    """Items with their depth, each child after its parent; a parent that is missing or a circle counts as none."""
    parents = parents_of(items)
    children: dict[str | None, list[M]] = {}
    for item in items:
        children.setdefault(parents[item["id"]], []).append(item)

    ordered: list[tuple[M, int]] = []
    stack = [(item, 0) for item in reversed(children.get(None, []))]
    while stack:
        item, depth = stack.pop()
        ordered.append((item, depth))
        stack += [(child, depth + 1) for child in reversed(children.get(item["id"], []))]
    return ordered


def parents_of(items: Iterable[Mapping[str, Any]]) -> dict[str, str | None]:
    """id -> the id of the parent that is in the list and does not lead back to the item."""
    wanted = {item["id"]: item.get("parent") for item in items}
    parents = {id: parent if isinstance(parent, str) and parent in wanted else None for id, parent in wanted.items()}
    settled: set[str | None] = {None}
    for id in parents:
        path: list[str] = []
        above: str | None = id
        while above is not None and above not in settled:
            if above in path:
                parents[above] = None
                break
            path.append(above)
            above = parents[above]
        settled.update(path)
    return parents


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: unlike `==`, 1, 1.0 and true differ."""
    if one is other:
        return True
    if one != other:
        return False
    try:
        return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
    except UnicodeEncodeError:  # half of a surrogate pair
        return canonical(one) == canonical(other)


def canonical(value: Any) -> str:
    """A text that is the same for equal JSON, whatever the order of its fields."""
    return json.dumps(value, sort_keys=True)


def _status_key(text: str) -> str:
    return text.strip().lower().replace("-", "_").replace(" ", "_")


def _own_number(id: str) -> int:
    match = _OWN_ID.fullmatch(id)
    return int(match[1]) if match else 0


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())
