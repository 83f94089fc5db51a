"""`decodetop diagnose`: measure one stream, profile and break the step down, judge it, and say what to try next."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial

import msgspec

from decodetop.bench.plan import Overrides, load_presets
from decodetop.bench.reading import Run
from decodetop.cli.bench_options import INTERRUPTED, own_presets
from decodetop.cli.common import Meter, complain, path_option, print_json, print_lines, tell
from decodetop.cli.floor_options import ask_of, card_of, count, own_options, positive, served_options, steps_of
from decodetop.cli.output import output_path, write_output
from decodetop.cli.steps_capture import allowed
from decodetop.config import Settings, api_key
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Context
from decodetop.core.sample import Notice, Sample
from decodetop.core.state import State
from decodetop.diagnosis.reading import OVER, Diagnosis, DiagnosisReading, Stage
from decodetop.diagnosis.store import DiagnosisStore
from decodetop.diagnosis.text import kept_words, question, stage_line, under_way
from decodetop.errors import UsageError
from decodetop.floor import text
from decodetop.floor.hardware import Card
from decodetop.floor.reading import FloorReading, FloorReport
from decodetop.flows.bench import BenchService
from decodetop.flows.capture import CaptureService
from decodetop.flows.capture_headless import Driver, drive
from decodetop.flows.diagnose import DiagnoseService
from decodetop.flows.diagnose_ask import Request
from decodetop.flows.diagnose_kept import stored_run
from decodetop.flows.evidence import Linker
from decodetop.flows.floor import Seen
from decodetop.flows.live import bench_is_running
from decodetop.gpu.probe import GpuProbe
from decodetop.gpu.reading import GpuReading
from decodetop.report import file_name, markdown
from decodetop.server.reading import Server
from decodetop.steps.service import StepsService

PLAIN_WIDTH = 140


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON."""

    schema: int = 1
    id: str
    endpoint: str | None
    stages: tuple[Stage, ...]
    run: Run | None
    capture_id: str | None
    report: FloorReport
    todo_ids: tuple[str, ...]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "In one go: measures one stream of the server, profiles a few decode steps (asks before), and says how far the "
        "step is from what the hardware allows, why, and what to try next; the moves become items of the checklist. "
        "Interrupted, the same command goes on where it stopped."
    )
    served_options(parser)
    stages = parser.add_argument_group("stages that were had before")
    stages.add_argument("--measured-ms", type=positive, metavar="X", help="time per token: nothing is measured")
    stages.add_argument("--run", type=count, metavar="RUN", help="a stored run of one stream: nothing is measured")
    stages.add_argument("--steps", nargs="+", metavar="FILE", help="traces, their folder, a steps report: no profiling")
    newest = "nothing is profiled: the investigation's newest capture, if there is one"
    stages.add_argument("--no-capture", action="store_true", help=newest)
    stages.add_argument("--again", action="store_true", help="keep nothing of an unfinished diagnosis")
    bench = parser.add_argument_group("the benchmark, instead of what the preset single says")
    bench.add_argument("--requests", type=count, metavar="M", help="measured requests")
    bench.add_argument("--input-tokens", type=count, metavar="I", help="of every prompt")
    bench.add_argument("--output-tokens", type=count, metavar="O", help="of every answer")
    own_options(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask before profiling")
    parser.add_argument("--no-todos", action="store_true", help="leave the checklist alone")
    parser.add_argument("--explain", action="store_true", help="every line of the arithmetic and every assumption")
    parser.add_argument(
        "-o", "--output", type=path_option, metavar="FILE", help="also write the report there; a folder: the usual name"
    )
    parser.add_argument("--json", action="store_true", help="data on stdout")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """The traces are read first: what is wrong with them should not cost a benchmark."""
    request = _request(args, settings)
    measures, profiles = args.measured_ms is None and args.run is None, request.profile and request.steps is None
    if settings.readonly and (measures or profiles):
        hint = "leave --readonly out, or give what was had before: --run or --measured-ms, with --no-capture or --steps"
        raise UsageError("a diagnosis loads and profiles the server: refused with --readonly", hint)
    key = api_key(settings)
    if profiles and not args.yes:
        asked = partial(question, request.endpoint)
        if not allowed("a diagnosis", lambda server: f"Diagnose {asked(server)}", settings, key):
            return 1
    driver = _driven(args, request, settings, key)
    diagnosis = driver.result
    if not driver.done or diagnosis is None:
        last = DiagnosisStore(settings.investigation).newest()
        kept = kept_words(last) if last is not None else ""
        complain(f"interrupted; {kept or 'nothing is kept'}; the same command goes on")
        return INTERRUPTED
    assert driver.state is not None
    _print(args, settings, diagnosis, driver.state)
    # last: a file that can't be written must not cost what was measured for it
    write_output(output_path(args.output, file_name(driver.state)), markdown(driver.state) if args.output else "")
    return 0


def _request(args: argparse.Namespace, settings: Settings) -> Request:
    load = Overrides(requests=args.requests, input_tokens=args.input_tokens, output_tokens=args.output_tokens)
    return Request(
        endpoint=next(iter(settings.endpoints), None),
        again=args.again,
        ask=ask_of(args),
        load=load,
        run_id=args.run,
        steps=None if args.steps is None else steps_of(args.steps),
        profile=not args.no_capture,
        offer=not args.no_todos,
    )


def _driven(
    args: argparse.Namespace, request: Request, settings: Settings, key: str | None
) -> Driver[Diagnosis | None]:
    folder, presets, clock = settings.investigation, load_presets(own_presets(settings)), SystemClock()

    def card(server: Server | None, gpus: GpuReading | None, problem: str | None) -> Card:
        return card_of(args, Seen(server, gpus, problem))

    bench, steps = BenchService(folder, presets, lambda: key), StepsService(folder)
    capture = CaptureService(folder, steps, lambda: key)
    service = DiagnoseService(folder, presets, bench, capture, card)
    teller, linker = _Teller(), Linker(folder, clock)

    async def work(context: Context) -> Diagnosis | None:
        found = await service.diagnose(request, context)
        if found is not None:
            context.emit("floor", FloorReading(report=found.report))
        return found

    def heard(sample: Sample) -> None:
        teller.heard(sample)
        linker.hear(sample)

    try:
        return asyncio.run(
            drive(
                work,
                clock,
                settings.endpoints,
                key,
                (bench, steps, capture, service),
                heard,
                lambda state: (GpuProbe(clock, quiet=lambda: bench_is_running(state())),),
            )
        )
    finally:
        teller.clear()
        for word in linker.words:
            complain(word)


def _print(args: argparse.Namespace, settings: Settings, diagnosis: Diagnosis, state: State) -> None:
    report = diagnosis.report
    assert report is not None
    if args.json:
        print_json(
            Printed(
                id=diagnosis.id,
                endpoint=diagnosis.subject.endpoint if diagnosis.subject is not None else None,
                stages=diagnosis.stages,
                run=None if diagnosis.run_id is None else stored_run(settings.investigation, diagnosis.run_id),
                capture_id=diagnosis.capture_id,
                report=report,
                todo_ids=diagnosis.todo_ids,
            )
        )
        return
    print_lines(text.lines(report, PLAIN_WIDTH))
    if args.explain:
        print_lines(["", *text.explain(report, PLAIN_WIDTH)])


class _Teller:
    """Each stage's end in a line, its progress on a terminal; warnings in any case."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._said: set[str] = set()

    def heard(self, sample: Sample) -> None:
        reading = sample.reading
        if isinstance(reading, Notice) and reading.level == "warning":
            complain(reading.message)
        elif isinstance(reading, DiagnosisReading) and reading.running and reading.latest is not None:
            for stage in reading.latest.stages:
                if stage.status in (*OVER, "failed") and stage.name not in self._said:
                    self._said.add(stage.name)
                    tell(stage_line(stage))
            self._meter.show(under_way(reading.latest))

    def clear(self) -> None:
        self._meter.clear()
