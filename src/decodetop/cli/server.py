"""`decodetop server`: the inference servers of this box, or those named, with live figures."""

from __future__ import annotations

import argparse
import asyncio

import msgspec

from decodetop.cli.common import complain, print_json, print_lines
from decodetop.config import Settings, api_key
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine, Probe
from decodetop.core.state import State
from decodetop.errors import UsageError
from decodetop.findings.preflight import lines, preflight
from decodetop.flows.session import new_header, watch
from decodetop.gpu.probe import GpuProbe
from decodetop.server import text
from decodetop.server.generate import generation
from decodetop.server.probe import ServerProbe
from decodetop.server.reading import Server, ServerReading

SCHEMA = 1
LOOK_S = 12.0
POLLS = 2
"""A rate needs two polls, a second apart."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the reading as JSON")
    parser.add_argument("--preflight", action="store_true", help="a list of checks: is it ready to be measured?")
    parser.add_argument("--generate", action="store_true", help="with --preflight: also let it generate one token")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """1 when no server answers: none of those named with --endpoint, or none at all. Raises ConfigError."""
    if args.generate and not args.preflight:
        raise UsageError("--generate goes with --preflight", "decodetop server --preflight --generate")
    if args.generate and settings.readonly:
        raise UsageError("--generate makes the server work, which --readonly refuses", "leave one of them out")
    if args.preflight:
        return asyncio.run(_preflight(settings, generate=args.generate, as_json=args.json))
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


async def _preflight(settings: Settings, *, generate: bool, as_json: bool) -> int:
    """1 when a check is bad, or no server was found."""
    clock = SystemClock()
    server_probe = ServerProbe(clock, endpoints=settings.endpoints, api_key=api_key(settings), log=settings.server_log)
    probes: list[Probe] = [server_probe, GpuProbe(clock)]
    state = await watch(Engine(new_header(clock), clock, probes), clock, LOOK_S, ready=_both_seen)
    reading = state.last("server", ServerReading)
    server = reading and (reading.current_server or next(iter(reading.servers), None))
    if not server:
        complain("no inference server was found", "start one, or name it: --endpoint http://127.0.0.1:30000")
        return 1
    if generate:
        key = api_key(settings) if server.endpoint in settings.endpoints else None
        server = msgspec.structs.replace(server, generation=await generation(server, key, clock))
    checks = preflight(state, server)
    if as_json:
        print_json({"schema": SCHEMA, "endpoint": server.endpoint, "checks": checks})
    else:
        print_lines(lines(checks))
    return 1 if any(check.verdict == "bad" for check in checks) else 0


def _both_seen(state: State) -> bool:
    gpu = state.lane("gpu")
    return _seen(state) and (gpu.last is not None or gpu.failure is not None)


async def _look(settings: Settings) -> State:
    clock = SystemClock()
    probe = ServerProbe(clock, endpoints=settings.endpoints, api_key=api_key(settings), log=settings.server_log)
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
