"""`decodetop floor`: the lower bound of a decode step, the gap to what was measured, a verdict and next moves."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from decodetop.cli.common import complain, print_json, print_lines
from decodetop.cli.floor_options import ask_of, card_of, own_options, positive, served_options, steps_of
from decodetop.config import Settings, api_key
from decodetop.core.clock import SystemClock
from decodetop.errors import UsageError
from decodetop.floor import calibration, text
from decodetop.flows.floor import Seen, answer, calibrated, clocks_of, from_server, look

PLAIN_WIDTH = 140


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "The hard lower bound of one decode step from the model's bytes and the GPU, what practice adds to it, and - "
        "with a measurement - where the rest goes. Without --model the server of this box is asked for all of it."
    )
    served_options(parser)
    seen = parser.add_argument_group("what was measured")
    seen.add_argument("--measured-ms", type=positive, metavar="X", help="time per token of a stream (ITL)")
    seen.add_argument("--measured-step-ms", type=positive, metavar="X", help="time per step, where it is known")
    seen.add_argument(
        "--steps", nargs="+", metavar="FILE", help="traces of all ranks, their folder, or the JSON of `decodetop steps`"
    )
    own_options(parser)
    parser.add_argument(
        "--calibrate", action="store_true", help="keep this box's constants, from --steps, for what-ifs"
    )
    parser.add_argument("--explain", action="store_true", help="every line of the arithmetic and every assumption")
    parser.add_argument("--json", action="store_true", help="data on stdout")


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.calibrate and not args.steps:
        raise UsageError("--calibrate needs a step breakdown", "give --steps TRACE of all ranks")
    steps = steps_of(args.steps) if args.steps else None
    ask = ask_of(args)
    ask_server, ask_nvml = args.model is None or bool(settings.endpoints), args.gpu == "auto"
    seen = Seen()
    if ask_server or ask_nvml:
        looking = look(SystemClock(), settings.endpoints, api_key(settings), server=ask_server, gpus=ask_nvml)
        seen = asyncio.run(looking)
    if seen.server is not None:
        ask = from_server(seen.server, ask)
    elif args.model is None:
        raise UsageError("there is no model to judge", "give --model PATH, or start the server on this box")
    card = card_of(args, seen)
    if args.calibrate and steps is not None:
        found = calibrated(ask, card, steps, ", ".join(Path(name).name for name in args.steps))
        kept = calibration.save(settings.investigation, card.hardware.name, found)
        complain(f"constants of {card.hardware.name} kept in {kept}")
    stored = calibration.load(settings.investigation).get(card.hardware.name)
    report = answer(ask, card, steps=steps, server=seen.server, clocks=clocks_of(seen.gpus), calibration=stored)
    if args.json:
        print_json(report)
    else:
        print_lines(text.lines(report, PLAIN_WIDTH))
        for error in report.errors:
            complain(error)
        if args.explain:
            print_lines(["", *text.explain(report, PLAIN_WIDTH)])
    return 0
