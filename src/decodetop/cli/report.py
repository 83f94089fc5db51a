"""`decodetop report`: everything as markdown."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from decodetop.cli.common import complain, path_option, print_json, print_text
from decodetop.config import Settings
from decodetop.core.atomic import real_path, replace
from decodetop.core.clock import SystemClock
from decodetop.core.state import State
from decodetop.core.tape import Tape
from decodetop.errors import DataError
from decodetop.flows.catalog import codec
from decodetop.flows.live import build_live, settled
from decodetop.flows.session import watch
from decodetop.report import file_name, markdown

LOOK_S = 4.0
"""How long to look before writing: two rounds of the slowest first reading, so that rates exist."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        type=path_option,
        metavar="FILE",
        help="write there instead of to stdout; a folder (`.`): under the usual name there",
    )
    parser.add_argument("--tape", type=path_option, metavar="TAPE", help="of a tape's end instead of the live box")
    parser.add_argument("--json", action="store_true", help='{"schema", "path", "markdown"}')


def run(args: argparse.Namespace, settings: Settings) -> int:
    state = _of_tape(args.tape) if args.tape else _of_box(settings)
    text = markdown(state)
    path = None
    if args.output is not None:
        path = args.output / file_name(state) if args.output.is_dir() else args.output
        _write(path, text.encode("utf-8"))
        complain(f"wrote {path}")
    if args.json:
        print_json({"schema": 1, "path": str(path) if path else None, "markdown": text, "errors": []})
    elif path is None:
        print_text(text)
    return 0


def _write(path: Path, text: bytes) -> None:
    """Raises DataError."""
    if not path.is_relative_to("/dev"):
        replace(real_path(path), text)
        return
    try:
        with path.open("wb") as stream:  # /dev/stdout and the like, whatever it is now
            stream.write(text)
    except OSError as error:
        raise DataError(f"can't write {path}: {error.strerror}", "name a file, or leave -o out for stdout") from error


def _of_box(settings: Settings) -> State:
    clock = SystemClock()
    return asyncio.run(watch(build_live(settings, clock), clock, LOOK_S, ready=settled))


def _of_tape(path: Path) -> State:
    from decodetop.core.state import fold_all

    with Tape(path, codec()) as tape:
        lines, _ = tape.leading_to(tape.end_ns)
        return fold_all(tape.header, [sample for line in lines if (sample := tape.sample(line)) is not None])
