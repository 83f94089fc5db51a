"""Opening a profiler trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodetop.steps.reading import OpenTrace
from decodetop_tui.screens.files import PickTrace

if TYPE_CHECKING:
    from decodetop_tui.face import Face


def open_trace(face: Face) -> None:
    face.focus_pane("steps")

    def use(paths: tuple[str, ...] | None) -> None:
        if paths:
            face.trace_folder = paths[0].rpartition("/")[0] or "/"
            face.submit(OpenTrace(paths=paths))

    face.ask(PickTrace(face.palette, face.trace_folder), use)
