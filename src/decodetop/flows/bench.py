"""Benchmarks: the load, the server's counters, the GPUs' samples and the store, as the source "bench"."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from decodetop.bench.launch import Launch, LoadFailed, run_load
from decodetop.bench.live import progress_of
from decodetop.bench.plan import Overrides, choose, fitting, plans_of
from decodetop.bench.reading import BenchReading, MarkBaseline, Plan, Preset, Progress, Run, StartBench, StopBench
from decodetop.bench.store import RunStore
from decodetop.bench.text import one_line
from decodetop.bench.wire import Ready, Tick
from decodetop.core.clock import SECOND_NS, Clock, Late, within
from decodetop.core.engine import Context
from decodetop.core.sample import Command, Notice
from decodetop.core.thread import CallThread
from decodetop.errors import DataError, DecodetopError, RequestError, UsageError
from decodetop.flows.bench_window import Window, endpoint_for, refused_run, run_of, server_at
from decodetop.flows.claim import claimed
from decodetop.server.redact import redact_text

T = TypeVar("T")

RUNS_SHOWN = 30
RUNS_IN_FULL = 8
"""The older ones are shown without the server's flags: the lane is written to the tape twice a second under load."""
EMIT_NS = SECOND_NS // 2
STORE_S = 60.0
"""For the store's disk to answer; SQLite itself waits 5 s for another process."""
LOOK_AGAIN_NS = 2 * SECOND_NS
"""How often another process's runs are looked for in the store."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that were measured (stored, where the store could), and what ended the series early, if anything did.

    `refused` is the run that could not begin; it is in no store.
    """

    runs: tuple[Run, ...]
    error: DecodetopError | None = None
    refused: Run | None = None


