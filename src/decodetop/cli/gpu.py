"""`decodetop gpu`: what NVML says of the GPUs, once or every second."""

from __future__ import annotations

import argparse
import asyncio
import sys

from decodetop.cli.common import clear_screen, print_json, print_json_line, print_lines
from decodetop.config import Settings
from decodetop.core.clock import SECOND_NS, Clock, SystemClock
from decodetop.core.sample import Failure, Reading, failure_of
from decodetop.errors import DecodetopError
from decodetop.gpu.probe import GpuProbe
from decodetop.gpu.reading import GpuReading
from decodetop.gpu.text import lines


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON (with --watch: one object a line)")
    parser.add_argument("--watch", action="store_true", help="print again every second until interrupted")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """1 when nothing could be measured; the JSON is printed all the same."""
    return asyncio.run(_run(args.json, args.watch, settings.rate_s, SystemClock()))


async def _run(as_json: bool, watch: bool, rate_s: float, clock: Clock) -> int:
    probe = GpuProbe(clock)
    try:
        seen = await _see(probe)
        if not watch:
            # rates and GPM figures stand between two readings
            if isinstance(seen, GpuReading):
                await clock.sleep_until(clock.now_ns() + SECOND_NS)
                seen = await _see(probe)
            _show(seen, as_json, clock)
            return 0 if _measured(seen) else 1
        while True:
            due_ns = clock.now_ns() + int(rate_s * SECOND_NS)
            _show(seen, as_json, clock, again=True)
            await clock.sleep_until(due_ns)
            seen = await _see(probe)
    finally:
        await probe.close()


async def _see(probe: GpuProbe) -> Reading | Failure:
    try:
        return await probe.read()
    except DecodetopError as error:
        return failure_of(error)


def _measured(seen: Reading | Failure) -> bool:
    return isinstance(seen, GpuReading) and any(gpu.state == "ok" for gpu in seen.gpus)


def _show(seen: Reading | Failure, as_json: bool, clock: Clock, again: bool = False) -> None:
    if as_json:
        reading, failure = (None, seen) if isinstance(seen, Failure) else (seen, None)
        answer = {"schema": 1, "source": "gpu", "reading": reading, "failure": failure, "errors": _errors(seen)}
        if again:
            print_json_line(answer)
        else:
            print_json(answer)
    else:
        if again:
            clear_screen()
        if isinstance(seen, GpuReading):
            print_lines(lines(seen, clock.now_ns()))
        elif isinstance(seen, Failure):
            print_lines([f"no GPU figures: {seen.message}", *([f"  hint: {seen.hint}"] if seen.hint else [])])
    sys.stdout.flush()


def _errors(seen: Reading | Failure) -> list[dict[str, object]]:
    """What could not be read of single GPUs."""
    gpus = seen.gpus if isinstance(seen, GpuReading) else ()
    return [{"gpu": gpu.index, "state": gpu.state, "message": gpu.state_message} for gpu in gpus if gpu.state != "ok"]
