"""Hashes of the evidence, before anything is hidden: two snapshots tell by them whether they saw the same runs."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from decodetop.bench.reading import BenchReading, Run
from decodetop.core.encode import encode
from decodetop.core.state import State
from decodetop.floor.reading import FloorReading, FloorReport
from decodetop.steps.reading import StepsReading, StepsReport
from decodetop.todo.reading import TodoReading

DIGITS = 16


class Hashes(NamedTuple):
    """The beginnings of SHA-256. `whole`: checklist, floor, runs, captures, as far as they are there."""

    whole: dict[str, str]
    runs: dict[int | None, str]
    captures: dict[str, str]


def hashes_of(state: State) -> Hashes:
    todo, bench = state.last("todo", TodoReading), state.last("bench", BenchReading)
    steps, floor = state.last("steps", StepsReading), state.last("floor", FloorReading)
    runs = {run.id: _of_run(run) for run in bench.runs} if bench is not None else {}
    captures = {one.id: _of_capture(one.report) for one in steps.captures} if steps is not None else {}
    whole: dict[str, str] = {}
    if todo is not None:
        whole["checklist"] = of((todo.title, todo.todos))
    if floor is not None and floor.report is not None:
        whole["floor"] = _of_floor(floor.report)
    if runs:
        whole["runs"] = of(list(runs.values()))
    if captures:
        whole["captures"] = of(list(captures.values()))
    return Hashes(whole, runs, captures)


def _of_run(run: Run) -> str:
    """What was measured of what, named one by one: a field that a later decodetop adds makes it no other run."""
    plan, metrics = run.plan, run.metrics
    asked = (plan.endpoint, plan.preset, plan.api, plan.streams, plan.requests, plan.input_tokens, plan.output_tokens)
    spreads = [
        None if one is None else (one.n, one.mean, one.p50, one.p90, one.p99)
        for one in (metrics.ttft_ms, metrics.itl_ms, metrics.icl_ms, metrics.tpot_ms, metrics.e2e_ms)
    ]
    counts = (run.requests.ok, run.requests.failed, run.tokens.output, run.tokens.prompt)
    return of((run.started_wall_ns, run.duration_s, asked, counts, spreads, metrics.output_tok_s))


def _of_capture(report: StepsReport) -> str:
    """As `_of_run`; the same traces in another folder are the same evidence."""
    return of([(rank.rank, rank.busy_us, rank.kinds_us, rank.kernels_per_step, rank.events) for rank in report.ranks])


def _of_floor(report: FloorReport) -> str:
    held, plan = report.bytes, report.plan
    times = (report.t_phys_ms, report.t_prac_ms, report.t_meas_ms)
    return of((held.weights, held.kv, held.state, held.draft, plan.tp, plan.batch, plan.context, times))


def of(value: Any) -> str:
    try:
        return digest(encode(value, "deterministic").decode())
    except UnicodeEncodeError:  # a name that is no text: a path, a process's title
        return digest(repr(value))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]
