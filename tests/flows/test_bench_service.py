"""The bench source: commands in, progress, runs and words out."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest

from decodetop.bench.launch import LoadFailed
from decodetop.bench.reading import BenchReading, StartBench, StopBench
from decodetop.errors import UsageError
from decodetop.flows.bench import new_seed
from decodetop.flows.claim import claimed
from decodetop.server.redact import learn
from support.played_load import URL, Played, bench, records, result


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


def test_seeds_differ() -> None:
    assert len({new_seed() for _ in range(20)}) == 20
