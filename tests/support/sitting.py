"""Sittings of an investigation: the real services on its folder, one engine a sitting, no thread, no wire.

What an operator does by key is submitted as the command the key submits. Nothing depends on how fast this machine is:
calls that block run at once, and time moves only while a benchmark is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from decodetop.bench.plan import load_presets
from decodetop.bench.reading import BenchReading, MarkBaseline, Run, StartBench
from decodetop.core.engine import Engine
from decodetop.core.sample import Command, Header, Notice, Sample
from decodetop.core.state import State
from decodetop.core.thread import CallThread
from decodetop.flows.bench import BenchService
from decodetop.flows.evidence import EvidenceService
from decodetop.flows.floor_live import FloorService
from decodetop.flows.live import watched
from decodetop.flows.log import LogService
from decodetop.gpu.probe import GpuProbe
from decodetop.host.machine import Machine
from decodetop.host.probe import HostProbe
from decodetop.server.client import SafeClient
from decodetop.server.probe import ServerControl, ServerProbe
from decodetop.steps.reading import StepsReading
from decodetop.steps.service import StepsService
from decodetop.steps.wire import Job
from decodetop.todo.reading import AddAttempt, EditTodo, Todo, TodoReading
from decodetop.todo.service import TodoService
from support.clock import ManualClock, settle
from support.fake_host import fake_host
from support.inference_box import ENDPOINT, InferenceBox, hub
from support.kineto import Trace
from support.running import running

T = TypeVar("T")
HOST = "gpu-box"
ONE_STREAM = (
    "[one]",
    'title = "one stream, 256 tokens out"',
    "streams = [1]",
    "requests_per_stream = 4",
    "input_tokens = 512",
    "output_tokens = 256",
)
"""A preset's lines."""
LOOK_S = 5.0
"""Period of the probes: often enough to see a benchmark, rarely enough to be quick."""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocking calls run on the loop; prompts are the same each time."""

    async def call(self: CallThread, function: Callable[[], T]) -> T:
        return function()

    monkeypatch.setattr(CallThread, "call", call)
    monkeypatch.setattr("decodetop.flows.bench.new_seed", lambda: 1)


async def _unwatched(folder: Path, names: frozenset[str]) -> AsyncIterator[None]:
    """Nobody else writes to the folder."""
    await asyncio.Event().wait()
    yield


class Sitting:
    """One engine. `state` is what a pane would see."""

    def __init__(self, folder: Path, box: InferenceBox, clock: ManualClock, machine: Machine) -> None:
        self.clock = clock
        self.box = box
        self.notices: list[Notice] = []
        self.steps = StepsService(folder)
        gpus = GpuProbe(clock, box.cards)
        servers = ServerProbe(clock, endpoints=(ENDPOINT,), usual_ports=False, proc=box.proc)
        host = HostProbe(clock, watched=lambda: watched(self.engine.state), machine=machine)
        gpus.period_s = servers.period_s = host.period_s = LOOK_S
        services = (
            ServerControl(servers),
            TodoService(folder, _unwatched),
            BenchService(folder, load_presets(folder / "presets.toml"), lambda: None, box.load),
            self.steps,
            FloorService(folder),
            EvidenceService(),
            LogService(folder),
        )
        header = Header(version="0.1.0", host=HOST, started_wall_ns=clock.wall_ns(), simulated=True)
        self.engine = Engine(header, clock, (gpus, servers, host), services)

    @property
    def state(self) -> State:
        return self.engine.state

    def put(self, sample: Sample) -> None:
        if isinstance(sample.reading, Notice):
            self.notices.append(sample.reading)

    def reset(self) -> None:
        raise AssertionError("a live source never begins anew")

    async def do(self, *commands: Command) -> None:
        """As the operator's keys; what goes wrong is a notice, and ends the test."""
        for command in commands:
            self.engine.submit(command)
            await settle(60)
        wrong = [notice for notice in self.notices if notice.level == "error"]
        assert not wrong, wrong

    async def bench(self, preset: str, *, baseline: bool = False) -> Run:
        """Start a preset and let time pass until it is measured and stored."""
        before = len(self.runs)
        self.engine.submit(StartBench(preset=preset))
        for _ in range(10_000):
            await self.clock.advance(0.25)
            reading = self.state.last("bench", BenchReading)
            if len(self.runs) > before and reading is not None and reading.progress is None:
                break
        run = self.runs[0]
        await self.do(*([MarkBaseline(run_id=run.id)] if baseline else []))
        return run

    async def capture(self, trace: Trace, path: Path, itl_ms: float | None) -> None:
        """Read a trace as a capture of the live server hands it over: with the time measured before it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        trace.write(path)
        os.utime(path, ns=(self.clock.wall_ns(), self.clock.wall_ns()))
        await self.steps.read(Job(paths=(str(path),), itl_ms=itl_ms), self.engine)
        await settle(60)
        steps = self.state.last("steps", StepsReading)
        assert steps is not None and steps.captures[0].report.ranks[0].coverage.ok

    async def attempt(self, words: str, change: str, reason: str) -> None:
        """Record what failed for an item, and cancel it."""
        id = self.item(words).id
        tried = AddAttempt(id=id, change=change, outcome="failed", reason=reason)
        await self.do(EditTodo(id=id, status="in_progress"), tried, EditTodo(id=id, status="cancelled", reason=reason))

    async def look(self, seconds: float = 3 * LOOK_S) -> State:
        """What stands on the screen some seconds later."""
        await self.clock.advance(seconds)
        await settle(60)
        return self.state

    @property
    def runs(self) -> tuple[Run, ...]:
        bench = self.state.last("bench", BenchReading)
        return bench.runs if bench is not None else ()

    def item(self, words: str) -> Todo:
        """The item that says so."""
        todo = self.state.last("todo", TodoReading)
        assert todo is not None
        (found,) = [one for one in todo.todos if words in one.content]
        return found


@contextlib.asynccontextmanager
async def sitting(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    wall_ns: int,
    make: Callable[[ManualClock], InferenceBox],
    presets: Iterable[str] = (),
) -> AsyncIterator[Sitting]:
    """From `wall_ns` on, with the box as `make` makes it; every source has spoken when it begins."""
    clock = ManualClock(wall_ns)
    box = make(clock)

    async def fetch(client: SafeClient, path: str) -> Any:
        return await box.fetch(client, path)

    monkeypatch.setattr(SafeClient, "_fetch", fetch)
    folder.mkdir(parents=True, exist_ok=True)
    if presets:
        (folder / "presets.toml").write_text("\n".join(presets) + "\n")
    desk = Sitting(folder, box, clock, fake_host(monkeypatch, clock, box.proc, folder.parent / "machine"))
    async with running(desk.engine, desk):
        try:
            await clock.advance(2 * LOOK_S)
            yield desk
        finally:
            await box.close()


def investigation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, config: Path) -> Path:
    """The folder of an investigation on a box whose local cache holds `model`."""
    monkeypatch.setenv("HF_HUB_CACHE", str(hub(tmp_path / "hub", model, config)))
    return tmp_path / "investigation"
