"""The service: a trace read by the child process, stored, shown; cancelled, refused, damaged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine
from decodetop.core.sample import Header, Notice, Sample
from decodetop.core.state import State
from decodetop.errors import TraceError
from decodetop.steps import launch, text
from decodetop.steps.analyse import analyse
from decodetop.steps.reading import (
    CancelParsing,
    CompareCaptures,
    OpenTrace,
    Parsing,
    ShowCapture,
    StepsReading,
    StepsReport,
)
from decodetop.steps.service import StepsService
from decodetop.steps.store import CaptureStore, capture_id
from decodetop.steps.wire import Job
from support.kineto import STEP_US, decode

HEADER = Header(version="0", host="box", started_wall_ns=0)


class Box:
    """An engine with the service alone; `until` waits for what the samples show."""

    def __init__(self, folder: Path) -> None:
        self.engine = Engine(HEADER, SystemClock(), services=(StepsService(folder),))
        self.samples: list[Sample] = []
        self._news = asyncio.Event()

    def put(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._news.set()

    def reset(self) -> None:
        self.samples.clear()

    @property
    def reading(self) -> StepsReading:
        return self.engine.state.last("steps", StepsReading) or StepsReading()

    @property
    def notices(self) -> list[str]:
        return [one.reading.message for one in self.samples if isinstance(one.reading, Notice)]

    async def until(self, holds: Callable[[State], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds(self.engine.state):
                self._news.clear()
                await self._news.wait()

    async def has(self, captures: int) -> None:
        await self.until(lambda _: self.reading.parsing is None and len(self.reading.captures) == captures)


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Box]:
    box = Box(folder)
    task = asyncio.ensure_future(box.engine.run(box))
    try:
        await box.until(lambda state: state.lane("steps").last is not None)
        yield box
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def trace(folder: Path, name: str = "17-TP-0.trace.json.gz", steps: int = 6) -> str:
    return str(decode(steps).write(folder / name))


async def test_a_trace_is_read_stored_and_found_again(tmp_path: Path) -> None:
    path = trace(tmp_path)
    os.utime(path, ns=(5_000_000_000, 1_796_000_000_000_000_000))
    async with running(tmp_path / "inv") as box:
        box.engine.submit(OpenTrace(paths=(path,)))
        await box.has(1)
        capture = box.reading.captures[0]
        assert capture.report == analyse([path])
        assert capture.made_wall_ns == 1_796_000_000_000_000_000 and capture.files == (path,)
        assert any(isinstance(one.reading, StepsReading) and one.reading.parsing for one in box.samples), (
            "progress shown"
        )
    (stored,) = (tmp_path / "inv" / "captures").glob("*.json")
    assert json.loads(stored.read_text())["schema"] == 1
    async with running(tmp_path / "inv") as box:
        assert box.reading.captures == (capture,)


async def test_the_newest_stands_first_and_the_same_replaces_itself(tmp_path: Path) -> None:
    first, second = trace(tmp_path), trace(tmp_path, "18-TP-0.trace.json.gz")
    async with running(tmp_path / "inv") as box:
        for count, path in enumerate((first, second), 1):
            box.engine.submit(OpenTrace(paths=(path,)))
            await box.has(count)
        assert [capture.files for capture in box.reading.captures] == [(second,), (first,)]
        box.engine.submit(OpenTrace(paths=(first,)))
        await box.until(lambda _: box.reading.parsing is None and box.reading.captures[0].files == (first,))
        assert len(box.reading.captures) == 2


async def test_what_can_not_be_read_is_said(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("nothing")
    async with running(tmp_path / "inv") as box:
        for path, word in ((bad, "not a profiler trace"), (tmp_path / "none.json", "can't read")):
            box.engine.submit(OpenTrace(paths=(str(path),)))
            await box.until(lambda _, word=word: word in (box.reading.last_error or ""))
            await box.until(lambda _, word=word: any(word in notice for notice in box.notices))
        assert box.reading.captures == () and box.reading.parsing is None
        box.engine.submit(OpenTrace(paths=(trace(tmp_path),)))
        await box.has(1)
        assert box.reading.last_error is None, "an old failure is forgotten by the next success"


def stopping_child(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Put a program in the place of the parser."""
    real = asyncio.create_subprocess_exec

    async def start(executable: str, *arguments: str, **options: object) -> asyncio.subprocess.Process:
        return await real(executable, "-c", program, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)


