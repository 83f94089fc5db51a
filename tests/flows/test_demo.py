"""The demo: every lane speaks, all of it is marked simulated, and nothing stays behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from decodetop.cli import demo as cli
from decodetop.cli import main
from decodetop.config import load
from decodetop.core.clock import SystemClock
from decodetop.core.source import Source
from decodetop.core.state import State
from decodetop.floor.reading import FloorReading
from decodetop.flows.demo import PLAN, build_demo, demo_box, demo_settings
from decodetop.flows.demo_folder import demo_folder
from decodetop.flows.session import watch
from decodetop.gpu.reading import GpuReading
from decodetop.host.reading import HostReading
from decodetop.server.reading import ServerReading
from decodetop.steps.reading import StepsReading
from decodetop.todo.reading import TodoReading

WAIT_S = 60.0


def shown(state: State) -> dict[str, bool]:
    """What each source has to show: the server under load, the GPUs awake, a capture read."""
    gpu, server = state.last("gpu", GpuReading), state.last("server", ServerReading)
    host, steps = state.last("host", HostReading), state.last("steps", StepsReading)
    current = server.current_server if server is not None else None
    floor = state.last("floor", FloorReading)
    return {
        "gpu": gpu is not None and any(one.pcie_gen == 5 for one in gpu.gpus),
        "server": current is not None and current.status == "up" and bool(current.generated_tok_s),
        "host": host is not None and bool(host.processes),
        "steps": steps is not None and bool(steps.captures),
        "todo": state.last("todo", TodoReading) is not None,
        "bench": state.lane("bench").last is not None,
        "floor": floor is not None and floor.report is not None and floor.report.t_meas_ms is not None,
    }


def everything(state: State) -> bool:
    return all(shown(state).values())


async def test_the_simulated_box_fills_every_lane_and_leaves_nothing() -> None:
    clock = SystemClock()
    with demo_box() as box:
        pid = box.server.process.pid
        engine = build_demo(load({}, {}), clock, box)
        state = await watch(engine, clock, WAIT_S, ready=everything)
        assert everything(state), (shown(state), {name: lane.failure for name, lane in state.lanes.items()})
        assert state.header.simulated
        check(state, pid)
    assert not box.folder.exists()
    assert not psutil.pid_exists(pid)


def check(state: State, pid: int) -> None:
    gpu, server = state.last("gpu", GpuReading), state.last("server", ServerReading)
    assert gpu is not None and server is not None
    assert [one.name for one in gpu.gpus] == ["Simulated H200"] * 2
    current = server.current_server
    assert current is not None
    assert (current.engine, current.status, current.tp, current.root_pid) == ("sglang", "up", 2, pid)
    assert current.gpu_uuids == tuple(one.uuid for one in gpu.gpus)
    assert [process.pid for one in gpu.gpus for process in one.processes or ()] == [pid, pid]
    host = state.last("host", HostReading)
    assert host is not None and [process.pid for process in host.processes] == [pid]
    steps = state.last("steps", StepsReading)
    assert steps is not None
    report = steps.captures[0].report
    assert [rank.coverage.ok for rank in report.ranks] == [True, True]
    assert report.engine == "sglang"
    first = report.ranks[0]
    assert report.itl_ms is not None and first.real is not None and first.real.idle_share is not None
    assert first.period_us is not None
    # a busy machine wakes the server late: idle time is its own, the kernels' shares are not
    kernels = {kind: us for kind, us in first.kinds_us.items() if kind != "idle"}
    assert max(kernels, key=lambda kind: kernels[kind]) == "copy"
    assert 0.55 < kernels["copy"] / sum(kernels.values()) < 0.72
    floor = state.last("floor", FloorReading)
    assert floor is not None and floor.report is not None and floor.report.verdict is not None
    assert floor.report.verdict.id == "copy_bound"
    todo = state.last("todo", TodoReading)
    assert todo is not None and todo.problem is None
    assert [one.content for one in todo.todos] == [item["content"] for item in PLAN]
    assert sum(bool(one.attempts) for one in todo.todos) == 2


def test_the_operators_data_and_servers_are_left_alone(tmp_path: Path) -> None:
    mine = {"investigation": str(tmp_path / "mine"), "endpoints": ["http://10.0.0.1:30000"], "theme": "paper"}
    with demo_box(tp=1) as box:
        settings = demo_settings(load(mine, {"DECODETOP_API_KEY_FILE": str(tmp_path / "key")}), box)
        assert settings.investigation.is_relative_to(box.folder)
        assert (settings.endpoints, settings.api_key_file) == ((box.server.endpoint,), None)
        assert settings.theme == "paper"
    assert list(tmp_path.iterdir()) == []


def test_the_command_shows_the_box_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def show(source: Source, settings: Any) -> int:
        seen.update(
            simulated=source.header.simulated, folder=settings.investigation, exists=settings.investigation.is_dir()
        )
        return 7

    monkeypatch.setattr(cli, "show", show)
    assert main(["demo", "--gpus", "8", "--tp", "1"]) == 7
    assert (seen["simulated"], seen["exists"]) == (True, True)
    assert not seen["folder"].exists()


def test_the_box_goes_when_the_screen_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []

    def show(source: Source, settings: Any) -> int:
        folders.append(settings.investigation)
        raise RuntimeError("the screen broke")

    monkeypatch.setattr(cli, "show", show)
    with pytest.raises(RuntimeError):
        main(["demo"])
    assert not folders[0].exists()


@pytest.mark.parametrize("arguments", [["--gpus", "1"], ["--gpus", "17"], ["--gpus", "0", "--tp", "1"]])
def test_a_wrong_number_of_gpus_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *arguments]) == 2
    assert "--gpus" in capsys.readouterr().err


@pytest.mark.parametrize("word", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_its_address_and_ends_on_a_signal(word: signal.Signals) -> None:
    command = [sys.executable, "-m", "decodetop", "demo", "--serve", "--tp", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = json.loads(process.stdout.readline())
    assert line["endpoint"].startswith("http://127.0.0.1:")
    assert line["simulated"] is True
    process.send_signal(word)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "--endpoint" in said


def test_the_next_demo_takes_away_what_a_killed_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("decodetop-demo-of-an-older-version", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kept").touch()
    program = "import sys, time; from decodetop.flows.demo_folder import demo_folder\n"
    program += "with demo_folder() as folder: print(folder, flush=True); sys.stdin.read()"
    killed, alive = (
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        for _ in range(2)
    )
    folders = []
    for process in (killed, alive):
        assert process.stdout is not None
        folders.append(Path(process.stdout.readline().strip()))
    killed.kill()
    killed.communicate()
    assert folders[0].is_dir()
    with demo_folder() as ours:
        assert not folders[0].exists() and folders[1].is_dir() and ours.is_dir()
    alive.communicate()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decodetop-demo-of-an-older-version", "other"]


def test_a_folder_that_was_written_into_while_it_went_goes_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load process outlives its killed demo for a moment."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stale = tmp_path / "decodetop-demo-killed"
    (stale / "traces").mkdir(parents=True)
    (stale / "lock").touch()
    remove = shutil.rmtree

    def late(path: Path, ignore_errors: bool) -> None:
        remove(path, ignore_errors=ignore_errors)
        stale.mkdir(exist_ok=True)
        (stale / "late").touch()

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", late)
        with demo_folder():
            assert (stale / "late").exists()
    with demo_folder() as ours:
        assert [path for path in tmp_path.iterdir() if path != ours] == []


def test_a_demo_without_a_place_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert main(["demo"]) == 1
