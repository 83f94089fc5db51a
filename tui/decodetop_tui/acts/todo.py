"""The checklist: every edit is a command; the engine keeps the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from decodetop.log.reading import RESTARTED, LogReading
from decodetop.todo.reading import (
    CLOSED,
    OUTCOMES,
    PRIORITIES,
    AddAttempt,
    AddTodo,
    EditTodo,
    MoveTodo,
    Outcome,
    RedoTodo,
    Todo,
    TodoReading,
    UndoTodo,
)
from decodetop.todo.text import mark
from decodetop_tui.screens.choose import Choice, Choose
from decodetop_tui.screens.confirm import Confirm
from decodetop_tui.screens.line import AskLine

if TYPE_CHECKING:
    from decodetop_tui.face import Face

WORDS_SHOWN = 44
"""Characters of an item's words in a window's title."""
FIELDS = {
    "content": "what is to be done",
    "notes": "anything worth keeping",
    "hypothesis": "what is thought to be the case",
    "expected": "the number that would confirm it",
    "reason": "why it was closed",
}
OUTCOME_WORDS = {
    "worked": "it did what was expected",
    "failed": "it did not run, or broke something",
    "no change": "it ran and nothing was better or worse",
    "regressed": "it ran and was worse",
}


def reading(face: Face) -> TodoReading | None:
    return face.lookout.live.last("todo", TodoReading)


def items(face: Face) -> tuple[Todo, ...]:
    seen = reading(face)
    return seen.todos if seen is not None else ()


def selected(face: Face) -> Todo | None:
    """The item under the cursor, as it is now."""
    return _item(face, face.panes["todo"].cursor)


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
    if todo is not None:
        _ask_field(face, todo, "content")


def more(face: Face) -> None:
    """Any field of the item: a list of what it holds, then a line to change it."""
    todo = selected(face)
    if todo is None:
        return
    waits = ", ".join(_short(other.content) for other in items(face) if other.id in todo.blocked_by)
    choices = [
        Choice(name, name, getattr(todo, name) or help, dim=not getattr(todo, name)) for name, help in FIELDS.items()
    ]
    choices.append(Choice("blocked by", "blocked by", waits or "an item that must be closed first", dim=not waits))

    def use(name: str | None) -> None:
        if name == "blocked by":
            _ask_blocker(face, todo)
        elif name is not None:
            _ask_field(face, todo, name)

    face.ask(Choose(face.palette, f"edit {_short(todo.content)}", choices), use)


def close(status: str, word: str) -> Callable[[Face], None]:
    """Give the item this status, or take it back to pending when it has it.

    An item of which nothing says what came of it is asked for a line of why; an empty one is an answer too.
    """

    def run(face: Face) -> None:
        todo = selected(face)
        if todo is None:
            return
        if todo.status == status:
            face.submit(EditTodo(id=todo.id, status="pending"))
            return
        if todo.evidence or todo.attempts or todo.reason:
            face.submit(EditTodo(id=todo.id, status=status))
            return

        def use(text: str | None) -> None:
            if text is not None:
                face.submit(EditTodo(id=todo.id, status=status, reason=text.strip() or None))

        hint = "nothing says yet what came of it: Enter closes it, Esc leaves it open"
        face.ask(AskLine(f"why is it {word}: {_short(todo.content)}", "", hint), use)

    return run


def start(face: Face) -> None:
    """In progress, or back to pending; a second one asks."""
    todo = selected(face)
    if todo is None:
        return
    if todo.status == "in_progress":
        face.submit(EditTodo(id=todo.id, status="pending"))
        return
    others = [one for one in items(face) if one.status == "in_progress"]
    if not others:
        face.submit(EditTodo(id=todo.id, status="in_progress"))
        return

    def use(beside: bool | None) -> None:
        if beside is None:
            return
        for other in () if beside else others:
            face.submit(EditTodo(id=other.id, status="pending"))
        face.submit(EditTodo(id=todo.id, status="in_progress"))

    names = ", ".join(_short(one.content) for one in others)
    face.ask(
        Confirm("A second item in progress?", f"In progress: {names}. y: both. n: put it back, only this one."), use
    )


def attempt(face: Face) -> None:
    """What was tried, what came of it, and why: three short questions."""
    todo = selected(face)
    if todo is None:
        return

    def tried(change: str | None) -> None:
        if change and change.strip():
            choices = [Choice(outcome, outcome, OUTCOME_WORDS[outcome]) for outcome in OUTCOMES]
            face.ask(
                Choose(face.palette, f"what came of: {_short(change.strip())}", choices), lambda out: came(change, out)
            )

    def came(change: str, outcome: str | None) -> None:
        if outcome is not None:
            hint = "an error's words, a number; Enter records it, Esc forgets the attempt"
            face.ask(AskLine(f"{outcome}: why?", "", hint), lambda reason: record(change, outcome, reason))

    def record(change: str, outcome: str, reason: str | None) -> None:
        if reason is not None:
            command = AddAttempt(
                id=todo.id,
                change=change.strip(),
                outcome=cast(Outcome, outcome),
                reason=reason.strip() or None,
                links=_links(todo),
            )
            face.submit(command)

    hint = "flags, a commit, a patch: what was changed"
    face.ask(AskLine(f"tried for {_short(todo.content)}", _changed_flags(face, todo), hint), tried)


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


def nest(face: Face) -> None:
    """A part of the item above it on the same level."""
    todo = selected(face)
    above = _sibling_above(face, todo) if todo is not None else None
    if todo is None or above is None:
        face.say("there is no item above it that it could be a part of", "warning")
        return
    face.submit(EditTodo(id=todo.id, parent=above.id))


def unnest(face: Face) -> None:
    """Out of the item it is a part of, to that one's level."""
    todo = selected(face)
    parent = _item(face, todo.parent) if todo is not None else None
    if todo is None or parent is None:
        face.say("it is no part of another item", "warning")
        return
    face.submit(EditTodo(id=todo.id, parent=parent.parent or ""))


