"""Left and right: a what-if row to its next value, or the cursor into the other of two columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from decodetop_tui.acts import floor, notebook, replay

if TYPE_CHECKING:
    from decodetop_tui.face import Face


def can_go(face: Face) -> str | None:
    return None if notebook.two_columns(face) else replay.live(floor.on_knob)(face)


def go(by: int) -> Callable[[Face], None]:
    """`by` 1 = right: more, or the next; -1 = left."""
    change = floor.change(by)

    def run(face: Face) -> None:
        if not notebook.two_columns(face):
            change(face)
        elif notebook.in_plans(face) == (by < 0):
            notebook.cross(face)

    return run
