"""Hashes of the evidence, before anything is hidden: two snapshots tell by them whether they saw the same runs."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from decodetop.bench.reading import BenchReading, Run
from decodetop.core.state import State
from decodetop.floor.reading import FloorReading
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
    runs = {run.id: of(_lasting(run)) for run in bench.runs} if bench is not None else {}
    captures = {one.id: of(_placeless(one.report)) for one in steps.captures} if steps is not None else {}
    whole: dict[str, str] = {}
    if todo is not None:
        whole["checklist"] = of((todo.title, todo.todos))
    if floor is not None and floor.report is not None:
        whole["floor"] = of(replace(floor.report, model=replace(floor.report.model, path="")))
    if runs:
        whole["runs"] = of(list(runs.values()))
    if captures:
        whole["captures"] = of(list(captures.values()))
    return Hashes(whole, runs, captures)


def _placeless(report: StepsReport) -> StepsReport:
    """The same traces in another folder are the same evidence."""
    return replace(report, ranks=tuple(replace(rank, file=rank.file.rpartition("/")[2]) for rank in report.ranks))


def of(value: Any) -> str:
    try:
        return digest(msgspec.json.encode(value, order="deterministic").decode())
    except UnicodeEncodeError:  # a name that is no text: a path, a process's title
        return digest(repr(value))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def _lasting(run: Run) -> Run:
    """Without what the lane leaves out of older runs."""
    return replace(run, environment=replace(run.environment, flags={}, command=()))
