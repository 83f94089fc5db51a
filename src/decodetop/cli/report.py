"""`decodetop report`: everything as markdown, HTML or JSON; what a bug template asks for; what changed between two."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from decodetop.cli.common import complain, path_option, print_json, print_lines, print_text
from decodetop.cli.output import output_path, write_output
from decodetop.config import Settings, login_names
from decodetop.core.clock import SystemClock
from decodetop.core.encode import encode
from decodetop.core.outside import harmless_json, plain
from decodetop.core.regular import home
from decodetop.core.sample import Notice, Sample
from decodetop.core.state import State, fold_all
from decodetop.core.tape import Tape
from decodetop.errors import UsageError
from decodetop.flows.catalog import codec
from decodetop.flows.live import build_live, settled
from decodetop.flows.session import watch
from decodetop.report import Privacy, file_name, report
from decodetop.report.block import read
from decodetop.report.diff import difference
from decodetop.report.diff_text import lines as difference_lines
from decodetop.report.environment import TEMPLATES, environment
from decodetop.report.page import page
from decodetop.steps.reading import StepsReading

LOOK_S = 4.0
"""How long to look before writing: two rounds of the slowest first reading, so that rates exist."""

SCHEMA = 1
Format = Literal["md", "html", "json"]
SUFFIXES: dict[str, Format] = {".html": "html", ".htm": "html", ".json": "json"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes the snapshot of the investigation. Keys, home folders and user names are never in it; --anonymous "
        "takes out host names, addresses, paths, GPU UUIDs and serial numbers too."
    )
    parser.add_argument(
        "-o",
        "--output",
        type=path_option,
        metavar="FILE",
        help="write there instead of to stdout; a folder (`.`): under the usual name there",
    )
    parser.add_argument(
        "--format", choices=("md", "html", "json"), help="else by the end of FILE's name, else markdown"
    )
    parser.add_argument("--anonymous", action="store_true", help="no host names, addresses, paths, UUIDs, serials")
    parser.add_argument(
        "--for", dest="engine", choices=tuple(TEMPLATES), help="what that engine's bug template asks for"
    )
    parser.add_argument(
        "--diff", nargs=2, type=path_option, metavar=("A", "B"), help="what changed from snapshot A to snapshot B"
    )
    parser.add_argument(
        "--compare-captures",
        nargs=2,
        metavar=("A", "B"),
        help="the step breakdown before and after of these captures (their ids, or how those begin); "
        "else of the newest and the one like it before",
    )
    parser.add_argument("--tape", type=path_option, metavar="TAPE", help="of a tape's end instead of the live box")
    parser.add_argument("--json", action="store_true", help='{"schema", "path", "format", "markdown", "data"}')


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.diff is not None:
        return _diff(args)
    state = _of_tape(args.tape) if args.tape else _of_box(settings)
    if args.compare_captures:
        state = comparing(state, args.compare_captures)
    privacy = Privacy(names=login_names(), home=home(), anonymous=args.anonymous)
    if args.engine is not None:
        return _for(args, state, privacy)
    found = report(state, privacy)
    kind = _format(args)
    path = output_path(args.output, file_name(state, f".{kind}"))
    whole: dict[str, Any] = {
        "schema": SCHEMA,
        "path": str(path) if path else None,
        "format": kind,
        "markdown": found.markdown,
        "data": found.data,
        "errors": [],
    }
    text: str = {"md": lambda: found.markdown, "html": lambda: page(found), "json": lambda: _json(whole)}[kind]()
    write_output(path, text)
    if args.json:
        print_json(whole)
    elif path is None:
        print_text(text)
    return 0


def comparing(state: State, words: Sequence[str]) -> State:
    """The state in which these two captures are compared. Raises UsageError for one that is not there."""
    lane = state.lane("steps")
    if not isinstance(lane.last, StepsReading) or not lane.last.captures:
        raise UsageError("--compare-captures: this investigation holds no capture", "p on the screen makes one")
    before, after = (_capture(lane.last, word) for word in words)
    if before == after:
        raise UsageError("--compare-captures: A and B are one capture", "name two")
    compared = msgspec.structs.replace(lane, last=msgspec.structs.replace(lane.last, compared=(before, after)))
    return msgspec.structs.replace(state, lanes=MappingProxyType({**state.lanes, "steps": compared}))


def _capture(steps: StepsReading, word: str) -> str:
    ids = [one.id for one in steps.captures]
    found = [word] if word in ids else [id for id in ids if id.startswith(word)]
    if len(found) != 1:
        what = "is no capture" if not found else "begins several captures"
        raise UsageError(f"--compare-captures: {plain(word) or repr(word)} {what}", f"there are: {', '.join(ids)}")
    return found[0]


def _for(args: argparse.Namespace, state: State, privacy: Privacy) -> int:
    if args.format not in (None, "md"):
        raise UsageError("--for writes markdown only", "leave --format out")
    text = environment(state, args.engine, privacy)
    path = output_path(args.output, file_name(state, f"-{args.engine}.md"))
    write_output(path, text)
    if args.json:
        print_json(
            {"schema": SCHEMA, "path": str(path) if path else None, "format": "md", "markdown": text, "errors": []}
        )
    elif path is None:
        print_text(text)
    return 0


def _diff(args: argparse.Namespace) -> int:
    """Raises UsageError for options that say what to look at: both are files here."""
    given = {"--tape": args.tape, "--for": args.engine, "-o": args.output, "--format": args.format}
    given["--compare-captures"] = args.compare_captures
    given["--anonymous"] = args.anonymous or None
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"--diff compares two files: {option} has no meaning with it", "leave one of them out")
    before, after = map(read, args.diff)
    edited = [path for path, one in zip(args.diff, (before, after), strict=True) if one.edited]
    notes = [f"the data of {path} was edited after it was written" for path in edited]
    found = difference(before.snapshot, after.snapshot, notes)
    if args.json:
        print_json(found)
    else:
        print_lines(difference_lines(found))
    return 0


def _format(args: argparse.Namespace) -> Format:
    if args.format is not None:
        chosen: Format = args.format
        return chosen
    return "md" if args.output is None else SUFFIXES.get(args.output.suffix.lower(), "md")


def _json(value: Any) -> str:
    return harmless_json(msgspec.json.format(encode(value), indent=2).decode()) + "\n"


def _of_box(settings: Settings) -> State:
    clock = SystemClock()
    return asyncio.run(watch(build_live(settings, clock), clock, LOOK_S, _warned, ready=settled))


def _warned(sample: Sample) -> None:
    if isinstance(sample.reading, Notice) and sample.reading.level != "info":
        complain(sample.reading.message, sample.reading.hint)


def _of_tape(path: Path) -> State:
    with Tape(path, codec()) as tape:
        lines, _ = tape.leading_to(tape.end_ns)
        return fold_all(tape.header, [sample for line in lines if (sample := tape.sample(line)) is not None])
