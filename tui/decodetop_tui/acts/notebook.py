"""The notebook around the checklist: notes and the log, agents' plans, and another investigation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodetop.log.reading import AddNote
from decodetop.todo.reading import (
    CLOSED,
    AddTodo,
    FollowReading,
    InvestigationsReading,
    RestoreTodo,
    Switch,
)
from decodetop_tui.acts import leave, replay, todo
from decodetop_tui.panes._todoplans import PLAN, found_at
from decodetop_tui.panes.todo import GONE, MODES, other_column, stands_beside
from decodetop_tui.screens.choose import Choice, Choose
from decodetop_tui.screens.line import AskLine

if TYPE_CHECKING:
    from decodetop_tui.face import Face

NEW = "new"


def note(face: Face) -> None:
    """Ask for a line and write it into the log; about the item under the cursor, where that pane has the focus."""
    about = todo.selected(face) if face.focused_name == "todo" else None

    def use(text: str | None) -> None:
        if text and text.strip():
            face.submit(AddNote(text=text.strip(), item=about.id if about is not None else None))
            face.say(f"noted; {face.keymap.first('log')} shows the log")

    face.ask(AskLine("note for the log", "", "what happened, or what you saw; Enter writes it"), use)


def log_view(face: Face) -> None:
    """The log in the investigation's pane, zoomed; again: back to the list."""
    pane = face.panes["todo"]
    if face.focused_name == "todo" and face.zoomed and MODES[pane.mode] == "log":
        pane.mode = 0
        face.set_zoom(False)
        return
    pane.mode = MODES.index("log")
    face.focused_name = "todo"
    face.set_zoom(True)


def two_columns(face: Face) -> bool:
    """Whether the list and agents' plans stand side by side."""
    pane = face.panes["todo"]
    return face.focused_name == "todo" and stands_beside(face.lookout.state, pane.looked_at(True, face.zoomed))


def in_plans(face: Face) -> bool:
    return (face.panes["todo"].cursor or "").startswith(PLAN)


def cross(face: Face) -> None:
    """The cursor into the other of the two columns."""
    pane = face.panes["todo"]
    pane.cursor = other_column(face.lookout.state, pane.looked_at(True, face.zoomed)) or pane.cursor
    face.draw()


def can_adopt(face: Face) -> str | None:
    row = face.panes["todo"].cursor or ""
    if face.focused_name == "todo" and row.startswith((PLAN, GONE)):
        return None
    return "works on an agent's item, or on one that is gone, in the investigation (3, zoomed)"


def adopt(face: Face) -> None:
    """Take an agent's item (or its whole plan) into one's own list; put an item back that was taken out."""
    row = face.panes["todo"].cursor or ""
    if row.startswith(GONE):
        face.submit(RestoreTodo(id=row.removeprefix(GONE)))
        return
    found = found_at(face.lookout.live.last("follow", FollowReading), row)
    if found is None:
        face.say("the agent's plan has changed: choose again", "warning")
        return
    plan, items = found
    have = {_folded(one.content) for one in todo.items(face)}
    fresh = [one for one in items if _folded(one.content) not in have]
    for one in fresh:
        status = one.status if one.status in CLOSED else "pending"  # what is in progress here, its owner says
        face.submit(
            AddTodo(content=one.content, priority=one.priority, status=status, notes=f"from {plan.agent}'s plan")
        )
    left = f"; {len(items) - len(fresh)} are in the list already" if len(fresh) < len(items) else ""
    face.say(f"{len(fresh)} item{'' if len(fresh) == 1 else 's'} taken from {plan.agent}'s plan{left}")


def can_switch(face: Face) -> str | None:
    why = replay.watching(face)
    if why is not None:
        return why
    if not face.switchable:
        return "the demo has one investigation"
    if leave.at_stake(face) is not None:
        return "something is running or unsaved: it belongs to this one"
    seen = face.lookout.live.last("investigations", InvestigationsReading)
    return None if seen is not None else "the investigations have not been read yet"


def switch(face: Face) -> None:
    """Choose another investigation, or begin one with its question."""
    seen = face.lookout.live.last("investigations", InvestigationsReading)
    choices = [
        Choice(one.path, one.name, one.question or "", "open" if one.current else f"{one.closed}/{one.todos}")
        for one in (seen.found if seen is not None else ())
        if not one.archived
    ]
    choices.append(Choice(NEW, "new investigation", "asks what it is about"))
    here = next((one.path for one in (seen.found if seen is not None else ()) if one.current), None)

    def use(chosen: str | None) -> None:
        if chosen == NEW:
            face.ask(AskLine("what does it ask?", "", "for example: why 51 tok/s?"), begin)
        elif chosen is not None and chosen != here:
            face.leave_for(Switch(path=chosen))

    def begin(question: str | None) -> None:
        if question and question.strip():
            face.leave_for(Switch(question=question.strip()))

    face.ask(Choose(face.palette, "investigations", choices), use)


def _folded(text: str) -> str:
    """Case and spacing don't tell items apart."""
    return " ".join(text.split()).casefold()
