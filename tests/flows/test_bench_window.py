"""What the other instruments saw over a run: the server's counters and requests, the GPUs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from decodetop.bench.reading import Run, StartBench
from decodetop.bench.store import RunStore
from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Reading
from decodetop.flows.bench_window import FRESH_S
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.server.reading import SIMULATED
from support.played_load import URL, FakeProbe, Played, bench, result, server


async def test_a_preset_against_the_current_server(tmp_path: Path) -> None:
    launch = Played(result(4), hold=True)
    probes = [
        FakeProbe("server", [server(100, 5), server(100, 5), server(1124, 9)]),
        FakeProbe("gpu", [GpuReading(gpus=(Gpu(index=0, name="H200", sm_clock_mhz=1980, energy_j=5.0),))]),
    ]
    async with bench(tmp_path, launch, probes) as box:
        assert [preset.name for preset in box.reading.presets] == ["single", "sweep", "long", "ladder"]
        box.engine.submit(StartBench(preset="single"))
        await box.until(lambda: box.reading.progress is not None and box.reading.progress.phase == "measuring")
        launch.release.set()
        await box.until(lambda: box.reading.progress is None and box.reading.runs)
        (run,) = box.reading.runs
        assert (run.id, run.valid, run.partial, run.requests.ok) == (1, True, False, 4)
        assert (run.environment.engine, run.environment.model, run.environment.host) == ("sglang", "dense-8b", "box")
        assert run.environment.server is not None
        assert (run.environment.server.generated_tokens, run.environment.server.requests) == (1024.0, 4.0)
        assert run.environment.gpu_names == ("H200",) and run.environment.gpus[0].n >= 2
        assert run.plan.model == "tiny"  # the name the server answered to
        assert launch.plans[0].endpoint == URL and launch.keys == ["sk-key-123456"]
        await box.until(lambda: box.notices)
        assert box.notices[-1].ring and "benchmark done: #1 single" in box.notices[-1].message
    assert RunStore(tmp_path).latest()[0].id == 1


async def test_a_server_that_never_answers_a_scrape_holds_nothing_up(tmp_path: Path) -> None:
    class Stuck(FakeProbe):
        async def read(self) -> Reading:
            self.reads += 1
            if self.reads > 1:
                await asyncio.Event().wait()
            return self.said[0]

    async with bench(tmp_path, Played(result(4)), [Stuck("server", [server(1, 1)])]) as box:
        began_ns = box.clock.now_ns()
        box.engine.submit(StartBench(preset="single"))
        await box.until(lambda: box.reading.runs)
        assert box.clock.now_ns() - began_ns <= 3 * FRESH_S * SECOND_NS


@pytest.mark.parametrize(("version", "simulated"), [("0.5.15", False), (f"0.5.15{SIMULATED}", True)])
async def test_a_run_on_a_simulated_server_is_marked_on_any_box(tmp_path: Path, version: str, simulated: bool) -> None:
    seen = server(1, 1)
    (one,) = seen.servers
    probe = FakeProbe(
        "server", [msgspec.structs.replace(seen, servers=(msgspec.structs.replace(one, version=version),))]
    )
    async with bench(tmp_path, Played(result(4)), [probe]) as box:
        box.engine.submit(StartBench(preset="single"))
        await box.until(lambda: box.reading.runs)
        assert box.reading.runs[0].environment.simulated is simulated


async def loaded(tmp_path: Path, running: int | None, queued: int | None, ours: int = 4) -> Run:
    """A run under which the server, when it was asked, had these requests."""
    idle, busy = server(100, 5), server(100, 5)
    (one,) = busy.servers
    busy = msgspec.structs.replace(busy, servers=(msgspec.structs.replace(one, running=running, queued=queued),))
    probe = FakeProbe("server", [idle, idle, busy, busy, server(1124, 9)])
    launch = Played(result(ours), hold=True)
    async with bench(tmp_path, launch, [probe]) as box:
        box.engine.submit(StartBench(preset="single"))
        await box.until(lambda: probe.reads >= 4)
        launch.release.set()
        await box.until(lambda: box.reading.runs)
        return box.reading.runs[0]


@pytest.mark.parametrize(
    ("running", "queued", "foreign"), [(5, 0, True), (4, 3, True), (4, 0, False), (3, 1, False), (None, None, False)]
)
async def test_more_requests_at_the_server_than_ours_are_another_load(
    tmp_path: Path, running: int | None, queued: int | None, foreign: bool
) -> None:
    run = await loaded(tmp_path, running, queued)
    found = [(gate.severity, gate.detail) for gate in run.gates if gate.name == "other_load"]
    if not foreign:
        assert found == []
        return
    assert running is not None and queued is not None
    ((severity, detail),) = found
    assert (
        severity == "suspect" and f"{running + queued} requests ran or waited at the server, at most 4 ours" in detail
    )


async def test_one_look_at_the_server_is_too_few(tmp_path: Path) -> None:
    """Its gauge may still be that of a load before."""
    busy = server(100, 5)
    busy = msgspec.structs.replace(busy, servers=(msgspec.structs.replace(busy.servers[0], running=9, queued=0),))
    probe = FakeProbe("server", [server(100, 5), server(100, 5), busy, server(1124, 9)])
    launch = Played(result(4), hold=True)
    async with bench(tmp_path, launch, [probe]) as box:
        box.engine.submit(StartBench(preset="single"))
        await box.until(lambda: probe.reads >= 3)
        launch.release.set()
        await box.until(lambda: box.reading.runs)
        assert box.reading.runs[0].environment.server is not None
        assert box.reading.runs[0].environment.server.under_way_median is None
