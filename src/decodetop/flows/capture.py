"""Captures of live servers: from `p` (or `decodetop steps capture`) to a stacked bar in the steps pane."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from decodetop.bench.launch import Launch, run_load
from decodetop.bench.plan import STREAMS_MAX
from decodetop.bench.reading import BenchReading
from decodetop.core.clock import SECOND_NS
from decodetop.core.engine import Context
from decodetop.core.sample import Command, Notice
from decodetop.core.thread import CallThread
from decodetop.core.words import significant
from decodetop.errors import DecodetopError, RequestError, UsageError
from decodetop.flows.bench_window import endpoint_for, fresh, server_at
from decodetop.flows.capture_client import ProfileClient
from decodetop.flows.capture_guard import Outcome, forget, left_behind
from decodetop.flows.capture_place import Box, ThisBox
from decodetop.flows.capture_profile import KEY_HINT, check_engine, stop
from decodetop.flows.capture_shot import Patience, Shot, Taken, Tools
from decodetop.flows.claim import claimed
from decodetop.server.reading import Server
from decodetop.steps.reading import (
    Capture,
    CaptureSteps,
    Capturing,
    LeftProfiling,
    StopCapture,
    Taking,
)
from decodetop.steps.service import StepsService
from decodetop.steps.store import FOLDER
from decodetop.steps.wire import Job

STEPS_MIN, STEPS_MAX = 4, 500
"""Of fewer none is left: the engine needs one to begin, and the first and the last are not whole."""

ENDED_S = 15.0
"""How long the watchdog is waited for before it is left to itself. vLLM writes the trace first."""
POLL_S = 0.1


class CaptureService:
    """One capture at a time. `capture` is the way in for both the screen's command and the command line.

    Progress and captures are shown by the source `steps`, which also reads the traces.
    """

    source = "capture"
    commands: tuple[type[Command], ...] = (CaptureSteps, StopCapture)

    def __init__(
        self,
        folder: Path,
        steps: StepsService,
        key: Callable[[], str | None] = lambda: None,
        launch: Launch = run_load,
        box: Box | None = None,
        patience: Patience | None = None,
    ) -> None:
        """`folder` is the investigation's; `key` gives the servers' key when a capture begins."""
        self._folder = folder.expanduser().absolute()
        self._steps = steps
        self._key = key
        self._launch = launch
        self._box = box or ThisBox()
        self._patience = patience or Patience()
        self._thread = CallThread("decodetop-capture")
        self._taking = Taking()
        self._task: asyncio.Task[Capture | None] | None = None
        self._shot: Shot | None = None

    async def run(self, context: Context) -> None:
        """Tell of a profiler that a dead capture left running."""
        left = await self._thread.call(partial(left_behind, self._folder))
        if left is not None:
            self._tell(context, left=left)
            message = f"{left.endpoint} may still be profiled: the decodetop that started it died"
            context.notify(
                Notice(level="warning", message=message, hint="p (or decodetop steps capture --stop) stops it")
            )
        try:
            await asyncio.Event().wait()
        finally:
            if self._task is not None:
                await asyncio.wait({self._task})
            self._thread.close()

    async def handle(self, command: Command, context: Context) -> None:
        if isinstance(command, CaptureSteps):
            capture = await self.capture(command, context)
            if capture is not None:
                context.notify(Notice(message=f"captured {_summary(capture)}", ring=True))
        elif isinstance(command, StopCapture):
            if self._task is not None:
                self._task.cancel()
            else:
                await self.stop_left(context)

    async def capture(self, ask: CaptureSteps, context: Context) -> Capture | None:
        """Profile, read the traces, store and show them. None when it was stopped.

        Raises UsageError, RequestError, TraceError, DataError, each with what to do next.
        """
        if self._task is not None:
            raise UsageError("a capture is under way already", "stop it first (p), or wait for its end")
        task = self._task = asyncio.ensure_future(self._work(ask, context))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            self._task = None
            self._tell(context)
        await self._ended(context)
        if task.cancelled():
            context.notify(Notice(message="the capture was stopped"))
            return None
        try:
            return task.result()
        except DecodetopError as error:
            self._tell(context, error=str(error))
            raise

    async def stop_left(self, context: Context) -> LeftProfiling:
        """Stop the profiler that a dead capture left running. Raises UsageError when there is none, RequestError."""
        left = await self._thread.call(partial(left_behind, self._folder))
        if left is None:
            raise UsageError("no capture is under way, and none left a profiler running", "nothing is to be stopped")
        client = ProfileClient(left.endpoint, context.clock, self._key())
        await stop(client, left.engine, self._patience.stop_s)
        await self._thread.call(partial(forget, self._folder))
        self._tell(context)
        context.notify(Notice(message=f"the profiler of {left.endpoint} does not run any more"))
        return left

    async def _work(self, ask: CaptureSteps, context: Context) -> Capture | None:
        server = await self._server(ask, context)
        stamp = datetime.fromtimestamp(context.clock.wall_ns() / SECOND_NS, UTC).strftime("%Y%m%d-%H%M%S")
        folder = self._folder / FOLDER / f"{server.engine}-{stamp}"
        tools = Tools(thread=self._thread, launch=self._launch, key=self._key(), box=self._box, patience=self._patience)
        shot = self._shot = Shot(context, server, ask, folder, tools, lambda seen: self._tell(context, seen))
        with claimed([server.endpoint], "a capture"):
            taken = await shot.take()
        for warning in taken.warnings:
            context.notify(Notice(level="warning", message=warning))
        return await self._read(taken, context)

    async def _read(self, taken: Taken, context: Context) -> Capture | None:
        if self._taking.progress is not None:
            now_ns = context.clock.now_ns()
            self._tell(context, msgspec.structs.replace(self._taking.progress, phase="reading", since_ns=now_ns))
        while self._steps.busy:
            await _pause(context)
        job = Job(
            paths=tuple(map(str, taken.files)),
            itl_ms=taken.unprofiled.itl_ms,
            accept_length=taken.unprofiled.accept_length,
        )
        return await self._steps.read(job, context)

    async def _server(self, ask: CaptureSteps, context: Context) -> Server:
        """The one meant, as it is now. Raises UsageError or RequestError when it can't be profiled."""
        if not STEPS_MIN <= ask.steps <= STEPS_MAX:
            raise UsageError(f"{ask.steps} steps are not between {STEPS_MIN} and {STEPS_MAX}", "20 are usual")
        if ask.load is not None and not 1 <= ask.load <= STREAMS_MAX:
            raise UsageError(f"a load of {ask.load} streams is not between 1 and {STREAMS_MAX}", "1 is usual")
        bench = context.state.last("bench", BenchReading)
        if bench is not None and bench.progress is not None:
            raise UsageError("a benchmark is running: profiling would spoil it", "stop it first (s), or wait")
        left = await self._thread.call(partial(left_behind, self._folder))
        if left is not None:
            hint = "stop it first: p, or decodetop steps capture --stop"
            raise UsageError(f"{left.endpoint} may still be profiled by a capture that died", hint)
        await fresh(context, "server")
        endpoint = endpoint_for(context, ask.endpoint, "profile")
        server = server_at(context, endpoint)
        if server is None:
            raise UsageError(f"no server {endpoint} is watched", "start with --endpoint URL")
        if server.status == "needs_key":
            raise RequestError(f"{endpoint} wants a key: {server.status_message}", f"{KEY_HINT}, and name the endpoint")
        if server.status != "up":
            hint = "is the server running, and is the port right?"
            raise RequestError(f"{endpoint} is {server.status}: {server.status_message}", hint)
        check_engine(server)
        return server

    async def _ended(self, context: Context) -> None:
        """When the profile was left to the watchdog: wait a little for what becomes of it, and say so."""
        shot, self._shot = self._shot, None
        if shot is None or shot.left is None:
            return
        outcome: Outcome | None = None
        until_ns = context.clock.now_ns() + int(ENDED_S * SECOND_NS)
        while (outcome := shot.left()) is None and context.clock.now_ns() < until_ns:
            await _pause(context)
        if outcome == "failed":
            left = await self._thread.call(partial(left_behind, self._folder))
            self._tell(context, left=left)
            context.notify(
                Notice(level="error", message="the server may still be profiled", hint="p stops it", ring=True)
            )
        elif outcome is None:
            hint = "a process of ours waits for it; it needs no decodetop"
            context.notify(Notice(level="warning", message="the server is still ending its profile", hint=hint))

    def _tell(
        self,
        context: Context,
        progress: Capturing | None = None,
        error: str | None = None,
        left: LeftProfiling | None = None,
    ) -> None:
        self._taking = Taking(progress=progress, error=error, left=left)
        self._steps.tell(self._taking, context)


async def _pause(context: Context) -> None:
    await context.clock.sleep_until(context.clock.now_ns() + int(POLL_S * SECOND_NS))


def _summary(capture: Capture) -> str:
    """19 steps of 2 ranks; 5.11 ms a token without the profiler."""
    report = capture.report
    used = report.ranks[0].steps.used if report.ranks else 0
    ranks = f" of {len(report.ranks)} ranks" if len(report.ranks) > 1 else ""
    itl = f"; {significant(report.itl_ms)} ms a token without the profiler" if report.itl_ms is not None else ""
    return f"{used} decode steps{ranks}{itl}"
