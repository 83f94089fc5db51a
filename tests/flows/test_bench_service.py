"""The bench source: commands in, progress, runs and words out; the load is played, the store is real."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.bench.launch import Launch, Listener, LoadFailed
from decodetop.bench.plan import load_presets
from decodetop.bench.reading import BenchReading, Environment, MarkBaseline, Plan, StartBench, StopBench
from decodetop.bench.request import Dialect
from decodetop.bench.store import FILE, RunStore
from decodetop.bench.wire import Ready, Record, Result, Tick
from decodetop.core.clock import SECOND_NS
from decodetop.core.engine import Engine
from decodetop.core.sample import Header, Notice, Reading, Sample
from decodetop.errors import UsageError
from decodetop.flows.bench import BenchService, new_seed, shown
from decodetop.flows.bench_window import FRESH_S
from decodetop.flows.claim import claimed
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.server.reading import Counters, Server, ServerReading
from decodetop.server.redact import learn
from support import states
from support.clock import ManualClock, settle

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
    running = asyncio.ensure_future(box.engine.run(box))
    try:
        await box.until(lambda: box.engine.state.lane("bench").last is not None)
        yield box
    finally:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


def server(generated: float, requests: float) -> ServerReading:
    counters = Counters(generated_tokens=generated, requests=requests)
    one = Server(
        endpoint=URL, engine="sglang", version="0.5.15", status="up", served_name="dense-8b", tp=1, counters=counters
    )
    return ServerReading(servers=(one,), current=URL)


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


async def test_the_key_and_other_secrets_reach_no_reading(tmp_path: Path) -> None:
    failing = LoadFailed("answered 401: bad sk-key-123456", "set the key", "http")
    async with bench(tmp_path, Played(result(4, fault="http"), failing)) as box:
        box.engine.submit(StartBench(preset="single", endpoint=URL))
        await box.until(lambda: box.reading.runs)
        assert "hf_abc" not in box.reading.runs[0].requests.errors[0].example
        await box.until(lambda: box.notices)
        box.engine.submit(StartBench(preset="single", endpoint=URL))
        await box.until(lambda: box.reading.last_error is not None and "401" in box.reading.last_error)
        assert all("sk-key" not in str(sample) for sample in box.samples)


async def test_a_sweep_runs_its_steps_and_ends_at_one_that_brings_nothing(tmp_path: Path) -> None:
    launch = Played(result(3), result(6), result(12, fault="http"))
    async with bench(tmp_path, launch) as box:
        box.engine.submit(StartBench(preset="sweep", endpoint=URL))
        await box.until(lambda: box.notices)
        assert [plan.streams for plan in launch.plans] == [1, 2, 4]
        assert [run.plan.streams for run in box.reading.runs] == [4, 2, 1]
        steps = {sample.reading.progress.step for sample in box.samples
                 if isinstance(sample.reading, BenchReading) and sample.reading.progress}  # fmt: skip
        assert steps == {1, 2, 3}
        assert (box.notices[-1].level, box.notices[-1].ring) == ("error", True)
        assert "no request succeeded: 12 x http" in box.notices[-1].message


async def test_stop_keeps_a_partial_run(tmp_path: Path) -> None:
    async with bench(tmp_path, Played(result(2, partial=True), hold=True)) as box:
        box.engine.submit(StartBench(preset="sweep", endpoint=URL))
        await box.until(lambda: box.reading.progress is not None and box.reading.progress.phase == "measuring")
        box.engine.submit(StopBench())
        await box.until(lambda: box.reading.runs)
        run = box.reading.runs[0]
        assert run.partial and "partial" in {gate.name for gate in run.gates}
        await box.until(lambda: box.notices)
        assert (box.notices[-1].level, box.notices[-1].message[:17]) == ("warning", "benchmark stopped")
        assert box.reading.progress is None and "suspect, stopped" in box.notices[-1].message


async def test_stopped_before_anything_was_measured_stores_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path, Played(result(0, partial=True), hold=True)) as box:
        box.engine.submit(StartBench(preset="single", endpoint=URL))
        await box.until(lambda: box.reading.progress is not None and box.reading.progress.phase == "measuring")
        box.engine.submit(StopBench())
        await box.until(lambda: box.notices)
        assert box.reading.runs == () and "nothing was measured" in box.notices[-1].message
        assert box.notices[-1].level == "info"


async def test_refusals(tmp_path: Path) -> None:
    launch = Played(result(1), result(1), hold=True)
    async with bench(tmp_path, launch) as box:
        for command, words in (
            (StartBench(preset="single"), "no server to measure"),
            (StartBench(preset="nonsense", endpoint=URL), "no preset 'nonsense'"),
        ):
            before = len(box.notices)
            box.engine.submit(command)
            await box.until(partial(box.more_notices, before))
            assert words in box.notices[-1].message and box.notices[-1].hint
        box.engine.submit(StartBench(preset="single", endpoint=URL))
        await box.until(lambda: box.reading.progress is not None)
        before = len(box.notices)
        box.engine.submit(StartBench(preset="single", endpoint=URL))
        await box.until(partial(box.more_notices, before))
        assert "running already" in box.notices[-1].message
        with pytest.raises(UsageError):
            await box.service.measure(launch.plans, box.engine)
        assert len(launch.plans) == 1


async def test_a_server_under_another_load_is_refused_and_free_again_after_it(tmp_path: Path) -> None:
    launch = Played(result(4), hold=True)
    async with bench(tmp_path, launch) as box:
        with claimed([URL], "a capture"):
            box.engine.submit(StartBench(preset="single", endpoint=URL))
            await box.until(lambda: box.notices)
        assert "under load already, by a capture" in box.notices[-1].message and launch.plans == []
        box.engine.submit(StartBench(preset="single", endpoint=URL))
        await box.until(lambda: box.reading.progress is not None)
        with pytest.raises(UsageError, match="by a benchmark"), claimed([URL], "a capture"):
            pass
        launch.release.set()
        await box.until(lambda: box.reading.runs)
        await box.until(lambda: box.reading.progress is None)
        with claimed([URL], "a capture"):
            pass


async def test_readonly_refuses_load_but_not_the_baseline(tmp_path: Path) -> None:
    launch = Played(result(1))
    async with bench(tmp_path, launch, readonly=True) as box:
        box.engine.submit(StartBench(preset="single", endpoint=URL))
        await box.until(lambda: box.notices)
        assert "readonly" in box.notices[-1].message and launch.plans == []


async def test_baseline_and_runs_of_another_process(tmp_path: Path) -> None:
    async with bench(tmp_path, Played(result(4), result(4))) as box:
        box.engine.submit(StartBench(preset="single", endpoint=URL))
        await box.until(lambda: box.notices)
        box.engine.submit(MarkBaseline(run_id=1))
        await box.until(lambda: box.reading.baseline_id == 1)
        other = RunStore(tmp_path)
        other.add(box.reading.runs[0])
        other.close()
        await box.until(lambda: [run.id for run in box.reading.runs] == [2, 1])
        box.engine.submit(MarkBaseline(run_id=None))
        await box.until(lambda: box.reading.baseline_id is None)
        before = len(box.notices)
        box.engine.submit(MarkBaseline(run_id=99))
        await box.until(partial(box.more_notices, before))
        assert "no run 99" in box.notices[-1].message


async def test_a_store_that_can_not_be_used_is_said_and_the_run_still_shown(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"something else" * 200)
    async with bench(tmp_path, Played(result(4))) as box:
        assert box.reading.problem is not None and FILE in box.reading.problem
        box.engine.submit(StartBench(preset="single", endpoint=URL))
        await box.until(lambda: box.reading.runs and box.notices)
        assert box.reading.runs[0].id is None
    assert (tmp_path / FILE).read_bytes() == b"something else" * 200


@pytest.mark.parametrize("damage", ["a table missing", "pages overwritten"])
async def test_a_damaged_store_holds_no_run_up(tmp_path: Path, damage: str) -> None:
    store = RunStore(tmp_path)
    for number in range(60):
        store.add(states.run(number, 50.0, 20.0))
    store.close()
    if damage == "a table missing":
        with sqlite3.connect(tmp_path / FILE) as raw:
            raw.execute("DROP TABLE runs")
        raw.close()
    else:
        whole = (tmp_path / FILE).read_bytes()
        (tmp_path / FILE).write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    async with bench(tmp_path, Played(result(4))) as box:
        assert box.reading.problem is not None and FILE in box.reading.problem
        box.engine.submit(StartBench(preset="single", endpoint=URL))
        await box.until(lambda: box.reading.runs and box.notices)
        assert box.reading.runs[0].id is None and box.reading.runs[0].requests.ok == 4
        assert box.service.unstored is not None and FILE in box.service.unstored.message
        before = len(box.notices)
        box.engine.submit(MarkBaseline(run_id=1))
        await box.until(partial(box.more_notices, before))
        assert FILE in box.notices[-1].message


async def test_a_run_that_can_not_be_read_is_no_reason_not_to_store(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.add(states.run(1, 50.0, 20.0))
    store.mark_baseline(1)
    store.close()
    raw = sqlite3.connect(tmp_path / FILE)
    raw.execute("DROP TRIGGER runs_unchanged")
    raw.execute("UPDATE runs SET json = '{'")
    raw.commit()
    raw.close()
    async with bench(tmp_path, Played(result(4))) as box:
        assert (box.reading.unreadable, box.reading.problem, box.reading.baseline_id) == (1, None, None)
        box.engine.submit(StartBench(preset="single", endpoint=URL))
        await box.until(lambda: box.reading.runs and box.notices)
        assert box.reading.runs[0].id == 2
        assert (box.service.unstored, box.reading.problem, box.reading.unreadable) == (None, None, 1)


async def test_a_store_that_hangs_holds_no_run_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    async with bench(tmp_path, Played(result(4))) as box:
        monkeypatch.setattr(RunStore, "add", lambda store, run: held.wait(60))
        box.engine.submit(StartBench(preset="single", endpoint=URL))
        try:
            for _ in range(40):
                await box.clock.advance(2.0)
                await settle()
            await box.until(lambda: box.reading.runs)
        finally:
            held.set()
        assert box.reading.runs[0].id is None
        assert box.reading.problem is not None and "did not answer" in box.reading.problem


async def test_what_a_lost_load_process_had_finished_is_kept_and_said(tmp_path: Path) -> None:
    cut = msgspec.structs.replace(result(2, partial=True), lost="the load process ended by signal 9 before its result")
    launch = Played(cut)
    async with bench(tmp_path, launch) as box:
        box.engine.submit(StartBench(preset="sweep", endpoint=URL))
        await box.until(lambda: box.notices)
        (run,) = box.reading.runs
        assert run.id == 1 and run.partial and run.requests.ok == 2 and run.metrics.tpot_ms is not None
        assert [gate.severity for gate in run.gates if gate.name == "load_lost"] == ["suspect"]
        assert box.notices[-1].level == "error" and len(launch.plans) == 1
        assert "signal 9" in box.notices[-1].message and "of the 2 of 3 requests" in box.notices[-1].message
        assert "run it again" in box.notices[-1].hint


async def test_a_key_a_server_of_this_box_was_started_with_is_masked_in_its_words(tmp_path: Path) -> None:
    learn(["python", "-m", "sglang.launch_server", "--api-key", "correct-horse-battery", "--port", "30000"])
    spoken = msgspec.structs.replace(
        result(1, fault="http"),
        records=[msgspec.structs.replace(records(1, "http")[0], message="401: not correct-horse-battery")],
    )
    refused = LoadFailed("answered 401: not correct-horse-battery", "set the key", "http")
    async with bench(tmp_path, Played(spoken, refused)) as box:
        for _ in range(2):
            before = len(box.notices)
            box.engine.submit(StartBench(preset="single", endpoint=URL))
            await box.until(partial(box.more_notices, before))
        assert "***" in box.notices[-1].message
        assert all("battery" not in str(sample) for sample in box.samples)
    assert all(b"battery" not in path.read_bytes() for path in tmp_path.iterdir())


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


def test_seeds_differ() -> None:
    assert len({new_seed() for _ in range(20)}) == 20


def test_the_lane_holds_the_newest_runs_and_the_flags_of_few() -> None:
    flagged = Environment(decodetop="0", flags={"tp": "2"}, command=("python",))
    runs = [msgspec.structs.replace(states.run(number, 50.0, 20.0), environment=flagged) for number in range(60, 0, -1)]
    lane = shown(runs, 35)
    assert [run.id for run in lane] == list(range(60, 30, -1))
    assert [run.id for run in lane if run.environment.flags] == [60, 59, 58, 57, 56, 55, 54, 53, 35]
    assert [run.id for run in shown(runs, 2)][-2:] == [31, 2]