class BenchService:
    """One series of runs at a time. `measure` is the way in for both the screen's commands and the command line."""

    source = "bench"
    commands: tuple[type[Command], ...] = (StartBench, StopBench, MarkBaseline)

    def __init__(
        self,
        folder: Path,
        presets: Sequence[Preset],
        key: Callable[[], str | None] = lambda: None,
        launch: Launch = run_load,
    ) -> None:
        """`folder` is the investigation's; `key` gives the servers' key when a run begins."""
        self._folder = folder
        self._key = key
        self._launch = launch
        self._thread: CallThread | None = None
        self._clock: Clock | None = None
        self._store: RunStore | None = None
        self._opened = asyncio.Event()
        self.unstored: DataError | None = None
        """Why the last run that could not be stored was not."""
        self._trouble: DataError | None = None
        self._stop: asyncio.Event | None = None
        self._reading = BenchReading(presets=tuple(presets))

    async def run(self, context: Context) -> None:
        self._thread = CallThread("decodetop-bench-store")
        self._clock = context.clock
        shown: BenchReading | None = None
        seen: int | None = None
        try:
            while True:
                seen = await self._look(seen)
                if self._reading is not shown:
                    shown = self._reading
                    context.emit(self.source, shown)
                self._opened.set()
                await context.clock.sleep_until(context.clock.now_ns() + LOOK_AGAIN_NS)
        finally:
            await self._close()

    async def _look(self, seen: int | None) -> int | None:
        """Read the store if another process wrote to it since `seen`; the version read. A fault is only said: runs are
        measured all the same."""
        try:
            if self._store is None:
                seen = None
                await self._open()
            version = await self._with_store(lambda store: store.version)
            if version != seen:
                await self._load()  # after its version, so that what is written meanwhile is seen next time
        except DataError as error:
            self._trouble = error
            if str(error) != self._reading.problem:
                self._reading = msgspec.structs.replace(self._reading, problem=str(error))
            return None
        return version

    async def handle(self, command: Command, context: Context) -> None:
        if isinstance(command, StartBench):
            await self._start(command, context)
        elif isinstance(command, StopBench):
            if self._stop is not None:
                self._stop.set()
        elif isinstance(command, MarkBaseline):
            await self._opened.wait()
            await self._with_store(lambda store: store.mark_baseline(command.run_id))
            await self._load()
            context.emit(self.source, self._reading)

    async def measure(self, plans: Sequence[Plan], context: Context, stop: asyncio.Event | None = None) -> Outcome:
        """Run `plans` one after the other until one brings nothing, or `stop`. Never raises for a server's fault.

        Raises UsageError when a series is under way, or another load on the same server, of this decodetop or another.
        """
        if self._stop is not None:
            raise UsageError("a benchmark is running already", "stop it first (s), or wait for its end")
        with claimed([plan.endpoint for plan in plans], "a benchmark"):
            return await self._measure(plans, context, asyncio.Event() if stop is None else stop)

    async def _measure(self, plans: Sequence[Plan], context: Context, stop: asyncio.Event) -> Outcome:
        self._stop = stop
        runs: list[Run] = []
        try:
            await self._opened.wait()
            for step, plan in enumerate(plans, 1):
                run, lost = await self._one(plan, context, step, len(plans))
                runs.append(await self._keep(run, context))
                if lost is not None and not self._stop.is_set():
                    return Outcome(runs=tuple(runs), error=lost)
                if self._stop.is_set() or run.requests.ok == 0:
                    break
        except LoadFailed as error:
            self._update(context, last_error=str(error))
            if self._stop.is_set():
                return Outcome(runs=tuple(runs))
            return Outcome(runs=tuple(runs), error=error, refused=refused_run(plan, error, context))
        finally:
            self._stop = None
            self._update(context, progress=None)
        return Outcome(runs=tuple(runs), error=_fault(runs))

    async def _start(self, command: StartBench, context: Context) -> None:
        endpoint = endpoint_for(context, command.endpoint, "measure")
        server = server_at(context, endpoint)
        model = server.served_name if server is not None else None
        asked = Overrides(model=model)
        plans = plans_of(choose(self._reading.presets, command.preset), endpoint, new_seed(), asked)
        plans = fitting(plans, server.context_length if server is not None else None)
        outcome = await self.measure(plans, context)
        if outcome.error is not None:
            hint = outcome.error.hint
            context.notify(Notice(level="error", message=outcome.error.message, hint=hint, ring=True))
        elif outcome.runs:
            last = outcome.runs[-1]
            if last.partial:
                context.notify(Notice(level="warning", message=f"benchmark stopped: {one_line(last)}", ring=True))
            else:
                context.notify(Notice(message=f"benchmark done: {one_line(last)}", ring=True))
        else:
            context.notify(Notice(message="benchmark stopped before its first request ended: nothing was measured"))

    async def _one(self, plan: Plan, context: Context, step: int, steps: int) -> tuple[Run, RequestError | None]:
        """The run, and how a load process was lost on the way, if one was. Raises LoadFailed when there is no run."""
        assert self._stop is not None
        window = Window(context, plan.endpoint)
        listener = _Listener(self, plan, context, window, step, steps)
        listener.show(Progress(preset=plan.preset, endpoint=plan.endpoint, phase="starting", step=step, steps=steps))
        try:
            key = self._key()
            try:
                result = await self._launch(plan, key, listener, self._stop)
            except LoadFailed as error:
                words = redact_text(error.message, [key] if key else [])
                raise LoadFailed(words, error.hint, error.kind) from error
            if window.started_wall_ns is None or not result.records:
                raise LoadFailed("stopped before the first request ended", "nothing was measured", None)
            await window.end(len(result.records))
        finally:
            window.close()
        run = run_of(listener.plan, result, window, key)
        return run, None if result.lost is None else _lost(run, result.lost)

    async def _keep(self, run: Run, context: Context) -> Run:
        """Store the run. If the store refuses it stays on screen, with the reason."""
        problem: str | None = None
        try:
            run = await self._with_store(lambda store: store.add(run))
        except DataError as error:
            self.unstored, problem = error, str(error)
        runs = shown((run, *self._reading.runs), self._reading.baseline_id)
        self._update(context, runs=runs, last_error=None, problem=problem)
        return run

    async def _open(self) -> None:
        """Raises DataError."""
        self._store = await self._on_thread(lambda: RunStore(self._folder))

    async def _close(self) -> None:
        self._opened.clear()
        store, self._store = self._store, None
        assert self._thread is not None
        if store is not None:
            with contextlib.suppress(DataError):  # it hangs: the thread ends with the process
                await self._on_thread(store.close)
        self._thread.close()

    async def _load(self) -> None:
        fields = await self._with_store(_read)
        self._reading = msgspec.structs.replace(self._reading, **fields)

    async def _with_store(self, work: Callable[[RunStore], T]) -> T:
        """`work` on the store's thread. Raises DataError, also when the store could not be opened."""
        store = self._store
        if store is None:
            raise self._trouble or DataError("the store of runs is not open")
        return await self._on_thread(lambda: work(store))

    async def _on_thread(self, work: Callable[[], T]) -> T:
        """Raises DataError of `work`, and one of its own when the disk does not answer."""
        assert self._thread is not None and self._clock is not None
        try:
            return await within(self._clock, STORE_S, self._thread.call(work))
        except Late as late:
            late.task.cancel()
            hint = "its disk hangs: use --investigation DIR on another"
            raise DataError(f"{self._folder} did not answer within {STORE_S:g} s", hint) from None

    def _update(self, context: Context, **fields: object) -> None:
        self._reading = msgspec.structs.replace(self._reading, **fields)
        context.emit(self.source, self._reading)


