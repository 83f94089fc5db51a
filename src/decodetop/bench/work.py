"""One share of a load, from its first trial request to its result: terms, warm-up, the measured part."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec

from decodetop.bench.http import Inbox
from decodetop.bench.load import Load, target
from decodetop.bench.measure import gaps_ns
from decodetop.bench.negotiate import Terms, negotiate
from decodetop.bench.stats import quantile
from decodetop.bench.watch import LagMeter, Live
from decodetop.bench.wire import Job, Phase, Ready, Record, Result, Tick, Up, encode, source_of
from decodetop.bench.workload import Workload, read_lines

TICK_S = 0.25
WARMUP_TOKENS = 64
"""Of a warm-up answer at the most: enough to capture graphs and fill caches at this number of streams."""
STEADY = 0.05
"""A warm-up round's pace that is this near the last one's ends it: two rounds at the least."""
ROUNDS_MAX, ROUNDS_S = 6, 60.0
"""Of a warm-up that never gets steady, and after which no further round begins."""


class Indices:
    """The requests still to be sent, shared by all streams."""

    def __init__(self, first: int, count: int, step: int = 1) -> None:
        self.left = count
        self._next = first
        self._step = step

    def end(self) -> None:
        """There are no more."""
        self.left = 0

    def __iter__(self) -> Indices:
        return self

    def __next__(self) -> int:
        if self.left <= 0:
            raise StopIteration
        self.left -= 1
        self._next += self._step
        return self._next - self._step


class Worker:
    """One Job from its first trial request to its Result."""

    def __init__(self, job: Job, key: str | None, send: Callable[[Up], None], now: Callable[[], int]) -> None:
        loop = asyncio.get_running_loop()
        self.job = job
        self.stop = asyncio.Event()
        self._send = send
        self._now = now
        self._inbox = Inbox(loop, now)
        self._lag = LagMeter(loop, now)
        self._aim = target(job.plan.endpoint, key)
        self._phase: Phase = "starting"
        self._load: Load | None = None
        self._work: Workload | None = None
        self._own = range(job.first_index, job.first_index + job.plan.requests * job.stride, job.stride)
        self._live: Live | None = None
        self._indices = Indices(0, 0)
        self._began_ns = now()
        self._cpu_ns = 0
        self._unfinished = 0
        self._journalled = 0
        self._unmeasured = itertools.count(-1 - job.first_index, -job.stride)
        """Indices of trials and warm-up: no process of a run has one of another's, so no prompt is sent twice."""
        self._unsteady: float | None = None

    async def run(self, go: asyncio.Event) -> None:
        """Sends messages; the last is Result or Fatal. Raises Refused or OSError when there is nothing to measure."""
        ticking = asyncio.ensure_future(self._tick())
        try:
            if await self._until_stop(self._prepare()) and await self._until_stop(go.wait()):
                await self._measure()
        finally:
            ticking.cancel()
            if self._load is not None:
                self._load.close()
        self._send(self._result())

    async def _prepare(self) -> None:
        plan = self.job.plan
        terms = await negotiate(plan, self._aim, self._inbox, self._unmeasured, self.job.dialect)
        lines = read_lines(Path(plan.prompts_file), plan.api) if plan.prompts_file is not None else ()
        self._work = Workload(plan, terms.dialect, lines)
        load = self._load = Load(plan, self._aim, self._inbox, terms.dialect, terms.model, self._work)
        await load.open()
        trouble = await self._warm_up(load, terms)
        load.records.clear()
        await load.prepare(self._own)
        model, prompt_tokens = terms.model, terms.prompt_tokens
        self._send(Ready(dialect=load.dialect, model=model, prompt_tokens=prompt_tokens, trouble=trouble))

    async def _warm_up(self, load: Load, terms: Terms) -> str | None:
        """Fill caches and graphs. If answers came short, ask for a minimum length too, and once more."""
        plan = self.job.plan
        if terms.trouble is not None or plan.warmup_requests <= 0:
            return terms.trouble
        self._phase = "warmup"
        await self._round(load)
        if any(record.fault == "short_output" for record in load.records):
            load.dialect = msgspec.structs.replace(load.dialect, min_tokens=True)
            await self._round(load)
            if all(record.fault == "http" for record in load.records):
                load.dialect = msgspec.structs.replace(load.dialect, min_tokens=False)
        if plan.warmup_steady:
            await self._settle(load)
        failed = [record for record in load.records if record.fault is not None]
        return f"{failed[-1].fault}: {failed[-1].message}" if failed else None

    async def _round(self, load: Load) -> None:
        """`warmup_requests` of them; their records are all that `load` has then."""
        plan = self.job.plan
        load.records.clear()
        indices = itertools.islice(self._unmeasured, plan.warmup_requests)
        await load.run(indices, min(WARMUP_TOKENS, plan.output_tokens))

    async def _settle(self, load: Load) -> None:
        """Rounds until one has the pace of the one before: engines compile, capture and tune in their first steps."""
        until_ns = self._now() + int(ROUNDS_S * 1e9)
        before = pace_ns(load.records)
        for _ in range(ROUNDS_MAX - 1):
            if before is None or self._now() > until_ns:
                return
            await self._round(load)
            pace = pace_ns(load.records)
            self._unsteady = None if pace is None else abs(pace / before - 1)
            if self._unsteady is None or self._unsteady <= STEADY:
                self._unsteady = None
                return
            before = pace

    async def _measure(self) -> None:
        load, work = self._load, self._work
        assert load is not None and work is not None
        self._indices = Indices(self._own.start, len(self._own), self._own.step)
        due_ns = work.arrivals_ns(self._own.stop)
        duration_s = self.job.plan.duration_s
        self._live = Live(load)
        gc.collect()
        gc.freeze()
        gc.disable()
        self._lag.start()
        self._began_ns, self._cpu_ns = self._now(), time.process_time_ns()
        self._phase = "measuring"
        load.keep = self._note if self.job.journal is not None else None
        loading = load.run(self._indices) if due_ns is None else load.run_at(self._indices, due_ns)
        if duration_s is not None:
            asyncio.get_running_loop().call_later(duration_s, self._indices.end)
        await self._until_stop(loading)
        self._lag.stop()

    def _note(self, record: Record) -> None:
        """Into the journal, while it takes any; the others go into the Result."""
        assert self.job.journal is not None and self._load is not None
        try:
            os.write(self.job.journal, encode(record) + b"\n")
        except OSError:  # no memory left for it
            self._load.keep = None
        else:
            self._journalled += 1

    async def _until_stop(self, work: Coroutine[Any, Any, Any]) -> bool:
        """True when `work` ended by itself, False when it was stopped."""
        task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not task.done():
                self._unfinished = len(self._load.under_way) if self._load is not None else 0
                task.cancel()
        await asyncio.wait({task})
        if task.cancelled():
            return False
        await task
        return True

    async def _tick(self) -> None:
        while True:
            self._send(self._state())
            await asyncio.sleep(TICK_S)

    def _state(self) -> Tick:
        phase: Phase = "stopping" if self.stop.is_set() else self._phase
        elapsed_s = (self._now() - self._began_ns) / 1e9
        if self._live is None:
            return Tick(phase=phase, elapsed_s=elapsed_s)
        under_way = len(self._load.under_way) if self._load is not None else 0
        if phase == "measuring" and self._indices.left == 0 and under_way < self.job.plan.streams:
            phase = "draining"  # the last requests, at fewer streams than asked for
        return self._live.tick(phase, elapsed_s, self._lag.p99_ms)

    def _result(self) -> Result:
        records = self._load.records if self._live is not None and self._load is not None else []
        wall_ns = self._now() - self._began_ns
        busy = 100 * (time.process_time_ns() - self._cpu_ns) / wall_ns if self._live is not None and wall_ns else None
        return Result(
            records=records[self._journalled :],
            source=source_of(self.job.plan.api, records),
            partial=self.stop.is_set(),
            unfinished=self._unfinished,
            cpu_percent=busy,
            loop_lag_ms_p99=self._lag.p99_ms,
            unsteady=self._unsteady,
        )


def pace_ns(records: Sequence[Record]) -> float | None:
    """The median gap between chunks over whole answers (of answers of one chunk, their time); None without any."""
    whole = [record for record in records if record.fault in (None, "short_output") and record.chunks_ns]
    gaps = sorted(gap for record in whole for gap in gaps_ns(record)) or sorted(one.chunks_ns[-1] for one in whole)
    return max(quantile(gaps, 0.5), 1.0) if gaps else None
