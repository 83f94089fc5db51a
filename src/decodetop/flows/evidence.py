"""Evidence that links itself: what was measured while an item is in progress belongs to that item."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from decodetop.bench.compare import Comparison
from decodetop.bench.reading import BenchReading, Run
from decodetop.core.clock import Clock
from decodetop.core.engine import Context
from decodetop.core.sample import Command, Sample
from decodetop.errors import DataError
from decodetop.flows.delta import capture_summary, comparison_summary, run_summary
from decodetop.steps.reading import Capture, StepsReading
from decodetop.todo import model
from decodetop.todo.document import Document
from decodetop.todo.reading import AddEvidence, EvidenceKind, Todo, TodoReading
from decodetop.todo.store import TodoStore
from decodetop.todo.view import todos_of


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was measured and kept: `ref` names it in its own store, `summary` is its number in words."""

    kind: EvidenceKind
    ref: str
    summary: str


class Results:
    """Picks out of the samples what is new since the first word of each source."""

    def __init__(self) -> None:
        self._run: int | None = None
        """The highest number seen: an old run that comes back into the lane is no news."""
        self._captures: set[str] | None = None

    def new(self, sample: Sample) -> tuple[Made, ...]:
        reading = sample.reading
        if isinstance(reading, BenchReading):
            return self._of_bench(reading)
        return self._of_steps(reading) if isinstance(reading, StepsReading) else ()

    def _of_bench(self, reading: BenchReading) -> tuple[Made, ...]:
        known, numbers = self._run, [run.id for run in reading.runs if run.id is not None]
        self._run = max(numbers, default=0) if known is None else max(numbers, default=known)
        if known is None:
            return ()
        fresh = [run for run in reading.runs if run.id is not None and run.id > known]
        fresh.sort(key=lambda run: run.id or 0)
        return tuple(made_of_run(run, reading.runs, reading.baseline_id) for run in fresh)

    def _of_steps(self, reading: StepsReading) -> tuple[Made, ...]:
        known, ids = self._captures, {capture.id for capture in reading.captures}
        self._captures = ids if known is None else known | ids
        if known is None:
            return ()
        fresh = [capture for capture in reversed(reading.captures) if capture.id not in known]
        return tuple(made_of_capture(capture, reading.captures) for capture in fresh)


class EvidenceService:
    """Links results to the item in progress: the one when it ended, else the one when it began.

    A result of another decodetop process on the same investigation is linked too; the same thing twice is one link.
    """

    source = "evidence"
    commands: tuple[type[Command], ...] = ()

    def __init__(self) -> None:
        self._results = Results()
        self._began: dict[str, str | None] = {}
        """Source -> the item in progress when its work under way began."""

    async def run(self, context: Context) -> None:
        for source in ("bench", "steps"):  # what was said before this service ran is no news
            lane = context.state.lane(source)
            if lane.last is not None:
                self._results.new(Sample(source=source, t_ns=0, seq=0, reading=lane.last))
        end = context.subscribe(lambda sample: self._see(sample, context))
        try:
            await asyncio.Event().wait()
        finally:
            end()

    async def handle(self, command: Command, context: Context) -> None:
        """It takes none."""

    def _see(self, sample: Sample, context: Context) -> None:
        reading = sample.reading
        if not isinstance(reading, (BenchReading, StepsReading)):
            return
        now = _item_now(context)
        for made in self._results.new(sample):
            id = now or self._began.get(sample.source)
            if id is not None:
                context.submit(AddEvidence(id=id, kind=made.kind, ref=made.ref, summary=made.summary))
        if not _under_way(reading):
            self._began.pop(sample.source, None)
        elif sample.source not in self._began:
            self._began[sample.source] = now


class Linker:
    """For a command without a screen: links each result as it comes. `words` = what the operator should know."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._results = Results()
        self.words: list[str] = []

    def hear(self, sample: Sample) -> None:
        self.link(self._results.new(sample))

    def link(self, made: Sequence[Made]) -> None:
        """What can't be linked is said, and kept in its own store all the same."""
        names = ", ".join(f"{one.kind} {one.ref}" for one in made)
        try:
            id = link(self._folder, made, self._clock.wall_ns()) if made else None
        except DataError as error:
            self.words.append(f"{names} not linked to the checklist: {error}")
            return
        if id is not None:
            self.words.append(f"{names} is evidence of {id}, which is in progress")


def link(folder: Path, made: Sequence[Made], wall_ns: int) -> str | None:
    """Link to the item in progress of the investigation's checklist, if there is one: its id. Raises DataError."""
    linked: list[str] = []

    def change(document: Document) -> Document:
        linked[:] = [id for id in [working_on(todos_of(document.items))] if id is not None]
        for id in linked:
            for one in made:
                command = AddEvidence(id=id, kind=one.kind, ref=one.ref, summary=one.summary)
                document = model.evidence(document, command, wall_ns)
        return document

    store = TodoStore(folder)
    if made and working_on(todos_of(store.read().items)) is not None:  # a folder without a list gets none for this
        store.update(change)
    return linked[0] if linked else None


def working_on(todos: Iterable[Todo]) -> str | None:
    """The item in progress; of several the one started last."""
    running = [todo for todo in todos if todo.status == "in_progress"]
    return max(running, key=_started_ns).id if running else None


def made_of_run(run: Run, runs: Sequence[Run], baseline_id: int | None) -> Made:
    """`runs` are those known, the baseline among them if there is one."""
    return Made(kind="run", ref=str(run.id), summary=run_summary(run, runs, baseline_id))


def made_of_capture(capture: Capture, captures: Sequence[Capture]) -> Made:
    """`captures` newest first."""
    return Made(kind="capture", ref=capture.id, summary=capture_summary(capture, captures))


def made_of_comparison(found: Comparison) -> Made:
    """All its runs are one piece of evidence, with the one verdict that interleaved pairs allow."""
    pairs = [str(id) for pair in found.pairs for id in (pair.a, pair.b) if id is not None]
    return Made(kind="run", ref=",".join(dict.fromkeys(pairs)), summary=comparison_summary(found))


def _item_now(context: Context) -> str | None:
    reading = context.state.last("todo", TodoReading)
    return working_on(reading.todos) if reading is not None else None


def _under_way(reading: BenchReading | StepsReading) -> bool:
    if isinstance(reading, BenchReading):
        return reading.progress is not None
    return reading.parsing is not None or reading.taking.progress is not None


def _started_ns(todo: Todo) -> int:
    return max((change.wall_ns for change in todo.status_history if change.status == "in_progress"), default=0)
