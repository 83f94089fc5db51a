"""`decodetop diagnose`: measure one stream, break the step down, judge it, and say what to try next."""

from __future__ import annotations

import argparse
import asyncio
from typing import NamedTuple

from decodetop.bench.plan import Overrides, load_presets
from decodetop.bench.reading import Run
from decodetop.bench.store import RunStore
from decodetop.cli.bench_options import INTERRUPTED, measured, own_presets
from decodetop.cli.common import print_json, print_lines, tell
from decodetop.cli.floor_options import ask_of, card_of, count, own_options, positive, served_options, steps_of
from decodetop.config import Settings, api_key
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine
from decodetop.floor import text
from decodetop.flows.bench import BenchService
from decodetop.flows.bench_headless import need_endpoint
from decodetop.flows.diagnose import (
    Diagnosis,
    Stage,
    conclude,
    measure,
    measured_words,
    newest_steps,
    of_one_stream,
    offer,
)
from decodetop.flows.floor import Seen, look
from decodetop.gpu.reading import GpuReading
from decodetop.server.reading import ServerReading

PLAIN_WIDTH = 140


class _Measured(NamedTuple):
    run: Run | None
    seen: Seen
    stage: Stage
    stopped: bool = False


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measures one stream of the server, takes the newest capture of the investigation (or the traces given), and "
        "says how far the step is from what the hardware allows, why, and what to try next."
    )
    served_options(parser)
    stages = parser.add_argument_group("stages that were had before")
    stages.add_argument("--measured-ms", type=positive, metavar="X", help="time per token: nothing is measured")
    stages.add_argument("--run", type=count, metavar="RUN", help="a stored run of one stream: nothing is measured")
    stages.add_argument("--steps", nargs="+", metavar="FILE", help="traces or a steps report instead of the capture")
    bench = parser.add_argument_group("the benchmark, instead of what the preset single says")
    bench.add_argument("--requests", type=count, metavar="M", help="measured requests")
    bench.add_argument("--input-tokens", type=count, metavar="I", help="of every prompt")
    bench.add_argument("--output-tokens", type=count, metavar="O", help="of every answer")
    own_options(parser)
    parser.add_argument("--todos", action="store_true", help="add the moves to the checklist of the investigation")
    parser.add_argument("--json", action="store_true", help="data on stdout")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """The traces are read first: what is wrong with them should not cost a benchmark."""
    given = None if args.steps is None else (steps_of(args.steps), "the traces given")
    ask = ask_of(args)
    had = _measure(args, settings)
    if had.stopped:
        return INTERRUPTED
    _tell(had.stage)
    steps, step_stage = of_one_stream(*(given or newest_steps(settings.investigation)))
    _tell(step_stage)
    card = card_of(args, had.seen)
    report = conclude(ask, card, server=had.seen.server, steps=steps, run=had.run, gpus=had.seen.gpus)
    assert report.verdict is not None
    stages = [had.stage, step_stage, Stage(name="judge", status="done", words=report.verdict.sentence)]
    ids: tuple[str, ...] = ()
    if args.todos:
        ids = offer(report, settings.investigation, SystemClock().wall_ns())
        stages.append(Stage(name="checklist", status="done", words=f"{len(ids)} items added"))
        _tell(stages[-1])
    endpoint = had.seen.server.endpoint if had.seen.server is not None else None
    found = Diagnosis(endpoint=endpoint, stages=tuple(stages), run=had.run, report=report, todo_ids=ids)
    if args.json:
        print_json(found)
    else:
        print_lines(text.lines(report, PLAIN_WIDTH))
    return 0


def _measure(args: argparse.Namespace, settings: Settings) -> _Measured:
    """A time or a run that was had before, else one stream now; the server and the GPUs looked at in any case."""
    if args.measured_ms is None and args.run is None:
        return _bench(args, settings)
    seen = asyncio.run(look(SystemClock(), settings.endpoints, api_key(settings), server=True, gpus=True))
    if args.measured_ms is not None:
        return _Measured(None, seen, Stage(name="measure", status="skipped", words="time per token as given"))
    store = RunStore(settings.investigation)
    try:
        kept = store.get(args.run)
    finally:
        store.close()
    return _Measured(kept, seen, Stage(name="measure", status="skipped", words=measured_words(kept)))


def _bench(args: argparse.Namespace, settings: Settings) -> _Measured:
    presets = load_presets(own_presets(settings))
    asked = Overrides(requests=args.requests, input_tokens=args.input_tokens, output_tokens=args.output_tokens)

    async def work(service: BenchService, engine: Engine, stop: asyncio.Event) -> tuple[Run, Seen]:
        made = await measure(service, engine, stop, need_endpoint(settings.endpoints, engine.state), presets, asked)
        servers, gpus = engine.state.last("server", ServerReading), engine.state.last("gpu", GpuReading)
        failure = engine.state.lane("gpu").failure
        server = None if servers is None else servers.current_server
        return made, Seen(server, gpus, None if failure is None else failure.message)

    ended = measured(work, settings, presets)
    made, seen = ended.result
    return _Measured(made, seen, Stage(name="measure", status="done", words=measured_words(made)), ended.stopped)


def _tell(stage: Stage) -> None:
    tell(f"{stage.name}: {stage.status}, {stage.words}")
