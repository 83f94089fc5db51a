"""The bench source in an engine whose load is played: commands in, samples out, in no time. The store is real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from decodetop.bench.launch import Launch, Listener, LoadFailed
from decodetop.bench.plan import load_presets
from decodetop.bench.reading import BenchReading, Plan
from decodetop.bench.request import Dialect
from decodetop.bench.wire import Ready, Record, Result, Tick
from decodetop.core.clock import SECOND_NS
from decodetop.core.engine import Engine
from decodetop.core.sample import Header, Notice, Reading, Sample
from decodetop.flows.bench import BenchService
from decodetop.server.reading import Counters, Server, ServerReading
from support.clock import ManualClock, settle
from support.running import running

URL = "http://127.0.0.1:30000"
PRESETS = load_presets()
HEADER = Header(version="0", host="box", started_wall_ns=0)
READY = Ready(dialect=Dialect(), model="tiny")


def records(count: int, fault: Any = None) -> list[Record]:
    return [
        Record(
            index=n,
            due_ns=n * SECOND_NS,
            write_ns=n * SECOND_NS + 1000,
            chunks_ns=[] if fault else [100_000_000 + 10_000_000 * k for k in range(256)],
            chunk_tokens=[1] * 256,
            output_tokens=256,
            prompt_tokens=128,
            fault=fault,
            message="no luck with token=hf_abcdefghijkl" if fault else "",
        )
        for n in range(count)
    ]


def result(count: int, partial: bool = False, fault: Any = None) -> Result:
    return Result(
        records=records(count, fault),
        source="usage",
        partial=partial,
        unfinished=0,
        cpu_percent=3.0,
        loop_lag_ms_p99=0.1,
    )


class FakeProbe:
    """Says what it is told to, each time it is read."""

    period_s = 1000.0
    deadline_s = 5.0

    def __init__(self, source: str, said: Sequence[Reading]) -> None:
        self.source = source
        self.said = list(said)
        self.reads = 0

    async def read(self) -> Reading:
        self.reads += 1
        return self.said[min(self.reads, len(self.said)) - 1]

    async def close(self) -> None:
        return None


class Played:
    """Stands for the load processes: ready, some ticks, then what it was given."""

    def __init__(self, *outcomes: Result | LoadFailed, hold: bool = False) -> None:
        self.outcomes = list(outcomes)
        self.plans: list[Plan] = []
        self.keys: list[str | None] = []
        self.release = asyncio.Event()
        if not hold:
            self.release.set()

    async def __call__(self, plan: Plan, key: str | None, listener: Listener, stop: asyncio.Event) -> Result:
        self.plans.append(plan)
        self.keys.append(key)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, LoadFailed):
            raise outcome
        await listener.ready(READY)
        for done in range(3):
            listener.tick([Tick(phase="measuring", elapsed_s=float(done), done=done)])
        waits = [asyncio.ensure_future(self.release.wait()), asyncio.ensure_future(stop.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return outcome


class Bench:
    """An engine with the service in it, and all that came out."""

    def __init__(self, folder: Path, launch: Launch, probes: Sequence[FakeProbe], readonly: bool) -> None:
        self.clock = ManualClock()
        self.samples: list[Sample] = []
        self.service = BenchService(folder, PRESETS, lambda: "sk-key-123456", launch)
        self.engine = Engine(HEADER, self.clock, probes, [self.service], readonly=readonly)

    def put(self, sample: Sample) -> None:
        self.samples.append(sample)

    def reset(self) -> None:
        raise AssertionError

    @property
    def reading(self) -> BenchReading:
        last = self.engine.state.last("bench", BenchReading)
        assert last is not None
        return last

    @property
    def notices(self) -> list[Notice]:
        return [sample.reading for sample in self.samples if isinstance(sample.reading, Notice)]

    def more_notices(self, before: int) -> bool:
        return len(self.notices) > before

    async def until(self, what: Any) -> None:
        """Let the engine work, and time pass, until `what()` holds."""
        for _ in range(400):
            if what():
                return
            await settle()
            await asyncio.sleep(0.002)  # the store's thread
            await self.clock.advance(0.05)
        raise AssertionError("it never came to that")


@asynccontextmanager
async def bench(
    folder: Path, launch: Launch, probes: Sequence[FakeProbe] = (), *, readonly: bool = False
) -> AsyncIterator[Bench]:
    box = Bench(folder, launch, probes, readonly)
    async with running(box.engine, box):
        await box.until(lambda: box.engine.state.lane("bench").last is not None)
        yield box


def server(generated: float, requests: float) -> ServerReading:
    counters = Counters(generated_tokens=generated, requests=requests)
    one = Server(
        endpoint=URL, engine="sglang", version="0.5.15", status="up", served_name="dense-8b", tp=1, counters=counters
    )
    return ServerReading(servers=(one,), current=URL)
