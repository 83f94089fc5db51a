"""record, replay, stream, report and doctor as processes, on a simulated server over loopback."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decodetop.sim.process import SimServer, start_server

KEY = "sk-planted-0123456789abcdef"


@pytest.fixture(scope="module")
def sim() -> Iterator[SimServer]:
    server = start_server(api_key=KEY)
    yield server
    server.stop()


def decodetop(tmp_path: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "decodetop", *argv, "--investigation", str(tmp_path / "investigation")]
    environ = {**os.environ, "DECODETOP_API_KEY": KEY, "XDG_CONFIG_HOME": str(tmp_path)}
    return subprocess.run(command, capture_output=True, text=True, env=environ, check=False, timeout=120)


def lanes(text: str) -> dict[str, Any]:
    return dict(json.loads(text)["lanes"])


def test_what_is_recorded_is_replayed_and_reported(tmp_path: Path, sim: SimServer) -> None:
    tape = tmp_path / "run.tape"
    recorded = decodetop(tmp_path, "record", "-o", str(tape), "--duration-s", "4", "--endpoint", sim.endpoint, "--json")
    assert recorded.returncode == 0, recorded.stderr
    assert json.loads(recorded.stdout)["samples"] > 5

    replayed = decodetop(tmp_path, "replay", str(tape), "--json")
    assert replayed.returncode == 0, replayed.stderr
    server = lanes(replayed.stdout)["server"]["reading"]["servers"][0]
    assert (server["endpoint"], server["status"], server["engine"]) == (sim.endpoint, "up", "sglang")
    assert lanes(replayed.stdout)["gpu"]["failure"] or lanes(replayed.stdout)["gpu"]["reading"]
    assert lanes(replayed.stdout)["host"]["reading"]["cpu_count"] >= 1

    begin = decodetop(tmp_path, "replay", str(tape), "--json", "--at-s", "0")
    assert json.loads(begin.stdout)["now_ns"] <= json.loads(replayed.stdout)["now_ns"]

    report = tmp_path / "snapshot.md"
    written = decodetop(tmp_path, "report", "--tape", str(tape), "-o", str(report))
    assert written.returncode == 0 and str(report) in written.stderr
    assert sim.endpoint in report.read_text()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), f"the key reached {path}"


def test_a_tape_is_never_overwritten(tmp_path: Path, sim: SimServer) -> None:
    tape = tmp_path / "run.tape"
    tape.write_text("precious")
    result = decodetop(tmp_path, "record", "-o", str(tape), "--duration-s", "1", "--endpoint", sim.endpoint)
    assert result.returncode == 1 and "exists" in result.stderr and tape.read_text() == "precious"


def test_a_recording_ends_well_on_a_signal(tmp_path: Path, sim: SimServer) -> None:
    tape = tmp_path / "run.tape"
    command = [sys.executable, "-m", "decodetop", "record", "-o", str(tape), "--endpoint", sim.endpoint]
    command += ["--investigation", str(tmp_path / "investigation")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not tape.exists() or tape.read_bytes().count(b"\n") < 5:
            assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "samples in" in out
    assert tape.read_bytes().endswith(b"\n")


def test_a_stream_starts_with_its_header(tmp_path: Path, sim: SimServer) -> None:
    command = [sys.executable, "-m", "decodetop", "stream", "--endpoint", sim.endpoint]
    environ = {**os.environ, "DECODETOP_API_KEY": KEY, "XDG_CONFIG_HOME": str(tmp_path)}
    wanted = {"clock", "host", "server"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        header = json.loads(process.stdout.readline())
        assert (header["kind"], header["schema"]) == ("decodetop-tape", 1)
        for line in process.stdout:
            assert KEY not in line
            wanted.discard(json.loads(line)["source"])
            if not wanted:
                break
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0 and not wanted, err


def test_the_doctor_says_what_is_in_force_and_from_where(tmp_path: Path, sim: SimServer) -> None:
    result = decodetop(tmp_path, "doctor", "--json", "--endpoint", sim.endpoint)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["settings"]["endpoints"] == {"value": [sim.endpoint], "origin": "command line"}
    assert found["settings"]["api key"] == {"value": "set (never shown)", "origin": "DECODETOP_API_KEY"}
    words = {check["name"]: check["word"] for check in found["checks"]}
    assert words["server"] == "ok" and words["decodetop"] == "ok"
    assert KEY not in result.stdout
    plain = decodetop(tmp_path, "doctor", "--endpoint", sim.endpoint)
    assert "settings in force" in plain.stdout and KEY not in plain.stdout


def test_the_doctor_does_not_fall_ill_with_the_settings(tmp_path: Path, sim: SimServer) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("rate_s = 'fast'\n")
    result = decodetop(tmp_path, "doctor", "--json", "--config", str(broken), "--endpoint", sim.endpoint)
    assert result.returncode == 0, result.stderr
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert checks["settings"]["word"] == "missing" and "rate_s" in checks["settings"]["detail"]
    assert json.loads(result.stdout)["settings"]["rate_s"] == {"value": 1.0, "origin": "default"}
    broken.write_text("api_key_file = '/nonexistent/key'\n")
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "decodetop", "doctor", "--json", "--config", str(broken)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environ, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "/nonexistent/key" in next(c["detail"] for c in json.loads(ran.stdout)["checks"] if c["name"] == "api key")


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("replay", "missing.tape", "--json"), "can't read missing.tape"),
        (("report", "--tape", "missing.tape"), "can't read missing.tape"),
        (("replay", __file__, "--json"), "is not a decodetop tape"),
    ],
)
def test_what_is_no_tape_is_one_line(tmp_path: Path, argv: tuple[str, ...], word: str) -> None:
    result = decodetop(tmp_path, *argv)
    assert result.returncode == 1 and result.stdout == ""
    assert word in result.stderr.splitlines()[0] and "Traceback" not in result.stderr


def test_an_unwritable_report_is_one_line(tmp_path: Path, sim: SimServer) -> None:
    target = tmp_path / "file" / "x.md"
    target.parent.write_text("not a folder")
    result = decodetop(tmp_path, "report", "-o", str(target), "--endpoint", sim.endpoint)
    assert result.returncode == 1 and "can't write" in result.stderr and "Traceback" not in result.stderr