STUCK = (
    "import sys, time, signal, os; signal.signal(signal.SIGTERM, signal.SIG_IGN); sys.stdin.read();"
    'print(\'{"file": 0, "done_bytes": 1, "json_bytes": 2, "total_bytes": %d}\' % os.getpid(), flush=True);'
    "time.sleep(99)"
)
"""Deaf to SIGTERM; tells its pid as a size."""


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_cancelling_ends_a_deaf_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "STOP_S", 0.1)
    stopping_child(monkeypatch, STUCK)
    async with running(tmp_path / "inv") as box:
        box.engine.submit(OpenTrace(paths=(trace(tmp_path),)))
        await box.until(lambda _: box.reading.parsing is not None and box.reading.parsing.done_bytes == 1)
        box.engine.submit(OpenTrace(paths=(trace(tmp_path),)))
        await box.until(lambda _: any("being read already" in notice for notice in box.notices))
        box.engine.submit(CancelParsing())
        await box.until(lambda _: "reading the trace was cancelled" in box.notices)
        await box.has(0)
        assert box.reading.last_error is None


async def test_stopping_the_engine_ends_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "STOP_S", 0.1)
    stopping_child(monkeypatch, STUCK)
    pids: list[int] = []
    original = launch._DECODER

    class Spy:
        def decode(self, line: bytes) -> object:
            said = original.decode(line)
            pids.append(said.total_bytes)
            return said

    monkeypatch.setattr(launch, "_DECODER", Spy())
    async with running(tmp_path / "inv") as box:
        box.engine.submit(OpenTrace(paths=(trace(tmp_path),)))
        await box.until(lambda _: bool(pids))
    assert gone(pids[0])


