"""From an item of the file to what panes and reports see. Pure; a field of an odd shape stays in `extra`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from decodetop.core.encode import encodable
from decodetop.core.stamp import wall_ns_of
from decodetop.todo.document import tree
from decodetop.todo.reading import CLOSED, Attempt, Evidence, StatusChange, Todo

_TEXTS = ("notes", "hypothesis", "expected", "reason", "parent")
_LISTS = ("blocked_by", "attempts", "evidence", "status_history", "conflicts")
_SHOWN_CHARACTERS = 60


def todos_of(items: Sequence[Mapping[str, Any]]) -> tuple[Todo, ...]:
    """All items in tree order."""
    todos = tuple(todo_of(item, depth) for item, depth in tree(items))
    open_ids = {todo.id for todo in todos if todo.status not in CLOSED}
    return tuple(
        msgspec.structs.replace(todo, blocked=True) if open_ids.intersection(todo.blocked_by) else todo
        for todo in todos
    )


def todo_of(item: Mapping[str, Any], depth: int = 0) -> Todo:
    """`item` has an id, content and status."""
    item = encodable(item)
    known: dict[str, Any] = {name: item[name] for name in _TEXTS if isinstance(item.get(name), str) and item[name]}
    priority = item.get("priority")
    if isinstance(priority, (str, int, float)) and not isinstance(priority, bool) and priority != "":
        known["priority"] = str(priority)
    for name in _LISTS:
        if isinstance(item.get(name), list):
            seen = tuple(_ENTRIES[name](entry) for entry in item[name])
            if None not in seen:
                known[name] = seen
    if "status_history" in known:
        known["status_history"] = tuple(sorted(known["status_history"], key=lambda change: change.wall_ns))
    shown = {"id", "content", "status", *known}
    extra = {name: value for name, value in item.items() if name not in shown and value is not None}
    return Todo(id=item["id"], content=item["content"], status=item["status"], depth=depth, extra=extra, **known)


def _id(entry: Any) -> str | None:
    return entry if isinstance(entry, str) else None


def _attempt(entry: Any) -> Attempt | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("change"), str):
        return None
    links = entry.get("links")
    return Attempt(
        change=entry["change"],
        outcome=str(entry.get("outcome") or "unknown"),
        reason=_id(entry.get("reason")),
        links=tuple(link for link in links if isinstance(link, str)) if isinstance(links, list) else (),
        wall_ns=wall_ns_of(entry.get("at")),
    )


def _evidence(entry: Any) -> Evidence | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("ref"), (str, int)):
        return None
    return Evidence(
        kind=str(entry.get("kind") or "note"),
        ref=str(entry["ref"]),
        summary=_id(entry.get("summary")),
        wall_ns=wall_ns_of(entry.get("at")),
    )


def _change(entry: Any) -> StatusChange | None:
    wall_ns = wall_ns_of(entry.get("at")) if isinstance(entry, dict) else None
    if wall_ns is None or not isinstance(entry.get("status"), str):
        return None
    return StatusChange(status=entry["status"], wall_ns=wall_ns)


def _conflict(entry: Any) -> str | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("field"), str):
        return None
    wanted = entry.get("theirs")
    text = wanted if isinstance(wanted, str) else json.dumps(wanted)
    return f"{entry['field']}: {text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + '…'}"


_ENTRIES: Mapping[str, Any] = {
    "blocked_by": _id,
    "attempts": _attempt,
    "evidence": _evidence,
    "status_history": _change,
    "conflicts": _conflict,
}
