"""What quitting would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodetop.log.reading import LogReading
from decodetop_tui.acts import bench, diagnose, profile, replay, todo

if TYPE_CHECKING:
    from decodetop_tui.face import Face


def at_stake(face: Face) -> tuple[str, str] | None:
    """A question and what is lost; None where nothing is, as in a tape and over --from."""
    if replay.watching(face) is not None:
        return None
    lost = []
    checklist = todo.reading(face)
    if checklist is not None and checklist.unsaved is not None:
        lost.append(("with edits that are not saved", f"The checklist can't be written: {checklist.unsaved}"))
    log = face.lookout.live.last("log", LogReading)
    if log is not None and log.unsaved is not None:
        lost.append(("with log entries that are not saved", f"The log can't be written: {log.unsaved}"))
    if diagnose.running(face):
        lost.append(("while a diagnosis runs", "It is stopped; what is done is kept, and d goes on from there."))
    elif bench.running(face):
        lost.append(("while a benchmark runs", "The benchmark is stopped; what is finished is kept."))
    if profile.capturing(face) and not diagnose.running(face):
        lost.append(("while the server is profiled", "The profiler is stopped, and nothing of the capture is kept."))
    if not lost:
        return None
    return f"Quit {lost[0][0]}?", "\n".join(detail for _, detail in lost)
