"""The source `floor`: bound, gap and verdict of the current server, computed when what they rest on changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from decodetop.bench.reading import BenchReading, Run
from decodetop.core.engine import Context
from decodetop.core.sample import Command, Sample
from decodetop.core.state import State
from decodetop.core.thread import CallThread
from decodetop.errors import DecodetopError
from decodetop.floor import calibration, hardware
from decodetop.floor.formats import FORMATS, KV_BYTES
from decodetop.floor.hardware import Card
from decodetop.floor.reading import NOTHING_ELSE, AskWhatIf, Choices, FloorReading, FloorReport, WhatIf
from decodetop.flows.floor import Ask, answer, from_server
from decodetop.flows.judging import batch_of, card_of, conclude
from decodetop.flows.standing import standing
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.server.reading import Server, ServerReading
from decodetop.steps.reading import Capture, StepsReading

SOURCES = ("server", "gpu", "bench", "steps")
STILL = (
    "endpoint", "engine", "version", "local", "model", "served_name", "root_pid", "started_wall_ns", "gpu_indices",
    "gpu_uuids", "command", "flags", "tp", "pp", "dp", "ep", "quantization", "weights_dtype", "kv_dtype", "cuda_graph",
    "cuda_graph_max_batch", "speculative_algorithm", "speculative_steps", "speculative_draft_tokens", "processes",
)  # fmt: skip
"""Fields of a server that do not move with its load."""


class Basis(NamedTuple):
    """What the floor rests on; equal = nothing to compute anew. `gpus` without what moves with the load."""

    server: Server | None
    gpus: GpuReading | None
    gpu_problem: str | None
    run: tuple[int | None, int] | None
    capture: str | None
    asked: WhatIf


class FloorService:
    """Follows the other sources. A what-if is answered beside the floor as it is."""

    source = "floor"
    commands: tuple[type[Command], ...] = (AskWhatIf,)

    def __init__(self, folder: Path) -> None:
        """`folder` is the investigation's: its calibration is preferred where no step was traced."""
        self._folder = folder
        self._asked = NOTHING_ELSE
        self._changed = asyncio.Event()
        self._seen: Basis | None = None

    async def run(self, context: Context) -> None:
        thread = CallThread("decodetop-floor")
        unsubscribe = context.subscribe(partial(self._hear, context))
        self._seen = None
        self._look(context)
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                work = self._work(context.state)
                reading = await thread.call(work) if work is not None else FloorReading(problem="no server was found")
                context.emit(self.source, reading)
        finally:
            unsubscribe()
            thread.close()

    async def handle(self, command: Command, context: Context) -> None:
        if isinstance(command, AskWhatIf):
            self._asked = command.ask
            self._look(context)

    def _hear(self, context: Context, sample: Sample) -> None:
        if sample.source in SOURCES:
            self._look(context)

    def _look(self, context: Context) -> None:
        basis = basis_of(context.state, self._asked)
        if basis is not None and basis != self._seen:
            self._seen = basis
            self._changed.set()

    def _work(self, state: State) -> Callable[[], FloorReading] | None:
        servers = state.last("server", ServerReading)
        server = servers.current_server if servers is not None else None
        if server is None:
            return None
        run, capture = standing(server, state.last("bench", BenchReading), state.last("steps", StepsReading))
        lane = state.lane("gpu")
        problem = lane.failure.message if lane.failure is not None else None
        gpus = state.last("gpu", GpuReading)
        return partial(computed, self._folder, server, gpus, problem, run, capture, self._asked)


def basis_of(state: State, asked: WhatIf) -> Basis | None:
    """None before the server's source has spoken."""
    servers = state.last("server", ServerReading)
    if servers is None:
        return None
    server = servers.current_server
    if server is None:
        return Basis(None, None, None, None, None, asked)
    run, capture = standing(server, state.last("bench", BenchReading), state.last("steps", StepsReading))
    lane = state.lane("gpu")
    still = Server(**{name: getattr(server, name) for name in STILL})
    failure = None if lane.failure is None else lane.failure.message
    return Basis(
        still,
        still_gpus(state.last("gpu", GpuReading)),
        failure,
        None if run is None else (run.id, run.started_wall_ns),
        None if capture is None else capture.id,
        asked,
    )


