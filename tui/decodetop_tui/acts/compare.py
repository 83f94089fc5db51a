"""`c`: what is marked in the pane in focus, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodetop_tui.acts import bench, replay, steps

if TYPE_CHECKING:
    from decodetop_tui.face import Face


def compare(face: Face) -> None:
    (steps.compare if face.focused_name == "steps" else bench.compare)(face)


def can_compare(face: Face) -> str | None:
    return replay.live(steps.can_compare)(face) if face.focused_name == "steps" else bench.can_compare(face)
