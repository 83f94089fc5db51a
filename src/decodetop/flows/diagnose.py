"""Diagnose in one action, from `d` (or `decodetop diagnose`) to a verdict and items in the checklist."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from decodetop.bench import text as bench_text
from decodetop.bench.reading import BenchReading, Preset
from decodetop.core.engine import Context
from decodetop.core.sample import Command, Notice, Sample
from decodetop.core.thread import CallThread
from decodetop.diagnosis import text
from decodetop.diagnosis.reading import Diagnose, Diagnosis, DiagnosisReading, StopDiagnosis
from decodetop.diagnosis.store import DiagnosisStore
from decodetop.errors import DataError, DecodetopError, UsageError
from decodetop.floor.hardware import Card
from decodetop.floor.reading import FloorReading
from decodetop.flows.bench import BenchService
from decodetop.flows.capture import CaptureService
from decodetop.flows.diagnose_ask import Request
from decodetop.flows.diagnose_course import Course
from decodetop.flows.diagnose_kept import with_stage
from decodetop.flows.judging import card_of
from decodetop.gpu.reading import GpuReading
from decodetop.server.reading import Server
from decodetop.steps import text as steps_text
from decodetop.steps.reading import StepsReading

T = TypeVar("T")

CardOf = Callable[[Server | None, GpuReading | None, str | None], Card]


class DiagnoseService:
    """One diagnosis at a time. `diagnose` is the way in for both the screen's command and the command line."""

    source = "diagnosis"
    commands: tuple[type[Command], ...] = (Diagnose, StopDiagnosis)

    def __init__(
        self,
        folder: Path,
        presets: Sequence[Preset],
        bench: BenchService,
        capture: CaptureService,
        card: CardOf = card_of,
    ) -> None:
        """`folder` is the investigation's; `card` says which card the server runs on."""
        self.folder = folder
        self.presets = tuple(presets)
        self.bench = bench
        self.capture = capture
        self.card = card
        self._store = DiagnosisStore(folder)
        self._reading = DiagnosisReading()
        self._task: asyncio.Task[Diagnosis] | None = None
        self._context: Context | None = None
        self._thread = CallThread("decodetop-diagnose")

    async def run(self, context: Context) -> None:
        newest = await self._thread.call(self._store.newest)
        if self._reading.latest is None and self._task is None:
            self._tell(context, latest=newest)
        try:
            await asyncio.Event().wait()
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait({self._task})
            self._thread.close()

    async def handle(self, command: Command, context: Context) -> None:
        if isinstance(command, StopDiagnosis):
            if self._task is not None:
                self._task.cancel()
        elif isinstance(command, Diagnose):
            floor = context.state.last("floor", FloorReading)
            # the card chosen for a what-if is the only word there is of one on another host
            gpu = floor.asked.gpu if floor is not None else None
            request = Request(endpoint=command.endpoint, again=command.again, far_gpu=gpu, as_far_as=True)
            found = await self.diagnose(request, context)
            if found is None:
                kept = text.kept_words(self._reading.latest) if self._reading.latest is not None else ""
                context.notify(Notice(message=f"the diagnosis was stopped: {kept}"))
            elif found.report is not None and found.report.verdict is not None:
                context.notify(Notice(message=found.report.verdict.sentence, ring=True))
            else:
                said = found.stage("judge").words
                context.notify(Notice(message=f"{found.stage('measure').words}; not judged: {said}", ring=True))

    async def diagnose(self, request: Request, context: Context) -> Diagnosis | None:
        """Stage after stage. None when it was stopped; what is done is kept.

        Raises UsageError, RequestError, DataError: what a stage needs and did not get.
        """
        if self._task is not None:
            raise UsageError("a diagnosis is under way already", "stop it first (d), or wait for its end")
        self._context = context
        task = self._task = asyncio.ensure_future(Course(self, request, context).run())
        unsubscribe = context.subscribe(partial(self._hear, context))
        before = self._reading.latest
        # until its first stage there is none: those of the one before would be told as its own
        self._tell(context, running=True, latest=None, error=None, problem=None)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            unsubscribe()
            self._task = None
            self._tell(context, running=False, latest=self._reading.latest or before)
        if task.cancelled():
            return None
        try:
            return task.result()
        except DecodetopError as error:
            self._tell(context, error=str(error))
            raise

    async def call(self, work: Callable[[], T]) -> T:
        return await self._thread.call(work)

    def show(self, now: Diagnosis) -> None:
        assert self._context is not None
        self._tell(self._context, latest=now)

    async def keep(self, now: Diagnosis) -> None:
        """Show it and store it; a disk that refuses is no reason to end."""
        self.show(now)
        try:
            await self._thread.call(partial(self._store.keep, now))
        except DataError as error:
            assert self._context is not None
            self._tell(self._context, problem=str(error))

    def _hear(self, context: Context, sample: Sample) -> None:
        """How far the running stage is, by what the benchmark and the capture say of themselves."""
        words = None
        if isinstance(sample.reading, BenchReading) and sample.reading.progress is not None:
            words = bench_text.progress_line(sample.reading.progress)
        elif isinstance(sample.reading, StepsReading):
            taking = sample.reading.taking.progress
            words = None if taking is None else steps_text.capture_words(taking)
        if words is not None:
            # after the sample itself: a sample within a sample would be out of order on the tape
            asyncio.get_running_loop().call_soon(self._progress, context, words)

    def _progress(self, context: Context, words: str) -> None:
        latest = self._reading.latest
        running = None if latest is None else next((one for one in latest.stages if one.status == "running"), None)
        if latest is not None and running is not None and running.words != words and self._task is not None:
            self._tell(context, latest=with_stage(latest, msgspec.structs.replace(running, words=words)))

    def _tell(self, context: Context, **fields: object) -> None:
        self._reading = msgspec.structs.replace(self._reading, **fields)
        context.emit(self.source, self._reading)
