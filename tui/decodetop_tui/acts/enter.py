"""Enter: act on the row in focus; where there is nothing to do, look closer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodetop.server.reading import ServerReading
from decodetop.steps.reading import StepsReading
from decodetop_tui.acts import bench, floor, replay, server, steps

if TYPE_CHECKING:
    from decodetop_tui.face import Face


def enter(face: Face) -> None:
    row = face.pane.cursor or ""
    name = face.focused_name
    if replay.watching(face) is not None:
        face.set_zoom(True)
    elif name == "bench" and row.startswith(bench.PRESET):
        bench.start(face, row.removeprefix(bench.PRESET))
    elif name == floor.PAGE:
        floor.take(face)
    elif name == "steps" and _no_capture(face):
        steps.open_trace(face)
    elif row == "check:generates" and server.can_try(face) is None:
        server.try_generation(face)
    elif name == "server" and _other_server(face, row):
        server.become(face, row.removeprefix("server:"))
    elif name == "steps" and face.zoomed and steps.enter(face, row):
        return
    elif not face.zoomed:
        face.set_zoom(True)


def _no_capture(face: Face) -> bool:
    seen = face.lookout.live.last("steps", StepsReading)
    return seen is None or not seen.captures


def _other_server(face: Face, row: str) -> bool:
    seen = face.lookout.live.last("server", ServerReading)
    endpoint = row.removeprefix("server:")
    return seen is not None and endpoint != seen.current and any(found.endpoint == endpoint for found in seen.servers)
