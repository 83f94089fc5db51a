"""`decodetop gpu` in a process of its own, on the fake driver and without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.fake_nvml import FakeNvml, build, compiler, h100s

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


def environment(box: FakeNvml | None, tmp_path: Path) -> dict[str, str]:
    base = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    return base if box is None else box.environment(base)


def decodetop(box: FakeNvml | None, tmp_path: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "decodetop", *arguments]
    done = subprocess.run(command, env=environment(box, tmp_path), capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_json_is_the_reading(library: Path, tmp_path: Path) -> None:
    box = FakeNvml(tmp_path / "box", library)
    box.script([*h100s(2), "fault 1 * 15"])
    code, out, err = decodetop(box, tmp_path, "gpu", "--json")
    answer: dict[str, Any] = json.loads(out)
    assert (code, err) == (0, "")
    assert (answer["schema"], answer["source"], answer["failure"]) == (1, "gpu", None)
    gpu, lost = answer["reading"]["gpus"]
    assert gpu["sm_clock_mhz"] == 1755 and gpu["dram_bandwidth_percent"] == 62.0, "two readings, so GPM is there"
    assert lost["state"] == "lost"
    assert answer["errors"] == [{"gpu": 1, "state": "lost", "message": lost["state_message"]}]


def test_plain_text_fits_80_columns(library: Path, tmp_path: Path) -> None:
    box = FakeNvml(tmp_path / "box", library)
    box.script([*h100s(8), "process 3 999999 64424509440"])
    code, out, err = decodetop(box, tmp_path, "gpu")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "8 GPUs   driver 580.159.04" in out and "999999 – 60.0 GiB" in out and "power cap" in out


def test_nothing_measured_is_exit_code_1_with_the_json(library: Path, tmp_path: Path) -> None:
    box = FakeNvml(tmp_path / "box", library)
    box.script([*h100s(1), "fault - nvmlInitWithFlags 9"])
    code, out, _ = decodetop(box, tmp_path, "gpu", "--json")
    answer = json.loads(out)
    assert code == 1 and answer["reading"] is None
    assert answer["failure"]["kind"] == "absent" and answer["failure"]["hint"]
    code, out, _ = decodetop(box, tmp_path, "gpu")
    assert code == 1 and out.startswith("no GPU figures: the NVIDIA driver is not loaded")
    box.script([*h100s(1), "fault * * 4"])
    code, out, _ = decodetop(box, tmp_path, "gpu", "--json")
    assert code == 1 and json.loads(out)["errors"][0]["state"] == "denied"


def test_watch_prints_one_object_a_line_until_interrupted(library: Path, tmp_path: Path) -> None:
    box = FakeNvml(tmp_path / "box", library)
    box.script(h100s(1))
    command = [sys.executable, "-m", "decodetop", "gpu", "--watch", "--json"]
    environ = {**environment(box, tmp_path), "DECODETOP_RATE_S": "0.2"}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stderr is not None
        first, second = (json.loads(child.stdout.readline())["reading"]["gpus"][0] for _ in range(2))
        child.send_signal(2)
        assert child.wait(30) == 130
        assert "Traceback" not in child.stderr.read()
    assert first["dram_bandwidth_percent"] is None and second["dram_bandwidth_percent"] == 62.0
    assert box.calls()["nvmlShutdown"] == 1, "the session is given back"
