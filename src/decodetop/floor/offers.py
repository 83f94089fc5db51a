"""A move as an item of the checklist. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from decodetop.floor.reading import Move
from decodetop.todo.reading import CLOSED, AddTodo, Evidence, Todo

EFFORTS = {1: "a restart", 2: "a change of set-up", 3: "another checkpoint or machine"}


def effort_words(move: Move) -> str:
    """What it takes to try it; a tape of another version may know more kinds."""
    return EFFORTS.get(move.effort, "effort unknown")


def todo_of_move(move: Move, evidence: tuple[Evidence, ...] = ()) -> AddTodo:
    """Linked to the move; the verdict is the hypothesis, what may go wrong are notes."""
    notes = [*([f"trade: {move.trade}"] if move.trade else [])]
    notes += [f"silently inactive: {one}" for one in move.inactive]
    notes += [f"may fail at start: {one}" for one in move.failures]
    return AddTodo(
        content=f"{move.title}: {move.set}",
        priority="high" if (move.gain_ms or 0.0) > 0 and move.effort == 1 else "medium",
        hypothesis=move.why,
        expected=f"{move.gain_words} ({effort_words(move)})",
        notes="\n".join(notes) or None,
        evidence=(*evidence, Evidence(kind="move", ref=move.id)),
    )


def standing(move: Move, todos: Iterable[Todo]) -> Literal["open", "tried"] | None:
    """What the checklist says of a move: an item is open that nothing was tried for, or it was tried or closed."""
    items = [one for one in todos if _of_move(one, move)]
    if any(one.status in CLOSED or one.attempts for one in items):
        return "tried"
    return "open" if items else None


def _of_move(todo: Todo, move: Move) -> bool:
    """Linked by the move's id, or by an attempt's; of a list without links, the same words."""
    linked = any(one.kind == "move" and one.ref == move.id for one in todo.evidence)
    tried = any(link.removeprefix("move ") == move.id for one in todo.attempts for link in one.links)
    return linked or tried or todo.content == " ".join(todo_of_move(move).content.split())
