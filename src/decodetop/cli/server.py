"""`decodetop server`: the inference servers of this box, or those named, with live figures."""

from __future__ import annotations

import argparse
import asyncio

from decodetop.cli.common import complain, print_json, print_lines
from decodetop.config import Settings, api_key
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine
from decodetop.core.state import State
from decodetop.flows.session import new_header, watch
from decodetop.server import text
from decodetop.server.probe import ServerProbe
from decodetop.server.reading import Server, ServerReading

SCHEMA = 1
LOOK_S = 12.0
POLLS = 2
"""A rate needs two polls, a second apart."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the reading as JSON")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """1 when no server answers: none of those named with --endpoint, or none at all. Raises ConfigError."""
    state = asyncio.run(_look(settings))
    reading, failure = state.last("server", ServerReading), state.lane("server").failure
    silent = [_trouble(server) for server in _meant(reading, settings) if not _answers(server)]
    if reading is not None and not reading.servers:
        silent.append(text.nothing(reading))
    if args.json:
        print_json({"schema": SCHEMA, "source": "server", "reading": reading, "failure": failure, "errors": silent})
    elif reading is not None:
        print_lines(text.lines(reading))
    elif failure is not None:
        complain(failure.message, failure.hint)
    return 0 if any(map(_answers, _meant(reading, settings))) else 1


async def _look(settings: Settings) -> State:
    clock = SystemClock()
    probe = ServerProbe(clock, endpoints=settings.endpoints, api_key=api_key(settings))
    return await watch(Engine(new_header(clock), clock, [probe]), clock, LOOK_S, ready=_seen)


def _seen(state: State) -> bool:
    lane = state.lane("server")
    return lane.failure is not None or len(lane.history) >= POLLS or _hopeless(lane.last)


def _hopeless(reading: object) -> bool:
    """Nobody answers: a second poll says nothing more."""
    return isinstance(reading, ServerReading) and not any(map(_answers, reading.servers))


def _meant(reading: ServerReading | None, settings: Settings) -> list[Server]:
    servers = [] if reading is None else list(reading.servers)
    return [server for server in servers if not settings.endpoints or server.endpoint in settings.endpoints]


def _answers(server: Server) -> bool:
    return server.status == "up"


def _trouble(server: Server) -> str:
    why = f": {server.status_message}" if server.status_message else ""
    return f"{server.endpoint} is {text.STATUS_WORDS[server.status]}{why}"
