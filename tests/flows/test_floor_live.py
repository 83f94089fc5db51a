"""The live floor: what it rests on, when it is computed anew, what stands and what is of yesterday's server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from decodetop.bench.reading import (
    BenchReading,
    ClientCheck,
    Environment,
    Metrics,
    Plan,
    Quantiles,
    Requests,
    Run,
    Tokens,
)
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine
from decodetop.core.sample import Header, Reading, Sample
from decodetop.core.source import Refresh
from decodetop.core.state import Lane, State
from decodetop.floor.reading import AskWhatIf, FloorReading, WhatIf
from decodetop.flows.floor_live import FloorService, basis_of, computed, still_gpus
from decodetop.flows.standing import standing
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.server.reading import Flag, Server, ServerReading
from decodetop.steps.analyse import analyse
from decodetop.steps.reading import Capture, StepsReading

TESTS = Path(__file__).resolve().parents[1]
CONFIG = TESTS / "floor" / "configs" / "qwen3-8b.json"
NOGRAPH = analyse([next((TESTS / "captures" / "sglang_tp1_nograph" / "prof_c1").glob("*.gz"))])
EIGHT = [next((TESTS / "captures" / "sglang_tp1_graph" / "prof_c8").glob("*.gz"))]
WAIT_S = 60.0
FLAGS = (Flag(name="disable_cuda_graph", requested="true"), Flag(name="random_seed", resolved="7"))
SERVER = Server(
    endpoint="http://127.0.0.1:30000",
    engine="sglang",
    version="0.5.15",
    status="up",
    model=str(CONFIG),
    tp=1,
    gpu_indices=(0,),
    flags=FLAGS,
    started_wall_ns=100,
)
GPUS = GpuReading(
    gpus=(Gpu(index=0, name="NVIDIA H200", state="ok", mem_clock_max_mhz=3201, memory_bus_bits=6016),), links=()
)


def a_run(id: int = 1, started: int = 200, streams: int = 1, flags: dict[str, str] | None = None) -> Run:
    metrics: dict[str, Any] = dict.fromkeys(Metrics.__struct_fields__)
    itl = Quantiles(n=9, mean=19.347, p50=19.347, p90=19.347, p99=19.347)
    return Run(
        id=id,
        started_wall_ns=started,
        duration_s=1.0,
        valid=True,
        gates=(),
        plan=Plan(
            preset="single", endpoint=SERVER.endpoint, streams=streams, requests=4, input_tokens=128,
            output_tokens=256, seed=1,
        ),
        environment=Environment(decodetop="0", flags=flags or {}),
        requests=Requests(ok=4, failed=0),
        tokens=Tokens(output=32, prompt=64, cached=None, source="usage"),
        metrics=Metrics(**{**metrics, "itl_ms": itl}),
        client=ClientCheck(loop_lag_ms_p99=None, cpu_percent=None, send_delay_ms_p99=None),
    )  # fmt: skip


def a_capture(id: str = "c1", made: int = 300, **report: Any) -> Capture:
    return Capture(id=id, made_wall_ns=made, files=("x",), report=msgspec.structs.replace(NOGRAPH, **report))


def state(
    server: Server | None = SERVER, gpus: GpuReading | None = GPUS, runs: tuple[Run, ...] = (), captures: Any = ()
) -> State:
    servers = ServerReading(servers=(server,), current=server.endpoint) if server is not None else ServerReading()
    seen: dict[str, Reading | None] = {
        "server": servers, "gpu": gpus, "bench": BenchReading(runs=runs), "steps": StepsReading(captures=captures),
    }  # fmt: skip
    lanes = {name: Lane(last=reading, last_t_ns=0) for name, reading in seen.items()}
    return State(header=Header(version="0", host="box", started_wall_ns=0), lanes=MappingProxyType(lanes))


NOTHING = WhatIf()


def floor(tmp_path: Path, asked: WhatIf = NOTHING, **changes: Any) -> FloorReading:
    of = {"server": SERVER, "gpus": GPUS, "problem": None, "run": None, "capture": None, **changes}
    return computed(tmp_path, asked=asked, **of)


def test_what_moves_with_the_load_is_no_reason_to_compute_anew() -> None:
    before = basis_of(state(), NOTHING)
    busy = msgspec.structs.replace(SERVER, running=9, kv_usage=0.5, generated_tok_s=77.0, accept_length=1.2)
    hot = GpuReading(
        gpus=(msgspec.structs.replace(GPUS.gpus[0], utilization_percent=99.0, mem_clock_mhz=2619, power_w=600.0),)
    )
    assert basis_of(state(busy, hot), NOTHING) == before
    assert basis_of(state(runs=(a_run(),)), NOTHING) != before
    assert basis_of(state(captures=(a_capture(),)), NOTHING) != before
    assert basis_of(state(msgspec.structs.replace(SERVER, flags=())), NOTHING) != before
    assert basis_of(state(), WhatIf(batch=2)) != before
    assert basis_of(State(header=Header(version="0", host="b", started_wall_ns=0)), NOTHING) is None


def test_a_run_and_a_capture_of_it_make_a_verdict(tmp_path: Path) -> None:
    seen = floor(tmp_path, run=a_run(), capture=a_capture())
    assert (seen.run_id, seen.capture_id, seen.problem) == (1, "c1", None)
    report = seen.report
    assert report is not None and report.verdict is not None
    assert (report.t_meas_ms, report.verdict.id) == (19.347, "host_bound")
    assert report.plan.context == 128 + 128, "half way through the answers of the run"
    assert report.moves[0].set == "remove --disable-cuda-graph"


def test_without_a_measurement_there_is_a_floor_all_the_same(tmp_path: Path) -> None:
    busy = msgspec.structs.replace(SERVER, running=9, kv_usage=0.5, kv_capacity_tokens=100_000)
    report = floor(tmp_path, server=busy).report
    assert report is not None and report.t_meas_ms is None and report.gap_ms is None
    assert report.plan.batch == 1, "the load of this second is not what is judged"
    assert 3.1 < report.t_phys_ms < 3.3


@pytest.mark.parametrize(
    ("run", "capture", "stands"),
    [
        (a_run(), a_capture(), (1, "c1")),
        (a_run(started=50), a_capture(made=60), (None, None)),
        (a_run(started=50, flags={"disable_cuda_graph": "true", "random_seed": "1"}), a_capture(), (1, "c1")),
        (a_run(flags={"disable_cuda_graph": "false"}), a_capture(), (None, "c1")),
        (a_run(streams=8), a_capture(), (None, "c1")),
        (a_run(), a_capture(engine="vllm"), (1, None)),
        (a_run(), a_capture(ranks=()), (1, None)),
    ],
)
def test_what_is_of_another_server_does_not_count(
    run: Run, capture: Capture, stands: tuple[int | None, str | None]
) -> None:
    found = standing(SERVER, BenchReading(runs=(run,)), StepsReading(captures=(capture,)))
    assert (found[0] and found[0].id, found[1] and found[1].id) == stands


@pytest.mark.parametrize(
    ("made", "itl_ms", "runs", "stands"),
    [
        (300, 5.57, (a_run(),), (None, "c8")),
        (150, 5.57, (a_run(),), (None, "c8")),
        (300, None, (a_run(),), (1, None)),
        (300, None, (), (None, "c8")),
    ],
)
def test_a_capture_of_eight_explains_its_own_step_only(
    made: int, itl_ms: float | None, runs: tuple[Run, ...], stands: tuple[int | None, str | None]
) -> None:
    capture = Capture(id="c8", made_wall_ns=made, files=("x",), report=analyse(EIGHT, itl_ms=itl_ms))
    run, found = standing(SERVER, BenchReading(runs=runs), StepsReading(captures=(capture,)))
    assert (run and run.id, found and found.id) == stands


def test_its_step_is_judged_at_its_batch(tmp_path: Path) -> None:
    capture = Capture(id="c8", made_wall_ns=300, files=("x",), report=analyse(EIGHT, itl_ms=5.57))
    report = floor(tmp_path, capture=capture).report
    assert report is not None and (report.plan.batch, report.t_meas_ms) == (8, 5.57) and report.errors == ()


def test_a_what_if_moves_the_floor_and_leaves_what_is(tmp_path: Path) -> None:
    seen = floor(tmp_path, WhatIf(tp=2, batch=4), run=a_run(), capture=a_capture())
    assert seen.report is not None and seen.what_if is not None
    assert (seen.what_if.plan.tp, seen.what_if.plan.batch, seen.what_if.plan.context) == (2, 4, 256)
    assert seen.what_if.bytes_low.weights == pytest.approx(seen.report.bytes_low.weights / 2)
    assert seen.what_if.t_meas_ms is None and seen.report.t_meas_ms == 19.347
    fp8 = floor(tmp_path, WhatIf(weights_dtype="fp8", gpu="B200 SXM"))
    assert fp8.what_if is not None and fp8.what_if.hardware.name == "B200 SXM"
    assert "fp8_e4m3" in seen.choices.kv_dtypes and "B200 SXM" in seen.choices.gpus


def test_a_what_if_that_cannot_be_says_why(tmp_path: Path) -> None:
    seen = floor(tmp_path, WhatIf(gpu="RTX 9999"))
    assert seen.report is not None and seen.what_if is None
    assert "RTX 9999" in (seen.what_if_problem or "")


def test_a_server_elsewhere_needs_a_card_by_name(tmp_path: Path) -> None:
    away = msgspec.structs.replace(SERVER, local=False)
    seen = floor(tmp_path, server=away)
    assert seen.report is None and "runs on another host" in (seen.problem or "")
    named = floor(tmp_path, WhatIf(gpu="B200 SXM"), server=away)
    assert named.what_if is not None and named.what_if.hardware.name == "B200 SXM"


def test_a_model_that_is_not_here_is_said(tmp_path: Path) -> None:
    seen = floor(tmp_path, server=msgspec.structs.replace(SERVER, model="Qwen/Nowhere"))
    assert seen.report is None and "neither a path nor in the local cache" in (seen.problem or "") and seen.hint
    assert floor(tmp_path, gpus=None, problem="driver not loaded").problem == "no GPU is found: driver not loaded"


class Told:
    period_s, deadline_s = 1000.0, 5.0

    def __init__(self, source: str, reading: Reading) -> None:
        self.source = source
        self.reading = reading

    async def read(self) -> Reading:
        return self.reading

    async def close(self) -> None:
        return None


class Ear:
    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.heard = asyncio.Event()

    def put(self, sample: Sample) -> None:
        self.samples.append(sample)
        self.heard.set()

    def reset(self) -> None:
        """A live engine never does."""

    def floors(self) -> list[FloorReading]:
        return [sample.reading for sample in self.samples if isinstance(sample.reading, FloorReading)]

    async def until(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not seen():
                self.heard.clear()
                await self.heard.wait()


async def test_it_speaks_when_something_changed_and_only_then(tmp_path: Path) -> None:
    ear = Ear()
    server = Told("server", ServerReading(servers=(SERVER,), current=SERVER.endpoint))
    header = Header(version="0", host="box", started_wall_ns=0)
    engine = Engine(header, SystemClock(), [server, Told("gpu", GPUS)], [FloorService(tmp_path)])
    running = asyncio.ensure_future(engine.run(ear))
    try:
        await ear.until(lambda: bool(ear.floors()) and ear.floors()[-1].report is not None)
        seen = len(ear.floors())
        for load in range(3):
            busy = msgspec.structs.replace(SERVER, running=load, generated_tok_s=float(load))
            server.reading = ServerReading(servers=(busy,), current=SERVER.endpoint)
            before = len(ear.samples)
            engine.submit(Refresh(source="server"))
            await ear.until(lambda before=before: any(one.source == "server" for one in ear.samples[before:]))  # type: ignore[misc]
        engine.submit(AskWhatIf(ask=WhatIf(batch=8)))
        await ear.until(lambda: ear.floors()[-1].what_if is not None)
        assert len(ear.floors()) == seen + 1
        server.reading = ServerReading()
        engine.submit(Refresh(source="server"))
        await ear.until(lambda: ear.floors()[-1].problem == "no server was found")
    finally:
        running.cancel()
        await asyncio.wait({running})


def test_the_memory_the_driver_tells_is_what_a_what_if_has_to_fit_in(tmp_path: Path) -> None:
    """It does not move with the load, so a look at it is kept."""
    small = GpuReading(gpus=(msgspec.structs.replace(GPUS.gpus[0], memory_total_bytes=20 << 30),), links=())
    kept = still_gpus(small)
    assert kept is not None and kept.gpus[0].memory_total_bytes == 20 << 30
    found = computed(tmp_path, SERVER, small, None, None, None, WhatIf(batch=64, context=4096))
    assert found.report is not None and found.report.capacity is not None and found.report.capacity.fits is True
    other = found.what_if
    assert other is not None and other.capacity is not None
    assert (other.capacity.memory, other.capacity.fits, other.capacity.sequences) == (20 << 30, False, 8)
