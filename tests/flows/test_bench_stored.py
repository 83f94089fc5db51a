"""The bench source and the store: what is kept, what another process wrote; no fault of a disk holds a run up."""

from __future__ import annotations

import sqlite3
import threading
from functools import partial
from pathlib import Path

import msgspec
import pytest

from decodetop.bench.reading import Environment, MarkBaseline, StartBench
from decodetop.bench.store import FILE, RunStore
from decodetop.flows.bench import shown
from support import states
from support.clock import settle
from support.played_load import URL, Played, bench, result


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


def test_the_lane_holds_the_newest_runs_and_the_flags_of_few() -> None:
    flagged = Environment(decodetop="0", flags={"tp": "2"}, command=("python",))
    runs = [msgspec.structs.replace(states.run(number, 50.0, 20.0), environment=flagged) for number in range(60, 0, -1)]
    lane = shown(runs, 35)
    assert [run.id for run in lane] == list(range(60, 30, -1))
    assert [run.id for run in lane if run.environment.flags] == [60, 59, 58, 57, 56, 55, 54, 53, 35]
    assert [run.id for run in shown(runs, 2)][-2:] == [31, 2]
