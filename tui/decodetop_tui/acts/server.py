"""Which server is the current one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodetop.server.reading import ENGINE_NAMES, ChooseServer, ServerReading
from decodetop_tui.headline import server_name
from decodetop_tui.screens.choose import Choice, Choose

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


def become(face: Face, endpoint: str) -> None:
    face.submit(ChooseServer(endpoint=endpoint))
