"""Taskwarrior's export: a JSON array, or one object a line in old versions. Pure.

`id` and `urgency` are derived and change, so an item's identity is its `uuid`. Fields we don't know are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from decodetop.todo.document import Item, tree
from decodetop.todo.formats.block import Block
from decodetop.todo.formats.todowrite import lists_in_text

_PRIORITY_OF = {"H": "high", "M": "medium", "L": "low"}
_LETTER_OF = {priority: letter for letter, priority in _PRIORITY_OF.items()}
_STATUS_OF = {"deleted": "cancelled"}
_STARTED = "in_progress"
"""The tag of an item in progress whose start nobody wrote down: `start` needs a time."""
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)")
_OWN_FIELDS = {
    "id", "content", "notes", "status_history", "attempts", "evidence", "conflicts", "hypothesis", "expected",
    "reason", "parent", "blocked_by", "description", "status", "priority",
}  # fmt: skip


def parse(text: str) -> Block | None:
    """None if there is no task in the text."""
    entries = [entry for found in lists_in_text(text) for entry in found.entries if is_task(entry)]
    if not entries:
        return None
    items = tuple(map(_item_of, entries))
    return Block(format="taskwarrior", items=items, depths=(0,) * len(items))


def render(items: Sequence[Mapping[str, Any]]) -> str:
    """For `task import`. A field of ours that Taskwarrior has no word for is left out, notes become annotations."""
    tasks = [_task_of(item) for item, _ in tree(items)]
    return json.dumps(tasks, indent=1, ensure_ascii=False) + "\n"


def is_task(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("uuid"), str) and isinstance(entry.get("description"), str)


def _item_of(task: Mapping[str, Any]) -> Item:
    status = str(task.get("status") or "pending")
    kept = {name: value for name, value in task.items() if name not in _OWN_FIELDS | {"urgency"}}
    tags = kept.get("tags")
    tagged = isinstance(tags, list) and _STARTED in tags
    if isinstance(tags, list) and tagged:
        kept["tags"] = [tag for tag in tags if tag != _STARTED]
    started = status == "pending" and (tagged or "start" in task)
    item: Item = {
        "content": task["description"],
        "status": "in_progress" if started else _STATUS_OF.get(status, status),
    }
    priority = task.get("priority")
    if isinstance(priority, str) and priority:
        item["priority"] = _PRIORITY_OF.get(priority, priority)
    notes_of = task.get("annotations")
    listed = notes_of if isinstance(notes_of, list) else []
    said = [note.get("description") for note in listed if isinstance(note, dict)]
    notes = "\n".join(note for note in said if isinstance(note, str))
    return item | ({"notes": notes} if notes else {}) | kept


def _task_of(item: Mapping[str, Any]) -> dict[str, Any]:
    status = item["status"]
    kept = {name: value for name, value in item.items() if name not in _OWN_FIELDS}
    task = {"description": item["content"], **kept}
    task["status"] = {"in_progress": "pending", "cancelled": "deleted"}.get(status, status)
    priority = item.get("priority")
    if isinstance(priority, str) and priority:
        task["priority"] = _LETTER_OF.get(priority, priority)
    first, last = _stamps(item)
    task.setdefault("entry", first)
    if status == "in_progress":
        task.setdefault("start", last)
        if task["start"] is None:
            task["tags"] = [*task.get("tags", ()), _STARTED]
    else:
        task.pop("start", None)
    if status in ("completed", "cancelled"):
        task.setdefault("end", last)
    if isinstance(item.get("notes"), str) and item["notes"] and "annotations" not in task:
        task["annotations"] = [{"entry": first, "description": line} for line in item["notes"].split("\n") if line]
    return {name: value for name, value in task.items() if value is not None}


def _stamps(item: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """When the item was added and when its status changed last, as Taskwarrior writes times; None if unknown."""
    history = item.get("status_history")
    stamps = [entry.get("at") for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    found = [match for stamp in stamps if isinstance(stamp, str) and (match := _STAMP.match(stamp))]
    texts = sorted(f"{match[1]}T{match[2]}Z".replace("-", "").replace(":", "") for match in found)
    return (texts[0], texts[-1]) if texts else (None, None)
