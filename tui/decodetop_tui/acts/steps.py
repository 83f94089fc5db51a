"""Profiler traces: opening one, showing a capture, comparing two, drilling to kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodetop.core.sample import Notice
from decodetop.steps.reading import Capture, CompareCaptures, OpenTrace, ShowCapture, StepsReading
from decodetop_tui.screens.files import PickTrace
from decodetop_tui.screens.told import Told

if TYPE_CHECKING:
    from decodetop_tui.face import Face

CAPTURE, KIND, KERNEL = "capture:", "kind:", "kernel:"
"""How the pane's row ids begin."""


def open_trace(face: Face) -> None:
    face.focus_pane("steps")

    def use(paths: tuple[str, ...] | None) -> None:
        if paths:
            face.trace_folder = paths[0].rpartition("/")[0] or "/"
            face.submit(OpenTrace(paths=paths))

    face.ask(PickTrace(face.palette, face.trace_folder), use)


def enter(face: Face, row: str) -> bool:
    """Act on a row of the zoomed pane: show a capture, narrow to the kernels of a kind, tell a kernel's whole name."""
    if row.startswith(CAPTURE):
        face.submit(ShowCapture(id=row.removeprefix(CAPTURE)))
    elif row.startswith(KIND):
        wanted = KIND + row.rpartition(":")[2]
        face.pane.filter = "" if face.pane.filter == wanted else wanted
        face.draw()
    elif row.startswith(KERNEL):
        _tell_kernel(face, row.removeprefix(KERNEL))
    else:
        return False
    return True


def _tell_kernel(face: Face, place: str) -> None:
    rank_number, _, at = place.partition(":")
    shown = _seen(face).shown
    ranks = shown.report.ranks if shown is not None else ()
    kernels = next((rank.top_kernels for rank in ranks if str(rank.rank) == rank_number), ())
    if at.isdigit() and int(at) < len(kernels):
        face.ask(Told(Notice(message=kernels[int(at)].name)), lambda _: None)


def compare(face: Face) -> None:
    """Two marked captures, or a marked one and the one shown; a comparison on screen ends."""
    if _seen(face).before_and_after is not None:
        face.submit(CompareCaptures(pair=None))
        return
    older, newer = sorted(_marked(face), key=_age)
    face.submit(CompareCaptures(pair=(older.id, newer.id)))
    face.set_zoom(True)


def can_compare(face: Face) -> str | None:
    if _seen(face).before_and_after is not None or len(_marked(face)) == 2:
        return None
    return f"mark two captures first ({face.keymap.first('mark')}), in the zoomed pane"


def _marked(face: Face) -> list[Capture]:
    seen = _seen(face)
    found = [one for one in seen.captures if f"{CAPTURE}{one.id}" in face.pane.marks]
    if len(found) == 1 and seen.shown is not None and seen.shown is not found[0]:
        found.append(seen.shown)
    return found


def _age(capture: Capture) -> tuple[int, str]:
    return capture.made_wall_ns or 0, capture.id


def _seen(face: Face) -> StepsReading:
    return face.lookout.live.last("steps", StepsReading) or StepsReading()
