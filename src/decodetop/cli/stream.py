"""`decodetop stream`: samples as NDJSON on stdout, for `--from` and for pipes."""

from __future__ import annotations

import argparse
import asyncio

from decodetop.cli.common import finite, print_bytes
from decodetop.config import Settings
from decodetop.core.clock import SystemClock
from decodetop.core.sample import Sample
from decodetop.flows.catalog import codec
from decodetop.flows.live import build_live
from decodetop.flows.session import watch


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--duration-s", type=finite, metavar="S", help="stop after S seconds (default: Ctrl-C)")
    parser.add_argument("--json", action="store_true", help="accepted for symmetry: the stream is JSON lines")


def run(args: argparse.Namespace, settings: Settings) -> int:
    clock = SystemClock()
    engine = build_live(settings, clock)
    lines = codec()

    def listener(sample: Sample) -> None:
        print_bytes(lines.line(sample))

    print_bytes(lines.header_line(engine.header))
    asyncio.run(watch(engine, clock, args.duration_s, listener))
    return 0
