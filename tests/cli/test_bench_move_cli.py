"""`decodetop bench experiment --move`: from a move's id and a server's command to variants, and a real one measured."""

from __future__ import annotations

import argparse
import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from decodetop.cli import bench_move
from decodetop.config import Settings, load
from decodetop.errors import UsageError
from decodetop.flows.floor import Seen
from decodetop.server.reading import Server
from support.experiments import FAST, experiment

SGLANG = ("python3", "-m", "sglang.launch_server", "--model-path", "/m", "--disable-cuda-graph", "--port", "30000")
SERVER = {"endpoint": "http://127.0.0.1:30000", "engine": "sglang", "version": "0.5.23", "status": "up"}


def asked(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dry-run", action="store_true")
    bench_move.configure(parser)
    return parser.parse_args(("--dry-run", *words))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "config.toml").write_text("")
    return load({"config": tmp_path / "config.toml", "investigation": tmp_path}, {})


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the server found on this box is; empty = there is none."""
    fields: dict[str, Any] = {}

    async def look(*_: object, **__: object) -> Seen:
        return Seen(server=Server(**{**SERVER, **fields}) if fields else None)

    monkeypatch.setattr(bench_move, "look", look)
    return fields


def test_the_command_of_the_server_found_is_the_base(settings: Settings, running: dict[str, Any]) -> None:
    running.update(command=SGLANG, unit=None)
    made = bench_move.experiment_of_move(asked("--move", "graphs-on", "--rounds", "4"), settings)
    assert (made.endpoint, made.rounds, made.unit) == (SERVER["endpoint"], 4, None)
    assert made.variants["baseline"].argv == SGLANG
    assert made.variants["graphs-on"].argv == tuple(word for word in SGLANG if word != "--disable-cuda-graph")


def test_a_server_of_a_unit_is_that_units_experiment(
    settings: Settings, running: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    running.update(command=SGLANG, unit="sglang.service", root_pid=7)
    monkeypatch.setattr(bench_move, "unit_of", lambda *_: ("sglang.service", True))
    made = bench_move.experiment_of_move(asked("--move", "mscclpp"), settings)
    assert (made.unit, made.user, made.variants["baseline"].override) == ("sglang.service", True, ())
    assert made.variants["mscclpp"].override[1].endswith("--port 30000 --enable-mscclpp")
    both = asked("--move", "mscclpp", "--original-stop", "down", "--original-start", "up")
    with pytest.raises(UsageError, match=r"is the unit sglang\.service"):
        bench_move.experiment_of_move(both, settings)


def test_of_a_release_that_is_not_known_a_flag_with_two_names_is_asked_for(
    settings: Settings, running: dict[str, Any]
) -> None:
    running.update(command=SGLANG)
    words = ("--move", "graph-batch", "--value", "64")
    made = bench_move.experiment_of_move(asked(*words), settings)
    assert made.variants["graph-batch"].argv[-2:] == ("--cuda-graph-max-bs-decode", "64")
    running.update(version=None)
    with pytest.raises(UsageError, match="another flag in other releases"):
        bench_move.experiment_of_move(asked(*words), settings)


def test_a_server_started_by_hand_is_in_the_way_of_its_variants(settings: Settings, running: dict[str, Any]) -> None:
    running.update(command=SGLANG)
    args = asked("--move", "graphs-on")
    args.dry_run = False
    with pytest.raises(UsageError, match="started by hand") as caught:
        bench_move.experiment_of_move(args, settings)
    assert "--start 'python3 -m sglang.launch_server --model-path /m" in caught.value.hint
    args.original_stop, args.original_start = "down", "up now"
    made = bench_move.experiment_of_move(args, settings)
    assert made.original is not None and made.original.start == ("up", "now")


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "no server": ({}, ("--move", "graphs-on"), "no server whose command"),
    "elsewhere": ({"command": (), "local": False}, ("--move", "graphs-on"), "runs elsewhere"),
    "no process": ({"command": ()}, ("--move", "graphs-on"), "no process here is known"),
    "a container": (
        {"command": SGLANG, "reasons": {"unit": "in a container"}},
        ("--move", "graphs-on"),
        "good only in its container",
    ),
    "a secret": ({"command": (*SGLANG, "--api-key", "***")}, ("--move", "graphs-on"), "holds a secret"),
    "no such move": ({"command": SGLANG}, ("--move", "faster"), "no move 'faster'"),
    "another engine's": ({"command": SGLANG}, ("--move", "interactivity"), "not for SGLang"),
    "a step by hand": ({"command": SGLANG}, ("--move", "fewer-gpus"), "no flag that can be put"),
    "a choice left open": ({"command": SGLANG}, ("--move", "gemm-backend"), "leaves open what --fp4-gemm-backend is"),
    "not there": ({"command": SGLANG}, ("--move", "overlap"), "has no --disable-overlap-schedule"),
    "no rounds": ({"command": SGLANG}, ("--move", "graphs-on", "--rounds", "0"), "--rounds"),
    "half an original": ({"command": SGLANG}, ("--move", "graphs-on", "--original-stop", "x"), "go together"),
    "an open quote": ({}, ("--move", "graphs-on", "--start", "x 'y"), "--start"),
    "an empty start": ({}, ("--move", "graphs-on", "--start", ""), "--start is empty"),
    "no address": ({}, ("--move", "graphs-on", "--start", "x --disable-cuda-graph"), "where the server will answer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_put_on_is_said(settings: Settings, running: dict[str, Any], name: str) -> None:
    fields, words, said = REFUSED[name]
    running.update(fields)
    with pytest.raises(UsageError) as caught:
        bench_move.experiment_of_move(asked(*words), settings)
    assert said in str(caught.value) and caught.value.hint


LAUNCHER = """
import os, sys
slow = "--disable-cuda-graph" in sys.argv
port = sys.argv[sys.argv.index("--port") + 1]
exact = f"ttft_ms=20,itl_ms={30 if slow else 10}"
os.execv(sys.executable, [sys.executable, "-m", "decodetop.sim.server", "--port", port, "--exact", exact])
"""


def started(tmp_path: Path) -> tuple[str, str]:
    """A server's command that is slow without graphs, and where it answers."""
    (tmp_path / "launch.py").write_text(LAUNCHER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = f"{sys.executable} {tmp_path}/launch.py --disable-cuda-graph --port {port}"
    return command, f"http://127.0.0.1:{port}"


async def test_a_dry_run_shows_both_commands(tmp_path: Path) -> None:
    command, endpoint = started(tmp_path)
    words = ("--move", "graphs-on", "--start", command, "--endpoint", endpoint)
    code, out, err = await experiment(tmp_path, None, *words, "--dry-run")
    assert code == 0, err
    assert f"baseline (base): {command}\n" in out and "6 starts" in out
    assert f"graphs-on: {command.replace(' --disable-cuda-graph', '')}\n" in out
    for wrong in ((), ("--move", "graphs-on", "x.toml")):
        code, _, err = await experiment(tmp_path, None, *wrong, "--dry-run")
        assert code == 2 and "a FILE or a --move" in err


async def test_no_key_is_shown(tmp_path: Path) -> None:
    command, endpoint = started(tmp_path)
    words = ("--move", "graphs-on", "--start", f"{command} --api-key sk-very-secret-key-1", "--endpoint", endpoint)
    for form in ((), ("--json",)):
        code, out, err = await experiment(tmp_path, None, *words, "--dry-run", *form)
        assert code == 0 and "sk-very" not in out + err and "--api-key" in out and "***" in out


async def test_a_file_answers_for_itself(tmp_path: Path) -> None:
    code, _, err = await experiment(tmp_path, tmp_path / "x.toml", "--rounds", "2", "--dry-run")
    assert code == 2 and "--rounds goes with --move" in err


@pytest.mark.slow
async def test_a_move_is_measured_against_what_was(tmp_path: Path) -> None:
    command, endpoint = started(tmp_path)
    words = ("--move", "graphs-on", "--start", command, "--endpoint", endpoint, "--rounds", "2")
    code, out, err = await experiment(tmp_path, None, *words, "--yes", "--json", *FAST)
    assert code == 0, err
    (found,) = json.loads(out)["comparisons"]
    assert (found["a"], found["b"], len(found["pairs"])) == ("baseline", "graphs-on", 2)
    assert found["verdict"]["effect"]["ratio"] > 1.5
