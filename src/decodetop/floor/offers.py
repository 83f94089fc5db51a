"""A move as an item of the checklist. Pure."""

from __future__ import annotations

from decodetop.floor.reading import Move
from decodetop.todo.reading import AddTodo, Evidence

EFFORTS = {1: "a restart", 2: "a change of set-up", 3: "another checkpoint or machine"}


def effort_words(move: Move) -> str:
    """What it takes to try it; a tape of another version may know more kinds."""
    return EFFORTS.get(move.effort, "effort unknown")


def todo_of_move(move: Move, evidence: tuple[Evidence, ...] = ()) -> AddTodo:
    """With the verdict as hypothesis and the most it can win as expected effect; what may go wrong as notes."""
    notes = [*([f"trade: {move.trade}"] if move.trade else [])]
    notes += [f"silently inactive: {one}" for one in move.inactive]
    notes += [f"may fail at start: {one}" for one in move.failures]
    return AddTodo(
        content=f"{move.title}: {move.set}",
        priority="high" if (move.gain_ms or 0.0) > 0 and move.effort == 1 else "medium",
        hypothesis=move.why,
        expected=f"{move.gain_words} ({effort_words(move)})",
        notes="\n".join(notes) or None,
        evidence=evidence,
    )
