"""An engine that can capture, what stands for its surroundings, and all that comes out of it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from decodetop.bench.launch import Launch, Listener, LoadFailed
from decodetop.bench.reading import Plan
from decodetop.bench.request import Dialect
from decodetop.bench.wire import Ready, Record, Result, Tick
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine, Probe
from decodetop.core.sample import Command, Header, Notice, Reading, Sample
from decodetop.flows.capture import CaptureService
from decodetop.flows.capture_shot import Patience
from decodetop.server.reading import Flag, Server, ServerReading
from decodetop.steps.reading import StepsReading
from decodetop.steps.service import StepsService
from support.profiled_engine import ProfiledEngine
from support.running import running

WAIT_S = 60.0
"""For something that must happen; only a failing test waits so long."""


KEY = "sk-capture-123456"


QUICK = Patience(files_s=1.5, whole_s=6.0, stop_s=5.0, lull_s=0.5)


READY = Ready(dialect=Dialect(), model="tiny")


class Played:
    """Stands for the load processes: the measured run ends at once, the held one when it is told to."""

    def __init__(self, itl_ms: float = 5.0, fault: str | None = None) -> None:
        self.plans: list[Plan] = []
        self.itl_ns = int(itl_ms * 1e6)
        self.fault: Any = fault
        self.holding = False
        self.breaks = asyncio.Event()

    async def __call__(self, plan: Plan, key: str | None, listener: Listener, stop: asyncio.Event) -> Result:
        self.plans.append(plan)
        assert key == KEY
        await listener.ready(READY)
        if len(self.plans) % 2 == 0:
            await self._hold(plan, listener, stop)
        return self._result(plan)

    async def _hold(self, plan: Plan, listener: Listener, stop: asyncio.Event) -> None:
        self.holding = True
        listener.tick([Tick(phase="measuring", first_tokens=plan.streams)])
        waits = [asyncio.ensure_future(event.wait()) for event in (stop, self.breaks)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.holding = False
            for wait in waits:
                wait.cancel()
        if self.breaks.is_set():
            raise LoadFailed(f"the connection was reset, {KEY}", "see its log", "cut")

    def _result(self, plan: Plan) -> Result:
        records = [
            Record(
                index=number,
                due_ns=0,
                write_ns=1,
                chunks_ns=[] if self.fault else [100_000_000 + self.itl_ns * at for at in range(plan.output_tokens)],
                chunk_tokens=[1] * (0 if self.fault else plan.output_tokens),
                output_tokens=plan.output_tokens,
                fault=self.fault,
                message=f"no luck with {KEY}" if self.fault else "",
            )
            for number in range(plan.requests)
        ]
        return Result(
            records=records, source="usage", partial=False, unfinished=0, cpu_percent=1.0, loop_lag_ms_p99=0.1
        )


class Told:
    """A server probe that says what it is told to."""

    source, period_s, deadline_s = "server", 1000.0, 5.0

    def __init__(self, server: Server) -> None:
        self.server = server

    async def read(self) -> Reading:
        return ServerReading(servers=(self.server,), current=self.server.endpoint)

    async def close(self) -> None:
        return None


class OwnBox:
    """The server runs as we do, on our file systems."""

    same: bool | None = True
    variables: Mapping[str, str] = {}

    def same_files(self, pid: int) -> bool | None:
        return self.same

    def user(self, pid: int) -> int | None:
        return os.geteuid()

    def environ(self, pid: int) -> Mapping[str, str] | None:
        return self.variables

    def folder(self, pid: int) -> str | None:
        return None

    def root(self, pid: int) -> Path | None:
        return None


class Desk:
    """An engine with the two services in it, and all that came out."""

    def __init__(self, folder: Path, probe: Probe, launch: Launch | None, readonly: bool, box: OwnBox) -> None:
        self.folder = folder
        self.samples: list[Sample] = []
        self.clock = SystemClock()
        self.steps = StepsService(folder)
        more: dict[str, Any] = {"patience": QUICK, "box": box}
        if launch is not None:
            more["launch"] = launch
        else:
            more["patience"], more["box"] = None, None
        self.service = CaptureService(folder, self.steps, lambda: KEY, **more)
        header = Header(version="0", host="box", started_wall_ns=0)
        self.engine = Engine(header, self.clock, [probe], [self.steps, self.service], readonly=readonly)
        self._heard = asyncio.Event()

    def put(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._heard.set()

    def reset(self) -> None:
        raise AssertionError

    @property
    def reading(self) -> StepsReading:
        return self.engine.state.last("steps", StepsReading) or StepsReading()

    @property
    def notices(self) -> list[Notice]:
        return [sample.reading for sample in self.samples if isinstance(sample.reading, Notice)]

    @property
    def phases(self) -> list[str]:
        """In order, each once."""
        seen = [sample.reading.taking.progress for sample in self.samples if isinstance(sample.reading, StepsReading)]
        return list(dict.fromkeys(progress.phase for progress in seen if progress is not None))

    async def until(self, what: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not what():
                self._heard.clear()
                await self._heard.wait()

    async def told(self, command: Command, word: str) -> Notice:
        """Submit and wait for the notice that has this word in it."""

        def said() -> list[Notice]:
            return [notice for notice in self.notices if word in notice.message + notice.hint]

        self.engine.submit(command)
        await self.until(lambda: said() or self._surprised(word))
        return said()[-1]

    def _surprised(self, word: str) -> bool:
        wrong = [notice for notice in self.notices if notice.level == "error"]
        assert not wrong, f"waited for {word!r}, got {wrong}"
        return False


@asynccontextmanager
async def desk(
    folder: Path, probe: Probe, launch: Launch | None = None, *, readonly: bool = False, box: OwnBox | None = None
) -> AsyncIterator[Desk]:
    one = Desk(folder, probe, launch, readonly, box or OwnBox())
    async with running(one.engine, one):
        await one.until(lambda: one.engine.state.lane("server").last is not None)
        yield one


def served(one: ProfiledEngine, **more: Any) -> Server:
    """As the server probe would say it; vLLM names its trace folder on its command line."""
    config = json.dumps({"profiler": "torch", "torch_profiler_dir": str(one.folder)})
    flags = (Flag(name="profiler_config", requested=config),) if one.engine == "vllm" else ()
    fields: dict[str, Any] = {
        "endpoint": one.url,
        "engine": one.engine,
        "version": one.version,
        "status": "up",
        "served_name": "tiny",
        "root_pid": os.getpid(),
        "tp": 2 if one.engine == "sglang" else 1,
        "flags": flags,
        "running": 0,
    }
    return Server(**(fields | more))
