"""`decodetop bench experiment --move ID`: the server's own command as it is, and with the move made."""

from __future__ import annotations

import argparse
import asyncio
import shlex
from collections.abc import Sequence

import msgspec

from decodetop.bench.experiment import Experiment, Original, check
from decodetop.bench.move import changes, experiment_of
from decodetop.cli.common import tell
from decodetop.config import Settings, api_key
from decodetop.core.clock import SystemClock
from decodetop.errors import UsageError
from decodetop.floor.moves import forms_of
from decodetop.flows.floor import look
from decodetop.server.discover import IN_CONTAINER, Proc, unit_of
from decodetop.server.processes import engine_of
from decodetop.server.reading import Server
from decodetop.server.redact import MASK

START = "give its command: --start 'python -m sglang.launch_server ...'"
START_CONTAINER = "give one that starts the container: --start 'docker run --rm ...', with --original-stop and -start"


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("instead of FILE: a move that `floor` or `diagnose` names")
    group.add_argument("--move", metavar="ID", default=None, help="its id, for example graphs-on")
    group.add_argument("--value", metavar="X", default=None, help="for a move that leaves a number or a choice open")
    group.add_argument("--start", metavar="CMD", default=None, help="the server's command (default: of the one found)")
    group.add_argument("--rounds", type=int, metavar="N", default=None, help="starts of each variant (default 3)")
    group.add_argument("--original-stop", metavar="CMD", default=None, help="stops the server in place, and returns")
    group.add_argument("--original-start", metavar="CMD", default=None, help="starts it again, and returns")


def refuse_with_file(args: argparse.Namespace) -> None:
    """Raises UsageError for an option that a file answers itself."""
    for name in ("value", "start", "rounds", "original_stop", "original_start"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} goes with --move", "a FILE says it itself")


def experiment_of_move(args: argparse.Namespace, settings: Settings) -> Experiment:
    """Raises UsageError when the move, or the server's command, is not one that can be put on."""
    server = None
    if args.start is None or not settings.endpoints:
        server = asyncio.run(look(SystemClock(), settings.endpoints, api_key(settings), server=True, gpus=False)).server
    argv = _split(args.start, "--start") if args.start is not None else _command(server)
    endpoint = settings.endpoints[0] if settings.endpoints else server.endpoint if server is not None else None
    if endpoint is None:
        raise UsageError("it is not known where the server will answer", "--endpoint http://127.0.0.1:30000")
    engine = engine_of(argv) or (server.engine if server is not None else "unknown")
    unit, user, original = _place(args, server, argv, endpoint)
    version = server.version if server is not None and server.engine == engine else None
    found: list[Experiment] = []
    refused: list[UsageError] = []
    for form in forms_of(args.move, engine, version):
        try:
            ways = changes(form.set, engine, args.value)
            found.append(experiment_of(form.id, ways, argv, endpoint, unit=unit, user=user, original=original))
        except UsageError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    if version is None and any(one != found[0] for one in found):
        raise UsageError(f"move {args.move} has another flag in other releases", "start the server: it says its own")
    if args.rounds is not None and args.rounds < 1:
        raise UsageError("--rounds must be 1 or more", "leave it out for 3")
    rounds = found[0].rounds if args.rounds is None else args.rounds
    experiment = msgspec.structs.replace(found[0], rounds=rounds)
    check(experiment, f"--move {args.move}")
    return experiment


def _split(words: str, option: str) -> tuple[str, ...]:
    try:
        found = tuple(shlex.split(words))
    except ValueError as error:
        raise UsageError(f"{option}: {error}", "quote it as for a shell") from error
    if not found:
        raise UsageError(f"{option} is empty", START)
    return found


def _command(server: Server | None) -> tuple[str, ...]:
    """The command of the server that runs. Raises UsageError when it can't be started again from what is known."""
    if server is None:
        raise UsageError("there is no server whose command could be taken", START)
    if not server.local or not server.command:
        why = "no process here is known to be it" if server.local else "it runs elsewhere"
        raise UsageError(f"the command of {server.endpoint} is not known: {why}", START)
    if server.reasons.get("unit") == IN_CONTAINER:
        raise UsageError(f"the command of {server.endpoint} is good only in its container", START_CONTAINER)
    if any(MASK in word for word in server.command):
        raise UsageError(f"the command of {server.endpoint} holds a secret, which is kept nowhere", START)
    if server.unit is None:
        tell(f"the command of {server.endpoint} is taken without its environment and folder")
    return server.command


def _place(
    args: argparse.Namespace, server: Server | None, argv: Sequence[str], endpoint: str
) -> tuple[str | None, bool, Original | None]:
    """The unit to override, whether it is of a user's own manager, and how to move what is there out of the way.

    Raises UsageError when that is known neither way.
    """
    unit, user, original = None, False, _original(args)
    if args.start is not None:
        return unit, user, original
    if server is not None and server.unit is not None and server.root_pid is not None:
        unit, user = unit_of(server.root_pid, Proc(), {})
    if unit is not None and original is not None:
        raise UsageError(f"the server is the unit {unit}, which is put back by itself", "leave --original-stop out")
    if unit is None and original is None and not args.dry_run:
        again = f"--start {shlex.quote(shlex.join(argv))} --endpoint {endpoint}"
        hint = f"stop it and give {again}, or say --original-stop and --original-start"
        raise UsageError(f"the server at {endpoint} was started by hand, and its place is needed", hint)
    return unit, user, original


def _original(args: argparse.Namespace) -> Original | None:
    given: Sequence[str | None] = (args.original_stop, args.original_start)
    if given == (None, None):
        return None
    stop, start = given
    if stop is None or start is None:
        raise UsageError("--original-stop and --original-start go together", "give both, or none")
    return Original(stop=_split(stop, "--original-stop"), start=_split(start, "--original-start"))
