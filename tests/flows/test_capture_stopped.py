"""A capture that is ended: by the operator, by another, by the server's death; and what is left profiling."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec

from decodetop.flows.capture_guard import MARKER
from decodetop.steps.reading import CaptureSteps, StopCapture
from support.capture_desk import KEY, WAIT_S, Played, Told, desk, served
from support.profiled_engine import ProfiledEngine


async def test_stopped_by_the_operator(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        launch = Played(itl_ms=1000.0)  # a long window
        async with desk(tmp_path / "inv", Told(served(engine)), launch) as d:
            d.engine.submit(CaptureSteps())
            await asyncio.wait_for(engine.started.wait(), WAIT_S)
            marker = tmp_path / "inv" / MARKER
            assert json.loads(marker.read_bytes())["endpoint"] == engine.url
            await d.told(StopCapture(), "the capture was stopped")
            assert not engine.profiling and not launch.holding and not marker.exists()
            assert d.reading.captures == () and d.reading.taking.progress is None
            assert not [notice for notice in d.notices if notice.level != "info"]


async def test_the_end_of_the_engine_stops_the_profile_too(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        async with desk(tmp_path / "inv", Told(served(engine)), Played(itl_ms=1000.0)) as d:
            d.engine.submit(CaptureSteps())
            await asyncio.wait_for(engine.started.wait(), WAIT_S)
        await asyncio.wait_for(engine.stopped.wait(), WAIT_S)
        assert not engine.profiling


async def test_a_second_capture_is_refused_here_and_in_another_decodetop(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        probe = Told(served(engine))
        async with (
            desk(tmp_path / "inv", probe, Played(itl_ms=1000.0)) as d,
            desk(tmp_path / "inv", probe, Played()) as other,
        ):
            d.engine.submit(CaptureSteps())
            await asyncio.wait_for(engine.started.wait(), WAIT_S)
            await d.told(CaptureSteps(), "a capture is under way already")
            await other.told(CaptureSteps(), "under load already, by a capture")
            assert engine.controls == ["/start_profile"]
            d.samples.clear()
            await d.told(StopCapture(), "the capture was stopped")


async def test_a_server_that_dies_while_it_is_profiled(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:
        engine.writes = lambda folder: None
        launch = Played(itl_ms=200.0)
        probe = Told(served(engine))
        async with desk(tmp_path / "inv", probe, launch) as d:
            d.engine.submit(CaptureSteps())
            await asyncio.wait_for(engine.started.wait(), WAIT_S)
            probe.server = msgspec.structs.replace(probe.server, status="down", status_message="connection refused")
            await d.until(lambda: d.reading.taking.error)
            assert "went down while it was profiled" in str(d.reading.taking.error)
            assert "log" in str(d.reading.taking.error)


async def test_a_load_that_breaks_is_the_server_s_end_too(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:
        engine.writes = lambda folder: None
        launch = Played(itl_ms=200.0)
        async with desk(tmp_path / "inv", Told(served(engine)), launch) as d:
            d.engine.submit(CaptureSteps())
            await asyncio.wait_for(engine.started.wait(), WAIT_S)
            launch.breaks.set()
            await d.until(lambda: d.reading.taking.error)
            assert "the connection was reset, ***" in str(d.reading.taking.error)
            assert KEY not in repr(d.samples)


# what a dead capture left


async def test_a_profiler_left_running_is_told_at_the_next_start_and_stopped_when_asked(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        engine.profiling = True
        left = {"endpoint": engine.url, "engine": "vllm", "host": "box", "since_wall_ns": 1}
        (tmp_path / MARKER).write_text(json.dumps(left))
        async with desk(tmp_path, Told(served(engine)), Played()) as d:
            await d.until(lambda: d.reading.taking.left and d.notices)
            assert d.notices[0].level == "warning" and engine.url in d.notices[0].message
            refused = await d.told(CaptureSteps(), "may still be profiled by a capture that died")
            assert "--stop" in refused.hint and engine.controls == []
            d.samples.clear()
            await d.told(StopCapture(), "does not run any more")
            assert engine.controls == ["/stop_profile"] and not engine.profiling
            assert d.reading.taking.left is None and not (tmp_path / MARKER).exists()
            await d.told(CaptureSteps(), "captured")


async def test_a_marker_that_tells_of_nothing_is_no_leftover(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        (tmp_path / MARKER).write_bytes(b"")
        async with desk(tmp_path, Told(served(engine)), Played()) as d:
            await d.told(CaptureSteps(), "captured")
            assert d.notices[0].level == "info"
