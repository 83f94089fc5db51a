"""`decodetop record`: what the sources say, to a tape."""

from __future__ import annotations

import argparse
import asyncio
import sys

from decodetop.cli.common import finite, path_option, print_json, print_lines, tell
from decodetop.config import Settings
from decodetop.core.clock import SystemClock
from decodetop.core.tape import TapeWriter
from decodetop.flows.catalog import codec
from decodetop.flows.live import build_live
from decodetop.flows.session import watch


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=path_option, required=True, metavar="FILE", help="the tape; never overwritten"
    )
    parser.add_argument("--duration-s", type=finite, metavar="S", help="stop after S seconds (default: Ctrl-C)")
    parser.add_argument("--json", action="store_true", help="say the result as JSON")


def run(args: argparse.Namespace, settings: Settings) -> int:
    clock = SystemClock()
    engine = build_live(settings, clock)
    tape = TapeWriter(args.output, engine.header, codec())
    if sys.stderr.isatty():
        tell(f"recording to {tape.path}; Ctrl-C ends")
    try:
        asyncio.run(watch(engine, clock, args.duration_s, tape.write))
    finally:
        tape.close()
    if args.json:
        print_json({"schema": 1, "path": str(tape.path), "samples": tape.samples, "errors": []})
    else:
        print_lines([f"{tape.samples} samples in {tape.path}"])
    return 0
