"""A capture that does not begin, and why: one line each, and nothing is left profiling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from decodetop.bench.reading import BenchReading, Progress
from decodetop.core.sample import Command
from decodetop.errors import DecodetopError
from decodetop.flows import capture_profile
from decodetop.flows.capture_guard import MARKER
from decodetop.flows.claim import claimed
from decodetop.server.reading import Flag
from decodetop.steps.reading import CaptureSteps, StopCapture
from support.capture_desk import KEY, WAIT_S, Played, Told, desk, served
from support.profiled_engine import ProfiledEngine
from support.token_server import Break, Seen, Step, Wait, reply


def says(status: str, text: bytes) -> Callable[[Seen], Iterable[Step]]:
    return lambda seen: [reply(status, text, "text/plain")]


REFUSALS: list[tuple[str, Callable[[Seen], Iterable[Step]], str, str]] = [
    ("vllm", says("404 Not Found", b'{"detail":"Not Found"}'), "without a profiler", "--profiler-config"),
    ("vllm", says("401 Unauthorized", b"no"), "refuses the key given", "DECODETOP_API_KEY"),
    ("sglang", says("401 Unauthorized", b"no"), "refuses the key given", "admin key"),
    ("sglang", says("500 Internal Server Error", b"Internal Server Error"), "refused to start", "under way already"),
    ("sglang", says("400 Bad Request", b"Profiling is already in progress."), "profiled already", "wait for its end"),
    ("sglang", says("404 Not Found", b""), "no POST /start_profile there", "router"),
    ("vllm", says("503 Service Unavailable", b"loading " + KEY.encode()), "answered 503", "log"),
]


@pytest.mark.parametrize("number", range(len(REFUSALS)))
async def test_a_refusal_is_said_and_nothing_is_stopped(number: int, tmp_path: Path) -> None:
    kind, answer, words, hint = REFUSALS[number]
    async with ProfiledEngine(kind, tmp_path / "prof") as engine:
        engine.answers["/start_profile"] = answer
        launch = Played()
        async with desk(tmp_path / "inv", Told(served(engine)), launch) as d:
            notice = await d.told(CaptureSteps(), words)
            assert notice.level == "error" and hint in notice.hint and "\n" not in notice.message
            assert KEY not in repr(d.samples)
            assert engine.controls == ["/start_profile"]  # somebody else's profile is not ours to stop
            assert not launch.holding and not (tmp_path / "inv" / MARKER).exists()
            assert d.reading.taking.error is not None and words in d.reading.taking.error
            assert d.reading.captures == () and d.reading.taking.progress is None


async def test_a_server_under_a_benchmark_is_not_profiled(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        server = served(engine)
        async with desk(tmp_path / "inv", Told(server), Played()) as d:
            with claimed([server.endpoint], "a benchmark"):
                notice = await d.told(CaptureSteps(), "under load already, by a benchmark")
            assert "wait for its end" in notice.hint and engine.controls == []


async def test_a_start_that_is_never_answered_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_profile, "START_S", 0.3)
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        engine.answers["/start_profile"] = lambda seen: [Wait(WAIT_S)]
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            await d.told(CaptureSteps(), "did not answer POST /start_profile")
            await asyncio.wait_for(engine.stopped.wait(), WAIT_S)  # it may have started all the same
        assert not (tmp_path / "inv" / MARKER).exists()


async def test_a_stop_that_breaks_is_left_to_the_watchdog(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        stops: list[Seen] = []

        def broken_once(seen: Seen) -> Iterable[Step]:
            stops.append(seen)
            return [Break(reset=True)] if len(stops) == 1 else engine._stop()

        engine.answers["/stop_profile"] = broken_once
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            notice = await d.told(CaptureSteps(), "connection broke at POST /stop_profile")
            assert "log" in notice.hint
            assert len(stops) == 2 and not engine.profiling
        assert not (tmp_path / "inv" / MARKER).exists()


async def test_a_server_that_is_gone(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        server = served(engine)
    async with desk(tmp_path / "inv", Told(server), Played()) as d:
        notice = await d.told(CaptureSteps(), "can't connect")
        assert "refused" in notice.message and "is the server up" in notice.hint


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"status": "needs_key", "status_message": "it refuses the key given"}, "wants a key"),
        ({"status": "down", "status_message": "connection refused"}, "is down: connection refused"),
        ({"engine": "llamacpp"}, "llama.cpp has no profiler over HTTP"),
        ({"engine": "unknown"}, "engine is not known"),
        (
            {"flags": (Flag(name="profiler_config", requested='{"profiler":"cuda"}'),)},
            "the profiler 'cuda', which writes no torch trace",
        ),
    ],
)
async def test_servers_that_can_not_be_profiled_are_not_asked(more: dict[str, Any], words: str, tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        launch = Played()
        async with desk(tmp_path / "inv", Told(served(engine, **more)), launch) as d:
            notice = await d.told(CaptureSteps(), words)
            assert notice.level == "error" and notice.hint
            assert engine.server.posts == [] and launch.plans == []


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (CaptureSteps(steps=3), "3 steps are not between 4 and 500"),
        (CaptureSteps(load=0), "0 streams is not between"),
        (CaptureSteps(endpoint="http://127.0.0.1:9"), "no server http://127.0.0.1:9 is watched"),
        (StopCapture(), "no capture is under way"),
    ],
)
async def test_senseless_asks(ask: Command, words: str, tmp_path: Path) -> None:
    async with (
        ProfiledEngine("vllm", tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played()) as d,
    ):
        assert (await d.told(ask, words)).hint
        assert engine.server.posts == []


async def test_readonly_touches_nothing(tmp_path: Path) -> None:
    async with (
        ProfiledEngine("vllm", tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played(), readonly=True) as d,
    ):
        await d.told(CaptureSteps(), "can't profile the server: started with --readonly")
        await d.told(StopCapture(), "can't stop the capture")
        assert engine.server.posts == []


async def test_not_while_a_benchmark_runs(tmp_path: Path) -> None:
    async with (
        ProfiledEngine("vllm", tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played()) as d,
    ):
        progress = Progress(preset="single", endpoint=engine.url, phase="measuring")
        d.engine.emit("bench", BenchReading(progress=progress))
        await d.told(CaptureSteps(), "a benchmark is running")
        assert engine.server.posts == []


async def test_a_load_without_success_is_said_before_anything_is_profiled(tmp_path: Path) -> None:
    async with (
        ProfiledEngine("vllm", tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played(fault="http")) as d,
    ):
        notice = await d.told(CaptureSteps(), "no request of the load succeeded")
        assert "no luck with ***" in notice.message and KEY not in repr(d.samples)
        assert engine.controls == []


async def test_errors_of_the_way_in_are_raised_for_the_command_line(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        engine.answers["/start_profile"] = says("404 Not Found", b"")
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            with pytest.raises(DecodetopError, match="without a profiler"):
                await d.service.capture(CaptureSteps(), d.engine)
