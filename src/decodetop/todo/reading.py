"""The checklist of the investigation, in the todowrite shape, and what may be asked of it."""

from __future__ import annotations

from typing import Any

import msgspec

from decodetop.core.sample import Command, Reading

STATUSES = ("pending", "in_progress", "completed", "cancelled")
PRIORITIES = ("high", "medium", "low")


class Todo(msgspec.Struct, frozen=True, kw_only=True):
    """One item. A foreign `status` or `priority` is kept verbatim; `extra` holds the fields we don't know."""

    id: str
    content: str
    status: str = "pending"
    priority: str | None = None
    notes: str | None = None
    extra: dict[str, Any] = {}


class TodoReading(Reading, frozen=True, kw_only=True):
    """`path` is the file, `title` the investigation's question. `unsaved` = why the last edit is only in memory."""

    path: str
    title: str | None = None
    todos: tuple[Todo, ...] = ()
    revision: int = 0
    undo_depth: int = 0
    unsaved: str | None = None
    problem: str | None = None


class AddTodo(Command, frozen=True, kw_only=True):
    """`after_id` None = at the end."""

    content: str
    priority: str | None = "medium"
    status: str = "pending"
    notes: str | None = None
    after_id: str | None = None


class EditTodo(Command, frozen=True, kw_only=True):
    """Change what is not None."""

    id: str
    content: str | None = None
    status: str | None = None
    priority: str | None = None
    notes: str | None = None


class MoveTodo(Command, frozen=True, kw_only=True):
    """`by` places down (negative = up)."""

    id: str
    by: int


class UndoTodo(Command, frozen=True, kw_only=True):
    """Take back the last edit made here."""
