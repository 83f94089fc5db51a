"""`decodetop replay`: the screen on a tape; `--json` prints the state at a moment instead."""

from __future__ import annotations

import argparse

from decodetop.cli.common import finite, path_option, print_json
from decodetop.cli.tui import add_screen_options, log_to, show
from decodetop.config import Settings
from decodetop.core.clock import SECOND_NS, SystemClock
from decodetop.core.replay import TapeSource
from decodetop.core.state import State, fold
from decodetop.core.tape import Tape
from decodetop.errors import UsageError
from decodetop.flows.catalog import codec


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tape", type=path_option, metavar="TAPE", help="what `decodetop record` or the key R wrote")
    parser.add_argument("--speed", type=finite, default=1.0, metavar="N", help="N times real time (0 = paused)")
    parser.add_argument("--at-s", type=finite, metavar="S", help="with --json: the state S seconds after the beginning")
    parser.add_argument("--json", action="store_true", help="print the state at the end (or --at-s) and leave")
    add_screen_options(parser, live=False)


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.speed < 0:
        raise UsageError(f"--speed {args.speed:g}: a tape plays forward", "use [ and ] to go back")
    tape = Tape(args.tape, codec())
    if args.json:
        with tape:
            _print_state(tape, args.at_s)
        return 0
    if args.log is not None:
        log_to(args.log)
    return show(TapeSource(tape, SystemClock(), args.speed), settings)


def _print_state(tape: Tape, at_s: float | None) -> None:
    at_ns = tape.end_ns if at_s is None else tape.begin_ns + int(at_s * SECOND_NS)
    state = State(header=tape.header)
    for line in tape.leading_to(at_ns)[0]:
        sample = tape.sample(line)
        if sample is not None:
            state = fold(state, sample)
    lanes = {
        source: {"t_ns": lane.last_t_ns, "reading": lane.last, "failure": lane.failure}
        for source, lane in sorted(state.lanes.items())
    }
    errors = [f"this version can't read the lane {source!r}" for source in sorted(tape.codec.unknown)]
    if tape.truncated:
        errors.append("the tape holds lines that are no samples (a truncated end?); they were skipped")
    print_json({"schema": 1, "header": tape.header, "now_ns": state.now_ns, "lanes": lanes, "errors": errors})
