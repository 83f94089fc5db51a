"""Which server is the current one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodetop.server.reading import ENGINE_NAMES, ChooseServer, Server, ServerReading, TryGeneration
from decodetop_tui.headline import server_name
from decodetop_tui.screens.choose import Choice, Choose
from decodetop_tui.screens.confirm import Confirm

if TYPE_CHECKING:
    from decodetop_tui.face import Face


def any_server(face: Face) -> str | None:
    seen = face.lookout.live.last("server", ServerReading)
    return None if seen is not None and seen.servers else "no server was found"


def choose(face: Face) -> None:
    seen = face.lookout.live.last("server", ServerReading)
    if seen is None:
        return
    choices = [
        Choice(
            server.endpoint,
            f"{ENGINE_NAMES.get(server.engine, server.engine)} {server_name(server)}",
            server.served_name or server.model or server.status_message or server.status,
            "current" if server.endpoint == seen.current else "",
        )
        for server in seen.servers
    ]

    def use(endpoint: str | None) -> None:
        if endpoint is not None:
            become(face, endpoint)

    face.ask(Choose(face.palette, "servers", choices), use)


def can_try(face: Face) -> str | None:
    if face.settings.readonly:
        return "started with --readonly"
    return None if _current(face) is not None else any_server(face) or "no server is chosen"


def try_generation(face: Face) -> None:
    """One token, after a question: it is the only look that makes the server work."""
    server = _current(face)
    if server is None:
        return
    model = server.served_name or server.model or "its model"

    def use(yes: bool | None) -> None:
        if yes:
            face.submit(TryGeneration(endpoint=server.endpoint))
            face.say("one token was asked for; the preflight of the server pane (2, zoomed) tells what came of it")

    detail = (
        f"{server.endpoint}: one prompt of a few tokens, one token of {model}. Other requests wait a moment longer."
    )
    face.ask(Confirm("Let the server generate one token?", detail), use)


def _current(face: Face) -> Server | None:
    seen = face.lookout.live.last("server", ServerReading)
    return None if seen is None else seen.current_server


def become(face: Face, endpoint: str) -> None:
    face.submit(ChooseServer(endpoint=endpoint))