class _Listener:
    """Passes a load's words on: ticks to the lane, at most two a second, and the begin to the window."""

    def __init__(
        self, service: BenchService, plan: Plan, context: Context, window: Window, step: int, steps: int
    ) -> None:
        self._service = service
        self.plan = plan
        self._context = context
        self._window = window
        self._of = (step, steps)
        self._shown: Progress | None = None
        self._due_ns = 0

    def tick(self, ticks: Sequence[Tick]) -> None:
        progress = progress_of(self.plan, ticks, *self._of)
        now_ns = self._context.clock.now_ns()
        if self._shown is None or now_ns >= self._due_ns or progress.phase != self._shown.phase:
            self._due_ns = now_ns + EMIT_NS
            self.show(progress)

    async def ready(self, ready: Ready) -> None:
        self.plan = msgspec.structs.replace(self.plan, model=ready.model)  # the name the server answered to
        await self._window.begin()

    def show(self, progress: Progress) -> None:
        self._shown = progress
        self._service._update(self._context, progress=progress)


def _read(store: RunStore) -> dict[str, object]:
    """The reading's fields that the store gives."""
    runs, baseline_id = store.latest(RUNS_SHOWN), store.baseline_id
    unreadable = store.unreadable
    if baseline_id is not None and all(run.id != baseline_id for run in runs):
        try:
            runs = (*runs, store.get(baseline_id))
        except DataError:
            baseline_id = None  # it is one of those that can't be read
    problem = None if store.refused is None else str(store.refused)
    found = {"runs": shown(runs, baseline_id), "baseline_id": baseline_id}
    return found | {"unreadable": unreadable, "problem": problem}


def _lost(run: Run, why: str) -> RequestError:
    kept = run.requests.ok + run.requests.failed
    message = f"{why}: the figures are of the {kept} of {run.plan.requests} requests that had ended"
    return RequestError(message, "was it killed, or memory short (dmesg)? run it again")


def shown(runs: Sequence[Run], baseline_id: int | None) -> tuple[Run, ...]:
    """What of the newest-first `runs` goes into the lane; the baseline always does."""

    def of(place: int, run: Run) -> Run:
        if place < RUNS_IN_FULL or run.id == baseline_id:
            return run
        environment = msgspec.structs.replace(run.environment, flags={}, command=())
        return msgspec.structs.replace(run, environment=environment)

    return tuple(of(place, run) for place, run in enumerate(runs) if place < RUNS_SHOWN or run.id == baseline_id)


_HINTS = {
    "timeout": "is the server stuck or overloaded? --timeout-s gives it longer",
    "short_output": "the server ends answers early: --allow-eos takes them as they come",
    "protocol": "is this the right API for the server (--api)?",
}


def _fault(runs: Sequence[Run]) -> RequestError | None:
    """The words for a series whose last run brought nothing."""
    if not runs or runs[-1].requests.ok or not runs[-1].requests.errors:
        return None
    run, error = runs[-1], runs[-1].requests.errors[0]
    hint = _HINTS.get(error.kind, "see the server's log")
    message = f"{run.plan.endpoint}: no request succeeded: {error.count} x {error.kind}: {error.example}"
    return RequestError(message, hint)


def new_seed() -> int:
    """Another one each time: the same prompts again would be read from the server's prefix cache."""
    return random.SystemRandom().randrange(1, 1 << 31)
