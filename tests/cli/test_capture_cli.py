"""`decodetop steps capture`: what it asks, what it prints, and that no end of it leaves a server profiling."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from decodetop.cli import main
from decodetop.flows.capture_guard import MARKER
from decodetop.server.reading import Server
from decodetop.sim.process import SimServer, start_server
from decodetop.steps.reading import CAPTURE_COSTS
from decodetop.steps.text import capture_question
from support.profiled_engine import ProfiledEngine

WAIT_S = 60.0


@pytest.fixture(scope="module")
def sim() -> Iterator[SimServer]:
    with start_server(api_key="sk-sim-123456") as server:
        yield server


class Typed(io.StringIO):
    """A terminal on which somebody types."""

    def isatty(self) -> bool:
        return True


def capture(sim: SimServer, folder: Path, *more: str) -> int:
    return main(["steps", "capture", "--endpoint", sim.endpoint, "--investigation", str(folder), *more])


def test_json_is_the_report_with_the_time_per_token_in_it(
    sim: SimServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DECODETOP_API_KEY", "sk-sim-123456")
    assert capture(sim, tmp_path, "--yes", "--json", "--load", "2", "--steps", "10") == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    (rank,) = report["ranks"]
    assert report["schema"] == 1 and report["engine"] == "sglang"
    assert 3.5 < report["itl_ms"] < 80 and rank["real"]["step_ms"] == report["itl_ms"]
    assert rank["batches"][0]["batch_size"] == 2 and rank["steps"]["found"] == 9 and rank["coverage"]["ok"]
    assert Path(rank["file"]).is_relative_to(tmp_path / "captures")
    assert "sk-sim" not in printed.out + printed.err
    assert len(list((tmp_path / "captures").glob("*.json"))) == 1


def test_without_the_key_it_says_what_is_missing(
    sim: SimServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert capture(sim, tmp_path, "--yes") == 1
    said = capsys.readouterr().err
    assert "wants a key" in said and "DECODETOP_API_KEY" in said and "Traceback" not in said


def test_it_asks_first_and_no_is_an_answer(
    sim: SimServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DECODETOP_API_KEY", "sk-sim-123456")
    monkeypatch.setattr(sys, "stdin", Typed("n\n"))
    assert capture(sim, tmp_path) == 1
    said = capsys.readouterr().err
    assert f"Profile 20 decode steps of SGLang 0.5.15+simulated simulated-8b at {sim.endpoint}; 1 stream" in said
    assert CAPTURE_COSTS in said and "[y/N]" in said
    assert not (tmp_path / "captures").exists()


def test_yes_goes_on(
    sim: SimServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DECODETOP_API_KEY", "sk-sim-123456")
    monkeypatch.setattr(sys, "stdin", Typed("y\n"))
    assert capture(sim, tmp_path) == 0
    printed = capsys.readouterr().out
    assert "ms/step  idle" in printed and "estimated from ITL" in printed and "-TP-0.trace.json.gz" in printed


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["capture", "--endpoint", "127.0.0.1:1"], "nobody can answer here"),
        (["capture", "--yes", "--readonly", "--endpoint", "127.0.0.1:1"], "refused with --readonly"),
        (["capture", "--stop", "--readonly"], "refused with --readonly"),
        (["capture", "--stop"], "none left a profiler running"),
        (["capture", "--yes", "--itl-ms", "5"], "do not go with capture"),
        (["capture", "--yes", "--to", "x"], "do not go with capture"),
        (["trace.json", "--load", "2"], "go with capture"),
        (["trace.json", "--yes"], "go with capture"),
        (["capture", "--yes", "--steps", "2", "--endpoint", "127.0.0.1:1"], "2 steps are not between"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    argv: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["steps", *argv, "--investigation", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert words in said and "hint: " in said and "Traceback" not in said


def test_a_refused_connection_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["steps", "capture", "--yes", "--endpoint", "127.0.0.1:1", "--investigation", str(tmp_path)]
    assert main(argv) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "decodetop: http://127.0.0.1:1 is down: connection refused"
    assert lines[1].startswith("  hint: ") and len(lines) == 2


def test_a_file_of_that_name_is_still_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "capture").write_text("{}")
    assert main(["steps", "capture"]) == 1
    assert "capture is not a profiler trace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("load", "running", "words"),
    [
        (None, 0, "1 stream is started for it."),
        (None, None, "1 stream is started for it."),
        (None, 1, "1 request is running."),
        (None, 7, "7 requests are running."),
        (1, 0, "1 stream is started for it."),
        (4, 0, "4 streams are started for it."),
        (4, 7, "4 streams are started for it, beside 7 running."),
    ],
)
def test_the_question_names_the_load(load: int | None, running: int | None, words: str) -> None:
    server = Server(endpoint="http://a:1", engine="vllm", version="0.24.0", served_name="x\x1b[2J", running=running)
    said = capture_question(20, load, server.endpoint, server)
    assert said == f"20 decode steps of vLLM 0.24.0 x [2J at http://a:1; {words} {CAPTURE_COSTS}"
    assert capture_question(20, None, None, None).startswith("20 decode steps of the server of this box. ")


# ends that nobody planned


async def started(engine: ProfiledEngine, folder: Path) -> asyncio.subprocess.Process:
    """A capture that is profiling right now, with a long way to go."""
    argv = [sys.executable, "-m", "decodetop", "steps", "capture", "--yes", "--steps", "500"]
    argv += ["--endpoint", engine.url, "--investigation", str(folder)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    await asyncio.wait_for(engine.started.wait(), WAIT_S)
    return process


@pytest.mark.parametrize("word", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_killed_or_interrupted_it_leaves_no_server_profiling(word: signal.Signals, tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        process = await started(engine, tmp_path / "inv")
        process.send_signal(word)
        _, said = await asyncio.wait_for(process.communicate(), WAIT_S)
        await asyncio.wait_for(engine.stopped.wait(), WAIT_S)
        async with asyncio.timeout(WAIT_S):
            while (tmp_path / "inv" / MARKER).exists() or engine.profiling:
                await asyncio.sleep(0.02)
        assert engine.controls == ["/start_profile", "/stop_profile"]
        assert process.returncode == (-signal.SIGKILL if word == signal.SIGKILL else 130)
        assert b"Traceback" not in said


async def test_stop_stops_what_a_dead_capture_left(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        engine.profiling = True
        left = {"endpoint": engine.url, "engine": "vllm", "host": "box", "since_wall_ns": 1}
        (tmp_path / MARKER).write_text(json.dumps(left))
        argv = [sys.executable, "-m", "decodetop", "steps", "capture", "--stop", "--investigation", str(tmp_path)]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=pipe)
        _, said = await asyncio.wait_for(process.communicate(), WAIT_S)
        assert process.returncode == 0 and b"does not run any more" in said
        assert not engine.profiling and not (tmp_path / MARKER).exists()
