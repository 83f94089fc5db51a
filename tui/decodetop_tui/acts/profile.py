"""Profiling the current server: asks before, and stops what was begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from decodetop.core.sample import Command
from decodetop.server.reading import ServerReading
from decodetop.steps.reading import CaptureSteps, StepsReading, StopCapture, Taking
from decodetop.steps.text import capture_question
from decodetop_tui.screens.confirm import Confirm

if TYPE_CHECKING:
    from decodetop_tui.face import Face


def taking(face: Face) -> Taking:
    seen = face.lookout.live.last("steps", StepsReading)
    return Taking() if seen is None else seen.taking


def capturing(face: Face) -> bool:
    return taking(face).progress is not None


def can_profile(face: Face) -> str | None:
    if face.settings.readonly:
        return "started with --readonly"
    if capturing(face) or taking(face).left is not None:
        return None
    seen = face.lookout.live.last("server", ServerReading)
    return None if seen is not None and seen.current_server is not None else "no server was found"


def profile(face: Face) -> None:
    """Start a capture; or stop the one under way, or the profiler that a dead one left running."""
    face.focus_pane("steps")
    left = taking(face).left
    if capturing(face):
        ask_stop(face)
    elif left is not None:
        detail = f"{left.endpoint}: a capture that died started it. Serving stalls while the trace is written."
        face.ask(Confirm("Stop the profiler?", detail), _then(face, StopCapture()))
    else:
        seen = face.lookout.live.last("server", ServerReading)
        server = None if seen is None else seen.current_server
        ask = CaptureSteps(endpoint=None if server is None else server.endpoint)
        detail = capture_question(ask.steps, ask.load, ask.endpoint, server)
        face.ask(Confirm("Profile the server?", detail), _then(face, ask))


def ask_stop(face: Face) -> None:
    detail = "The server's profiler is stopped, and nothing of it is kept."
    face.ask(Confirm("Stop the capture?", detail), _then(face, StopCapture()))


def _then(face: Face, command: Command) -> Callable[[bool | None], None]:
    def use(yes: bool | None) -> None:
        if yes:
            face.submit(command)

    return use
