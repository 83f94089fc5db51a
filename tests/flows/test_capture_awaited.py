"""The trace files of a capture: late, partial, out of sight."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from decodetop.flows.capture_guard import MARKER
from decodetop.steps.reading import CaptureSteps
from support.capture_desk import OwnBox, Played, Told, desk, served
from support.profiled_engine import ProfiledEngine


async def test_a_trace_that_is_never_finished(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:

        def cut(folder: Path) -> None:
            engine.write(folder)
            for trace in folder.glob("*.gz"):
                trace.write_bytes(trace.read_bytes()[:-2000])

        engine.writes = cut
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            notice = await d.told(CaptureSteps(), "was never finished")
            assert "decodetop steps" in notice.hint and d.reading.captures == ()
            assert not (tmp_path / "inv" / MARKER).exists()


async def test_the_ranks_that_came_are_read_and_the_rest_is_said(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:

        def half(folder: Path) -> None:
            engine.write(folder)
            last = sorted(folder.glob("*.gz"))[-1]
            last.write_bytes(last.read_bytes()[:-2000])

        engine.writes = half
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            await d.told(CaptureSteps(), "captured")
            assert [rank.rank for rank in d.reading.captures[0].report.ranks] == [0]
            words = [notice.message for notice in d.notices if notice.level == "warning"]
            assert any("left out, unfinished" in word and "TP-1" in word for word in words)
            assert any("1 of 2 ranks" in word for word in words)


async def test_files_that_come_bit_by_bit_are_waited_for(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:
        parts: list[tuple[Path, bytes]] = []

        def begin(folder: Path) -> None:
            engine.write(folder)
            for trace in sorted(folder.glob("*.gz")):
                data = trace.read_bytes()
                trace.write_bytes(data[: len(data) // 2])
                parts.append((trace, data))

        engine.writes = begin
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            d.engine.submit(CaptureSteps())
            await d.until(lambda: d.phases[-1:] == ["waiting"])
            for trace, data in parts:
                with trace.open("ab") as file:
                    file.write(data[len(data) // 2 :])
            await d.until(lambda: d.reading.captures)
            report = d.reading.captures[0].report
            assert len(report.ranks) == 2 and all(rank.unreadable_events == 0 for rank in report.ranks)


async def test_a_trace_that_grows_without_end(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:
        ends = asyncio.Event()

        async def grow(trace: Path) -> None:
            while not ends.is_set():
                with trace.open("ab") as file:
                    file.write(b'{"ph": "X"},')
                await asyncio.sleep(0.05)

        growing: list[asyncio.Task[None]] = []

        def begin(folder: Path) -> None:
            growing.append(asyncio.ensure_future(grow(folder / "1-TP-0.trace.json")))

        engine.writes = begin
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            notice = await d.told(CaptureSteps(), "still grows after")
            assert "decodetop steps" in notice.hint and d.reading.captures == ()
            assert not (tmp_path / "inv" / MARKER).exists()
        ends.set()
        await growing[0]


async def test_no_file_within_the_time_stops_the_profile_and_says_where_it_was_awaited(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:
        engine.writes = lambda folder: None
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            notice = await d.told(CaptureSteps(), "no trace came to")
            assert "container" in notice.hint and "--itl-ms 5" in notice.hint
            assert engine.controls == ["/start_profile", "/stop_profile"]
            assert not (tmp_path / "inv" / MARKER).exists()
            assert list((tmp_path / "inv" / "captures").iterdir()) == []  # an empty folder is taken away


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("vllm", {"local": False, "root_pid": None}, "on another host). There they are in "),
        ("vllm", {"flags": ()}, "torch_profiler_dir it was started with"),
        ("sglang", {"local": False, "root_pid": None}, "SGLANG_TORCH_PROFILER_DIR"),
    ],
)
async def test_traces_that_can_not_be_seen_are_named_as_the_server_names_them(
    kind: str, more: dict[str, Any], words: str, tmp_path: Path
) -> None:
    async with (
        ProfiledEngine(kind, tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine, **more)), Played()) as d,
    ):
        notice = await d.told(CaptureSteps(), "can't be read from here")
        assert words in notice.message and "decodetop steps FILE.. --itl-ms 5" in notice.hint
        assert engine.controls == ["/start_profile", "/stop_profile"]
        assert "output_dir" not in (engine.posts("/start_profile")[0].body or {})


async def test_a_container_s_files_are_named_when_they_can_not_be_reached(tmp_path: Path) -> None:
    box = OwnBox()
    box.same = False
    async with (
        ProfiledEngine("vllm", tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played(), box=box) as d,
    ):
        notice = await d.told(CaptureSteps(), "can't be read from here")
        assert "inside the server's container" in notice.message and str(engine.folder) in notice.message


async def test_a_trace_being_read_is_waited_for(tmp_path: Path) -> None:
    async with (
        ProfiledEngine("vllm", tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played()) as d,
    ):
        held = d.steps._task = asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[assignment]
        d.engine.submit(CaptureSteps())
        await d.until(lambda: d.phases[-1:] == ["reading"])
        assert d.reading.captures == () and d.reading.parsing is None
        d.steps._task = None
        held.cancel()
        await d.until(lambda: d.reading.captures)