def still_gpus(gpus: GpuReading | None) -> GpuReading | None:
    """What of the cards does not move with the load: a clock of this second is no reason to judge anew."""
    if gpus is None:
        return None
    cards = tuple(
        Gpu(
            index=gpu.index,
            uuid=gpu.uuid,
            name=gpu.name,
            state=gpu.state,
            mem_clock_max_mhz=gpu.mem_clock_max_mhz,
            sm_clock_max_mhz=gpu.sm_clock_max_mhz,
            memory_bus_bits=gpu.memory_bus_bits,
            memory_total_bytes=gpu.memory_total_bytes,
            memory_is_unified=gpu.memory_is_unified,
            mig_enabled=gpu.mig_enabled,
        )
        for gpu in gpus.gpus
    )
    return GpuReading(gpus=cards, links=gpus.links)


def computed(
    folder: Path,
    server: Server,
    gpus: GpuReading | None,
    problem: str | None,
    run: Run | None,
    capture: Capture | None,
    asked: WhatIf,
) -> FloorReading:
    """Blocks on the model's files. What can't be computed is a reading with the reason."""
    reading = FloorReading(
        endpoint=server.endpoint,
        run_id=None if run is None else run.id,
        capture_id=None if capture is None else capture.id,
        asked=asked,
        choices=choices(),
    )
    kept = calibration.load(folder)
    still = msgspec.structs.replace(server, running=None, kv_usage=None)
    try:
        base = from_server(still, Ask(batch=(None if capture is None else batch_of(capture.report)) or 1))
        card = card_of(server, gpus, problem)
        report = _as_it_is(base, card, still, gpus, run, capture, kept.get(card.hardware.name))
        reading = msgspec.structs.replace(reading, report=report)
    except DecodetopError as error:
        reading = msgspec.structs.replace(reading, problem=error.message, hint=error.hint)
        card = None
    return reading if asked == NOTHING_ELSE else _with_what_if(reading, still, card, kept)


def _as_it_is(
    ask: Ask,
    card: Card,
    server: Server,
    gpus: GpuReading | None,
    run: Run | None,
    capture: Capture | None,
    kept: calibration.Calibration | None,
) -> FloorReport:
    if run is None and capture is None:
        return answer(ask, card, server=server, calibration=kept)
    steps = None if capture is None else capture.report
    return conclude(ask, card, server=server, steps=steps, run=run, gpus=gpus)


def _with_what_if(
    reading: FloorReading, server: Server, card: Card | None, kept: dict[str, calibration.Calibration]
) -> FloorReading:
    """As it is but for what is asked; nothing of it was measured."""
    asked = reading.asked
    try:
        ask = from_server(server, Ask(batch=1))
        if reading.report is not None:
            plan = reading.report.plan
            ask = msgspec.structs.replace(ask, batch=plan.batch, context=plan.context, accept_length=plan.accept_length)
        changes = {
            name: value
            for name in ("batch", "context", "kv_dtype", "weights_dtype", "tp")
            if (value := getattr(asked, name)) is not None
        }
        if asked.gpu is not None:
            card = hardware.named(asked.gpu, hardware.load(None))
        if card is None:
            return msgspec.structs.replace(reading, what_if_problem=reading.problem)
        asked_for = msgspec.structs.replace(ask, **changes)
        found = answer(asked_for, card, server=server, calibration=kept.get(card.hardware.name))
    except DecodetopError as error:
        return msgspec.structs.replace(reading, what_if_problem=str(error))
    return msgspec.structs.replace(reading, what_if=msgspec.structs.replace(found, moves=(), verdict=None))


def choices() -> Choices:
    return Choices(
        kv_dtypes=tuple(name for name in KV_BYTES if name in ("bf16", "fp8_e4m3", "int8", "fp4_e2m1")),
        weights_dtypes=tuple(name for name in FORMATS if name not in ("fp16", "fp32")),
        gpus=tuple(spec.name for spec in hardware.load(None)),
    )
