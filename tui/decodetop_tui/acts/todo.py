"""The checklist: every edit is a command; the engine keeps the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from decodetop.todo.reading import PRIORITIES, AddTodo, EditTodo, MoveTodo, RedoTodo, Todo, TodoReading, UndoTodo
from decodetop_tui.screens.line import AskLine

if TYPE_CHECKING:
    from decodetop_tui.face import Face


def reading(face: Face) -> TodoReading | None:
    return face.lookout.live.last("todo", TodoReading)


def selected(face: Face) -> Todo | None:
    """The item under the cursor, as it is now."""
    seen = reading(face)
    cursor = face.panes["todo"].cursor
    return next((todo for todo in seen.todos if todo.id == cursor), None) if seen is not None else None


def has_list(face: Face) -> str | None:
    return None if reading(face) is not None else "no checklist has been read yet"


def on_item(face: Face) -> str | None:
    """Why there is no item to act on."""
    if face.focused_name != "todo":
        return "works on an item of the investigation (3)"
    return None if selected(face) is not None else "there is no item under the cursor"


def can_undo(face: Face) -> str | None:
    seen = reading(face)
    return None if seen is not None and seen.undo_depth > 0 else "nothing to undo"


def can_redo(face: Face) -> str | None:
    seen = reading(face)
    return None if seen is not None and seen.redo_depth > 0 else "nothing to redo"


def add(face: Face) -> None:
    """Ask for the words; it comes last, with middle priority."""
    face.focus_pane("todo")

    def use(text: str | None) -> None:
        if text and text.strip():
            face.panes["todo"].take_next()
            face.submit(AddTodo(content=text.strip()))

    face.ask(AskLine("add todo", "", "Enter adds it, Esc leaves"), use)


def edit(face: Face) -> None:
    todo = selected(face)
    if todo is None:
        return

    def use(text: str | None) -> None:
        if text and text.strip() and text.strip() != todo.content:
            face.submit(EditTodo(id=todo.id, content=text.strip()))

    face.ask(AskLine("edit todo", todo.content, "Enter keeps it, Esc leaves it as it was"), use)


def set_status(status: str) -> Callable[[Face], None]:
    """Give the item this status, or take it back to pending when it has it."""

    def run(face: Face) -> None:
        todo = selected(face)
        if todo is not None:
            face.submit(EditTodo(id=todo.id, status="pending" if todo.status == status else status))

    return run


def priority(face: Face) -> None:
    """high, medium, low and round again; anything else becomes high."""
    todo = selected(face)
    if todo is not None:
        known = todo.priority in PRIORITIES
        at = PRIORITIES.index(todo.priority) + 1 if known and todo.priority is not None else 0
        face.submit(EditTodo(id=todo.id, priority=PRIORITIES[at % len(PRIORITIES)]))


def move(by: int) -> Callable[[Face], None]:
    def run(face: Face) -> None:
        todo = selected(face)
        if todo is not None:
            face.submit(MoveTodo(id=todo.id, by=by))

    return run


def undo(face: Face) -> None:
    face.submit(UndoTodo())


def redo(face: Face) -> None:
    face.submit(RedoTodo())