@pytest.mark.parametrize(
    ("program", "word"),
    [
        ("import sys; sys.exit('out of cheese')", "without a result"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "without a result"),
        ("print('no json'); print('{}')", "without a result"),
        ('print(\'{"error": "bad luck", "hint": "try again"}\')', "bad luck"),
    ],
)
async def test_a_child_that_dies_is_an_error_with_a_word(
    program: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping_child(monkeypatch, program)
    with pytest.raises(TraceError, match=word) as caught:
        await launch.parse(Job(paths=(trace(tmp_path),)), SystemClock(), lambda _: None)
    assert caught.value.hint


async def test_the_child_honours_the_whole_job(tmp_path: Path) -> None:
    own = tmp_path / "kinds.toml"
    own.write_text('[[family]]\nkind = "moe"\nmatch = ["nvjet"]\n')
    path = str(decode(6, "forward 3").write(tmp_path / "t.json"))
    job = Job(paths=(path,), itl_ms=0.5, accept_length=2.0, step_label="^forward (?P<bs>[0-9]+)", kinds=str(own))
    seen: list[Parsing] = []
    report = await launch.parse(job, SystemClock(), seen.append)
    (rank,) = report.ranks
    assert rank.kinds_us["moe"] == 200 and rank.batches[0].batch_size == 3
    assert rank.real is not None and rank.real.step_ms == 1.0
    assert rank.real.idle_share == pytest.approx(1 - 0.36)
    assert seen[0].total_bytes == Path(path).stat().st_size
    with pytest.raises(TraceError, match="can't read"):
        await launch.parse(msgspec.structs.replace(job, kinds="/none"), SystemClock(), seen.append)


def test_stored_captures_that_can_not_be_read_stay_where_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    (folder / "broken.json").write_text("{")
    (folder / "newer.json").write_text('{"schema": 99, "capture": {}}')
    (folder / "other.json").write_text('{"schema": 1, "capture": {"id": 3}}')
    store = CaptureStore(tmp_path)
    store.load()
    assert store.captures == () and len(store.unreadable) == 3
    assert any("schema 99 is newer" in one for one in store.unreadable)
    assert sorted(path.name for path in folder.iterdir()) == ["broken.json", "newer.json", "other.json"]


def test_names_of_captures_are_safe_and_stable() -> None:
    assert capture_id(("/a/1796.78-TP-0.trace.json.gz",), 16) == "1796.78-TP-0-10"
    assert capture_id(("/a/../x y/$(rm -rf).trace.json",), None) == "__rm_-rf_-0"
    assert capture_id((), None) == "trace-0"


async def test_an_unwritable_investigation_still_shows_the_capture(tmp_path: Path) -> None:
    (tmp_path / "inv").write_text("a file where the folder should be")
    async with running(tmp_path / "inv") as box:
        box.engine.submit(OpenTrace(paths=(trace(tmp_path),)))
        await box.has(1)
        assert any("can't write" in notice for notice in box.notices)


def test_a_report_survives_its_json() -> None:
    report = analyse([Path(__file__).resolve().parents[1] / "captures" / "cast_full.trace.json.gz"])
    assert msgspec.json.decode(msgspec.json.encode(report), type=StepsReport) == report
    assert report.ranks[0].period_us is not None and report.ranks[0].period_us.median > STEP_US


async def test_a_capture_is_chosen_compared_and_left_for_the_next(tmp_path: Path) -> None:
    first, second = (decode(steps).write(tmp_path / f"{steps}.json") for steps in (6, 7))
    async with running(tmp_path / "inv") as box:
        box.engine.submit(OpenTrace(paths=(str(first),), itl_ms=0.5))
        await box.has(1)
        older = box.reading.captures[0].id
        assert box.reading.captures[0].report.itl_ms == 0.5
        box.engine.submit(OpenTrace(paths=(str(second),)))
        await box.has(2)
        newer = box.reading.captures[0].id
        box.engine.submit(ShowCapture(id=older))
        await box.until(lambda _: box.reading.chosen == older)
        assert box.reading.shown == box.reading.captures[1]
        box.engine.submit(CompareCaptures(pair=(older, newer)))
        await box.until(lambda _: box.reading.before_and_after is not None)
        assert "### Before and after" in text.markdown(box.reading)
        box.engine.submit(OpenTrace(paths=(str(first),)))
        await box.until(lambda _: box.reading.chosen is None)
        assert box.reading.shown == box.reading.captures[0]


def test_each_kept_step_holds_its_parts(tmp_path: Path) -> None:
    (rank,) = analyse([decode(9).write(tmp_path / "t.json")]).ranks
    assert len(rank.kept_steps) == rank.steps.used > 2
    for step in rank.kept_steps:
        assert step.kinds_us["idle"] == step.idle_us
        assert sum(round(us * 1000) for us in step.kinds_us.values()) == round(step.period_us * 1000)


async def test_the_pair_compared_last_is_told_later_until_a_capture_is_made(tmp_path: Path) -> None:
    files = [decode(steps).write(tmp_path / f"{steps}.json") for steps in (6, 7, 8)]
    async with running(tmp_path / "inv") as box:
        for number, file in enumerate(files[:2], 1):
            box.engine.submit(OpenTrace(paths=(str(file),)))
            await box.has(number)
        newer, older = (one.id for one in box.reading.captures)
        box.engine.submit(CompareCaptures(pair=(newer, older)))
        await box.until(lambda _: box.reading.kept is not None)
        box.engine.submit(CompareCaptures(pair=None))
        await box.until(lambda _: box.reading.compared is None)
        assert box.reading.told is not None and box.reading.told[0].id == newer
    async with running(tmp_path / "inv") as box:
        await box.has(2)
        assert box.reading.before_and_after is None, "the pane shows the newest"
        assert box.reading.told is not None and [one.id for one in box.reading.told] == [newer, older]
        box.engine.submit(OpenTrace(paths=(str(files[2]),)))
        await box.has(3)
        assert box.reading.kept is None
    for damaged in (b"", b"[]", b'{"schema":1,"pair":["a"],"newest":""}', b"\xff"):
        (tmp_path / "inv" / "captures" / ".compared").write_bytes(damaged)
        store = CaptureStore(tmp_path / "inv")
        store.load()
        assert (store.compared, store.unreadable, len(store.captures)) == (None, (), 3)
