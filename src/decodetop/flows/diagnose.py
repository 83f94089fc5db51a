"""Diagnose in one go: one stream measured, a step breakdown, floor, verdict, next moves as items of the checklist.

Every stage can be had before: a run of the store or a time given stands for the measuring, trace files for the newest
capture. So what was interrupted goes on where it stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from decodetop.bench.plan import Overrides, choose, plans_of
from decodetop.bench.reading import Preset, Run
from decodetop.core.engine import Context
from decodetop.core.words import significant
from decodetop.errors import DataError, RequestError
from decodetop.floor.hardware import Card
from decodetop.floor.measured import breakdown_of
from decodetop.floor.reading import FloorReport, Move
from decodetop.floor.rules import Clocks
from decodetop.floor.text import EFFORTS
from decodetop.flows.bench import BenchService, new_seed
from decodetop.flows.floor import Ask, answer, from_server
from decodetop.gpu.reading import GpuReading
from decodetop.server.reading import Server
from decodetop.steps.reading import StepsReport
from decodetop.steps.store import CaptureStore
from decodetop.todo import model
from decodetop.todo.document import Document
from decodetop.todo.reading import AddTodo
from decodetop.todo.store import TodoStore
from decodetop.todo.view import todos_of

SCHEMA = 1
PRESET = "single"
"""One stream: a step of one sequence is what the floor bounds."""

CLOSED = ("completed", "cancelled")


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    name: Literal["measure", "steps", "judge", "checklist"]
    status: Literal["done", "skipped"]
    words: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """`todo_ids` = items added to the checklist."""

    schema: int = SCHEMA
    endpoint: str | None
    stages: tuple[Stage, ...]
    run: Run | None
    report: FloorReport
    todo_ids: tuple[str, ...] = ()


async def measure(
    service: BenchService,
    context: Context,
    stop: asyncio.Event,
    endpoint: str,
    presets: Sequence[Preset],
    asked: Overrides,
) -> Run:
    """One stream. Raises RequestError when it brought nothing, DecodetopError as the benchmark does."""
    outcome = await service.measure(plans_of(choose(presets, PRESET), endpoint, new_seed(), asked), context, stop)
    if outcome.error is not None:
        raise outcome.error
    if not outcome.runs or token_ms(outcome.runs[0]) is None:
        raise RequestError(f"{endpoint}: no time per token could be measured", "decodetop bench run says why")
    return outcome.runs[0]


def token_ms(run: Run) -> float | None:
    """Time per token of one stream: ITL where chunks tell their tokens, else TPOT."""
    metrics = run.metrics
    found = metrics.itl_ms or metrics.tpot_ms
    return None if found is None else found.p50


def of_run(ask: Ask, run: Run) -> Ask:
    """What the run says of the step: its time, its context half way through the answer, and tokens a step."""
    if run.plan.streams != 1:
        raise DataError(f"run {run.id} has {run.plan.streams} streams", "a diagnosis needs a run of one")
    context = run.plan.input_tokens + run.plan.output_tokens // 2
    return msgspec.structs.replace(
        ask,
        token_ms=token_ms(run) if ask.token_ms is None else ask.token_ms,
        accept_length=ask.accept_length or run.metrics.accept_length,
        batch=1,
        context=ask.context or context,
    )


def newest_steps(investigation: Path) -> tuple[StepsReport | None, str]:
    """The newest capture of the investigation, and words about it."""
    store = CaptureStore(investigation)
    store.load()
    if not store.captures:
        return None, "no capture in this investigation: judged without one"
    newest = store.captures[0]
    return newest.report, f"capture {newest.id}, the newest of the investigation"


def of_one_stream(steps: StepsReport | None, words: str) -> tuple[StepsReport | None, Stage]:
    """A capture of more sequences can't explain a step of one."""
    seen = None if steps is None else breakdown_of(steps)
    if steps is None or seen is None:
        return None, Stage(name="steps", status="skipped", words=words)
    if seen.batch not in (None, 1):
        words = f"{words}: of a batch of {seen.batch}, so it does not explain a step of one stream"
        return None, Stage(name="steps", status="skipped", words=words)
    return steps, Stage(name="steps", status="done", words=words)


def conclude(
    ask: Ask,
    card: Card,
    *,
    server: Server | None,
    steps: StepsReport | None,
    run: Run | None,
    gpus: GpuReading | None,
) -> FloorReport:
    """Raises UsageError, DataError."""
    if run is not None:
        ask = of_run(ask, run)
    if server is not None:
        ask = from_server(server, ask)
    return answer(ask, card, steps=steps, server=server, clocks=None if run is None else clocks_of_run(run, gpus))


def clocks_of_run(run: Run, gpus: GpuReading | None) -> Clocks | None:
    """Means while the load ran, of the slowest GPU that was busy."""
    tops = {gpu.index: gpu for gpu in gpus.gpus} if gpus is not None else {}
    busy = [
        span for span in run.environment.gpus if (span.utilization_percent_mean or 0.0) >= 50 and span.index in tops
    ]
    if not busy:
        return None
    slowest = min(busy, key=lambda span: span.sm_clock_mhz_mean or float("inf"))
    top = tops[slowest.index]
    return Clocks(
        sm=None if slowest.sm_clock_mhz_mean is None else round(slowest.sm_clock_mhz_mean),
        sm_max=top.sm_clock_max_mhz,
        memory=None if slowest.mem_clock_mhz_mean is None else round(slowest.mem_clock_mhz_mean),
        memory_max=top.mem_clock_max_mhz,
        reasons=slowest.event_reasons,
    )


def offer(report: FloorReport, folder: Path, wall_ns: int) -> tuple[str, ...]:
    """The moves as pending items, with hypothesis and expected effect; what is open already is not added twice."""
    added: list[str] = []

    def change(document: Document) -> Document:
        added.clear()
        listed = {todo.content for todo in todos_of(document.items) if todo.status not in CLOSED}
        for move in report.moves:
            command = todo_of_move(move)
            if model.one_line(command.content) not in listed:
                document, id = model.add(document, command, wall_ns)
                added.append(id)
        return document

    TodoStore(folder).update(change)
    return tuple(added)


def todo_of_move(move: Move) -> AddTodo:
    notes = [*([f"trade: {move.trade}"] if move.trade else [])]
    notes += [f"silently inactive: {one}" for one in move.inactive]
    notes += [f"may fail at start: {one}" for one in move.failures]
    return AddTodo(
        content=f"{move.title}: {move.set}",
        priority="high" if (move.gain_ms or 0.0) > 0 and move.effort == 1 else "medium",
        hypothesis=move.why,
        expected=f"{move.gain_words} ({EFFORTS[move.effort]})",
        notes="\n".join(notes) or None,
    )


def measured_words(run: Run) -> str:
    name = "a run that was not stored" if run.id is None else f"run {run.id}"
    doubt = "" if run.valid else "; its gates say that it can't be relied on"
    return f"{name}: {significant(token_ms(run))} ms a token, one stream{doubt}"
