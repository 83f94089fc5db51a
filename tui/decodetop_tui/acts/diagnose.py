"""Diagnosing the current server: asks before, stops what was begun, goes on where it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodetop.core.sample import Command
from decodetop.diagnosis.reading import Diagnose, DiagnosisReading, StopDiagnosis
from decodetop.diagnosis.text import question
from decodetop.server.reading import ServerReading
from decodetop_tui.screens.confirm import Confirm

if TYPE_CHECKING:
    from decodetop_tui.face import Face


def running(face: Face) -> bool:
    seen = face.lookout.live.last("diagnosis", DiagnosisReading)
    return seen is not None and seen.running


def can_diagnose(face: Face) -> str | None:
    if face.settings.readonly:
        return "started with --readonly"
    if running(face):
        return None
    seen = face.lookout.live.last("server", ServerReading)
    return None if seen is not None and seen.current_server is not None else "no server was found"


def diagnose(face: Face) -> None:
    """Start it, or go on with the one that was stopped; again while it runs: stop it."""
    if running(face):
        ask_stop(face)
        return
    seen = face.lookout.live.last("server", ServerReading)
    server = None if seen is None else seen.current_server
    endpoint = None if server is None else server.endpoint
    _confirmed(face, "Diagnose the server?", question(endpoint, server), Diagnose(endpoint=endpoint))


def ask_stop(face: Face) -> None:
    _confirmed(face, "Stop the diagnosis?", "What is done is kept; d goes on from there.", StopDiagnosis())


def _confirmed(face: Face, what: str, detail: str, command: Command) -> None:
    def use(yes: bool | None) -> None:
        if yes:
            face.submit(command)

    face.ask(Confirm(what, detail), use)
