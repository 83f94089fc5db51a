"""A diagnosis with a stand-in for the benchmark and for the capture; the rest of it is the real thing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from decodetop.bench.plan import load_presets
from decodetop.bench.reading import ClientCheck, Environment, Metrics, Plan, Quantiles, Requests, Run, Tokens
from decodetop.bench.store import RunStore
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine
from decodetop.core.sample import Command, Header, Notice, Reading, Sample
from decodetop.diagnosis.reading import Diagnosis, DiagnosisReading
from decodetop.errors import DecodetopError
from decodetop.floor.hardware import load, named
from decodetop.flows.bench import Outcome
from decodetop.flows.diagnose import DiagnoseService
from decodetop.flows.diagnose_ask import Request
from decodetop.server.reading import Flag, Server, ServerReading
from decodetop.steps.analyse import analyse
from decodetop.steps.reading import Capture
from decodetop.steps.store import CaptureStore
from support.running import running

TESTS = Path(__file__).resolve().parents[1]
CONFIG = TESTS / "floor" / "configs" / "qwen3-8b.json"
NOGRAPH = next((TESTS / "captures" / "sglang_tp1_nograph" / "prof_c1").glob("*.gz"))
WAIT_S = 60.0
SERVER = Server(
    endpoint="http://127.0.0.1:30000",
    engine="sglang",
    version="0.5.15",
    status="up",
    model=str(CONFIG),
    tp=1,
    flags=(Flag(name="disable_cuda_graph", requested="true"), Flag(name="random_seed", resolved="7")),
)


def one_value(value: float) -> Quantiles:
    return Quantiles(n=9, mean=value, p50=value, p90=value, p99=value)


def a_run(partial: bool = False) -> Run:
    metrics: dict[str, Any] = dict.fromkeys(Metrics.__struct_fields__)
    return Run(
        started_wall_ns=1,
        duration_s=1.0,
        valid=True,
        partial=partial,
        gates=(),
        plan=Plan(
            preset="single", endpoint=SERVER.endpoint, streams=1, requests=4, input_tokens=16, output_tokens=8, seed=1
        ),
        environment=Environment(decodetop="0"),
        requests=Requests(ok=4, failed=0),
        tokens=Tokens(output=32, prompt=64, cached=None, source="usage"),
        metrics=Metrics(**{**metrics, "itl_ms": one_value(19.347)}),
        client=ClientCheck(loop_lag_ms_p99=None, cpu_percent=None, send_delay_ms_p99=None),
    )


class Bench:
    """Stands for the benchmark: stores a run, or breaks, or waits to be stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = 0
        self.error: DecodetopError | None = None
        self.hangs = False
        self.partial = False

    async def measure(self, plans: Any, context: Any, stop: Any = None) -> Outcome:
        self.calls += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            return Outcome(runs=(), error=self.error)
        store = RunStore(self.folder)
        try:
            return Outcome(runs=(store.add(a_run(self.partial)),))
        finally:
            store.close()


class Captures:
    """Stands for the capture."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = 0
        self.error: DecodetopError | None = None
        self.hangs = False
        self.stopped = False

    async def capture(self, ask: Any, context: Any) -> Capture | None:
        self.calls += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        if self.stopped:
            return None
        capture = Capture(id=f"c{self.calls}", made_wall_ns=5, files=(str(NOGRAPH),), report=analyse([NOGRAPH]))
        store = CaptureStore(self.folder)
        store.add(capture)
        return capture


class Told:
    source, period_s, deadline_s = "server", 1000.0, 5.0

    def __init__(self) -> None:
        self.server = SERVER

    async def read(self) -> Reading:
        return ServerReading(servers=(self.server,), current=self.server.endpoint)

    async def close(self) -> None:
        return None


class Desk:
    def __init__(self, folder: Path, readonly: bool = False) -> None:
        self.folder = folder
        self.bench, self.captures, self.told = Bench(folder), Captures(folder), Told()
        self.samples: list[Sample] = []
        card = named("H200", load())
        bench: Any = self.bench
        captures: Any = self.captures
        self.service = DiagnoseService(folder, load_presets(), bench, captures, lambda server, gpus, problem: card)
        header = Header(version="0", host="box", started_wall_ns=0)
        self.engine = Engine(header, SystemClock(), [self.told], [self.service], readonly=readonly)
        self._heard = asyncio.Event()

    def put(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._heard.set()

    def reset(self) -> None:
        """A live engine never does."""

    async def until(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not seen():
                self._heard.clear()
                await self._heard.wait()

    @property
    def reading(self) -> DiagnosisReading:
        return self.engine.state.last("diagnosis", DiagnosisReading) or DiagnosisReading()

    def statuses(self) -> list[str]:
        return [] if self.reading.latest is None else [stage.status for stage in self.reading.latest.stages]

    def notices(self) -> list[Notice]:
        return [sample.reading for sample in self.samples if isinstance(sample.reading, Notice)]

    async def play(self, work: Callable[[], Awaitable[None]]) -> None:
        async with running(self.engine, self):
            await self.until(lambda: self.engine.state.lane("server").last is not None)
            await work()

    async def ask(self, **changes: Any) -> Diagnosis | None:
        return await self.service.diagnose(Request(**changes), self.engine)

    def submit(self, command: Command) -> None:
        self.engine.submit(command)
