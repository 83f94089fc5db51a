"""The source `steps`: reads traces when asked, in a child process, and keeps the captures of the investigation."""

from __future__ import annotations

import asyncio
from pathlib import Path

from decodetop.core.engine import Context
from decodetop.core.sample import Command, Notice
from decodetop.errors import DataError, DecodetopError, TraceError
from decodetop.steps.launch import parse
from decodetop.steps.reading import (
    CancelParsing,
    Capture,
    CompareCaptures,
    OpenTrace,
    Parsing,
    ShowCapture,
    StepsReading,
    StepsReport,
    Taking,
)
from decodetop.steps.store import CaptureStore, capture_id, made_wall_ns
from decodetop.steps.wire import Job


class StepsService:
    """One trace at a time; a second is refused while one is read. `folder` is the investigation's."""

    source = "steps"
    commands: tuple[type[Command], ...] = (OpenTrace, CancelParsing, ShowCapture, CompareCaptures)

    def __init__(self, folder: Path) -> None:
        self._store = CaptureStore(folder)
        self._parsing: Parsing | None = None
        self._last_error: str | None = None
        self._taking = Taking()
        self._chosen: str | None = None
        self._compared: tuple[str, str] | None = None
        self._task: asyncio.Task[StepsReport] | None = None

    @property
    def busy(self) -> bool:
        """Whether a trace is being read."""
        return self._task is not None

    def tell(self, taking: Taking, context: Context) -> None:
        """Show how the capture of a live server goes; the flow that makes it says so."""
        self._taking = taking
        self._emit(context)

    async def run(self, context: Context) -> None:
        self._store.load()
        for problem in self._store.unreadable:
            context.notify(Notice(level="warning", message=f"a stored capture can't be read: {problem}"))
        self._emit(context)
        try:
            await asyncio.Event().wait()
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait({self._task})

    async def handle(self, command: Command, context: Context) -> None:
        if isinstance(command, CancelParsing):
            if self._task is not None:
                self._task.cancel()
        elif isinstance(command, OpenTrace):
            job = Job(paths=command.paths, itl_ms=command.itl_ms, accept_length=command.accept_length)
            await self.read(job, context)
        elif isinstance(command, ShowCapture):
            self._chosen, self._compared = command.id, None
            self._emit(context)
        elif isinstance(command, CompareCaptures):
            self._compared = command.pair
            if command.pair is not None:
                self._keep(command.pair, context)
            self._emit(context)

    def _keep(self, pair: tuple[str, str], context: Context) -> None:
        try:
            self._store.compare(pair)
        except DataError as error:
            context.notify(Notice(level="warning", message=error.message, hint=error.hint))

    async def read(self, job: Job, context: Context) -> Capture | None:
        """Parse, store and show. None when it was cancelled. Raises TraceError if nothing could be read."""
        if self._task is not None:
            raise TraceError("a trace is being read already", "wait for it, or cancel it first")
        task = self._task = asyncio.ensure_future(parse(job, context.clock, lambda seen: self._say(seen, context)))
        self._last_error = None
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            await asyncio.wait({task})  # when the engine stops, the child is gone before its loop is
            self._task = None
            self._parsing = None
        try:
            return self._done(job, task, context)
        except DecodetopError as error:
            self._last_error = str(error)
            raise
        finally:
            self._emit(context)

    def _done(self, job: Job, task: asyncio.Task[StepsReport], context: Context) -> Capture | None:
        if task.cancelled():
            context.notify(Notice(message="reading the trace was cancelled"))
            return None
        report = task.result()
        if not report.ranks:
            raise TraceError(report.errors[0] if report.errors else "no GPU events in the trace")
        made = made_wall_ns(job.paths)
        self._chosen = None
        capture = Capture(id=capture_id(job.paths, made), made_wall_ns=made, files=job.paths, report=report)
        try:
            self._store.add(capture)
        except DataError as error:
            self._store.captures = (capture, *self._store.captures)
            context.notify(Notice(level="warning", message=error.message, hint=error.hint))
        for error_text in report.errors:
            context.notify(Notice(level="warning", message=error_text))
        return capture

    def _say(self, seen: Parsing, context: Context) -> None:
        self._parsing = seen
        self._emit(context)

    def _emit(self, context: Context) -> None:
        reading = StepsReading(
            captures=self._store.captures,
            chosen=self._chosen,
            compared=self._compared,
            kept=self._store.compared,
            parsing=self._parsing,
            last_error=self._last_error,
            taking=self._taking,
        )
        context.emit(self.source, reading)
