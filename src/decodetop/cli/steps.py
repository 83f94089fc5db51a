"""`decodetop steps`: the step breakdown of trace files, two captures compared, a live server captured."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from decodetop.cli.common import Meter, complain, path_option, print_json, print_lines
from decodetop.config import Settings
from decodetop.core.clock import SECOND_NS, SystemClock
from decodetop.errors import UsageError
from decodetop.steps import kinds, text
from decodetop.steps.analyse import ProgressOf, analyse
from decodetop.steps.compare import compare
from decodetop.steps.folder import ranks_in
from decodetop.steps.reading import CAPTURE_COSTS, CAPTURE_STEPS, StepsReport
from decodetop.steps.trace import Progress

PLAIN_WIDTH = 140
COMPARE = "compare"
CAPTURE = "capture"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Where each decode step's time goes. Several files, or a folder, are the ranks of one capture; "
        "`decodetop steps compare A.. --to B..` compares two captures; "
        "`decodetop steps capture --endpoint URL` profiles a live server."
    )
    parser.add_argument(
        "traces",
        nargs="+",
        metavar="TRACE",
        help="torch.profiler traces (.json or .json.gz), or a folder: its newest capture",
    )
    parser.add_argument("--to", nargs="+", metavar="TRACE", help="with compare: the traces after the change")
    parser.add_argument("--itl-ms", type=_positive, metavar="X", help="time per token measured without the profiler")
    parser.add_argument("--accept-length", type=_positive, metavar="A", help="tokens per step when speculating")
    parser.add_argument("--step-label", metavar="REGEX", help="your own step annotations; (?P<bs>..) = batch size")
    parser.add_argument(
        "--kinds", type=path_option, metavar="FILE", help="your own kernel kinds (TOML), before the shipped"
    )
    parser.add_argument("--json", action="store_true", help="data on stdout")
    group = parser.add_argument_group("with capture", f"needs a server (--endpoint URL). {CAPTURE_COSTS}")
    load = "streams started for it (default: none where requests are running, else 1)"
    group.add_argument("--load", type=_count, metavar="N", help=load)
    group.add_argument("--steps", type=_count, metavar="N", help=f"forward passes (default {CAPTURE_STEPS})")
    group.add_argument("--yes", action="store_true", help="do not ask before")
    group.add_argument("--stop", action="store_true", help="stop the profiler that a capture which died left running")


def run(args: argparse.Namespace, settings: Settings) -> int:
    traces: list[str] = args.traces
    if traces == [CAPTURE] and not Path(CAPTURE).is_file():
        if args.to or args.itl_ms or args.accept_length or args.step_label or args.kinds:
            raise UsageError("options for reading traces do not go with capture", "give them with the files it names")
        from decodetop.cli import steps_capture  # brings what talks to servers, which no file needs

        return steps_capture.run(args, settings, PLAIN_WIDTH)
    if args.load is not None or args.steps is not None or args.yes or args.stop:
        raise UsageError("--load, --steps, --yes and --stop go with capture", "decodetop steps capture --endpoint URL")
    comparing = traces[0] == COMPARE and args.to is not None
    if args.to is not None and not comparing:
        raise UsageError("--to goes with compare", "decodetop steps compare A.. --to B..")
    if traces[0] == COMPARE and not comparing and not Path(COMPARE).exists():
        raise UsageError("compare needs --to", "decodetop steps compare A.. --to B..")
    return _compare(args) if comparing else _show(args)


def _show(args: argparse.Namespace) -> int:
    report = _analyse(args, args.traces)
    if args.json:
        print_json(report)
    elif report.ranks:
        print_lines(text.lines(report, PLAIN_WIDTH))
    _complain(report.errors)
    return 0 if any(rank.coverage.ok for rank in report.ranks) else 1


def _compare(args: argparse.Namespace) -> int:
    if len(args.traces) < 2:
        raise UsageError("compare needs traces before --to", "decodetop steps compare A.. --to B..")
    found = compare(_analyse(args, args.traces[1:]), _analyse(args, args.to))
    if args.json:
        print_json(found)
    else:
        print_lines(text.comparison_lines(found, PLAIN_WIDTH))
    _complain(found.errors)
    return 0 if found.period.delta_us is not None else 1


def _analyse(args: argparse.Namespace, traces: Sequence[str]) -> StepsReport:
    return analyse(
        ranks_in(traces),
        itl_ms=args.itl_ms,
        accept_length=args.accept_length,
        step_label=args.step_label,
        kind_table=kinds.load(args.kinds) if args.kinds else None,
        progress=_teller() if sys.stderr.isatty() else None,
    )


def _teller() -> ProgressOf:
    """One line on the terminal that is written over; only for what takes long."""
    clock, meter = SystemClock(), Meter()
    next_ns = 2 * SECOND_NS

    def tell(path: Path, seen: Progress) -> None:
        nonlocal next_ns
        now_ns = clock.now_ns()
        if now_ns >= next_ns:
            next_ns = now_ns + SECOND_NS // 4
            share = seen.done_bytes / max(1, seen.total_bytes)
            meter.show(f"reading {path.name} {share:4.0%}")
            if seen.done_bytes >= seen.total_bytes:
                meter.clear()

    return tell


def _complain(errors: Sequence[str]) -> None:
    for error in errors:
        complain(error)


def _positive(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{word} is not a positive number")
    return value


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) == 0:
        raise argparse.ArgumentTypeError(f"{word} is not a whole number above 0")
    return int(word)