def undo(face: Face) -> None:
    face.submit(UndoTodo())


def redo(face: Face) -> None:
    face.submit(RedoTodo())


def _ask_field(face: Face, todo: Todo, name: str) -> None:
    before = getattr(todo, name) or ""

    def use(text: str | None) -> None:
        if text is None or text.strip() == before or (name == "content" and not text.strip()):
            return
        changed: dict[str, Any] = {name: text.strip()}
        face.submit(EditTodo(id=todo.id, **changed))

    hint = "Enter keeps it, Esc leaves it as it was"
    title = "edit todo" if name == "content" else f"{name} of {_short(todo.content)}"
    face.ask(AskLine(title, before, hint), use)


def _ask_blocker(face: Face, todo: Todo) -> None:
    """One of the other items; one that it waits for already is taken out."""
    others = [
        one for one in items(face) if one.id != todo.id and (one.status not in CLOSED or one.id in todo.blocked_by)
    ]
    choices = [
        Choice(one.id, f"{mark(one)} {one.id}", one.content, "waits for it" if one.id in todo.blocked_by else "")
        for one in others
    ]

    def use(id: str | None) -> None:
        if id is not None:
            kept = tuple(one for one in todo.blocked_by if one != id)
            face.submit(EditTodo(id=todo.id, blocked_by=kept if id in todo.blocked_by else (*kept, id)))

    face.ask(Choose(face.palette, f"{_short(todo.content)} waits for", choices), use)


def _changed_flags(face: Face, todo: Todo) -> str:
    """What differed at the server's last restart since the item was started or last tried: most likely the attempt."""
    begun = [change.wall_ns for change in todo.status_history if change.status == "in_progress"]
    since_ns = max([*begun, *(one.wall_ns or 0 for one in todo.attempts)], default=None)
    log = face.lookout.live.last("log", LogReading)
    if log is None or since_ns is None:
        return ""
    seen = [
        one.text for one in log.entries if one.kind == "server" and one.wall_ns > since_ns and RESTARTED in one.text
    ]
    return seen[-1].partition(RESTARTED)[2] if seen else ""


def _links(todo: Todo) -> tuple[str, ...]:
    """What was measured for the item since its last attempt: the attempt is what it was measured for."""
    since_ns = max((one.wall_ns or 0 for one in todo.attempts), default=0)
    measured = [one for one in todo.evidence if one.kind in ("run", "capture") and (one.wall_ns or 0) > since_ns]
    return tuple(f"{one.kind} {one.ref}" for one in measured)


def _sibling_above(face: Face, todo: Todo) -> Todo | None:
    """In tree order the next one above on its level, with nothing shallower between."""
    seen = items(face)
    at = next((at for at, one in enumerate(seen) if one.id == todo.id), 0)
    for one in reversed(seen[:at]):
        if one.depth <= todo.depth:
            return one if one.depth == todo.depth else None
    return None


def _item(face: Face, id: str | None) -> Todo | None:
    return next((todo for todo in items(face) if todo.id == id), None)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WORDS_SHOWN else f"{line[: WORDS_SHOWN - 1]}…"
