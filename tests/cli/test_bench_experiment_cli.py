"""`decodetop bench experiment` against real processes: two simulated servers of different speed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from pathlib import Path

import pytest

from decodetop.cli.bench_experiment import answers_of
from support.experiments import FAST, experiment


def written(tmp_path: Path, rounds: int = 2) -> tuple[Path, int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [sys.executable, "-m", "decodetop.sim.server", "--port", str(port), "--exact"]
    file = tmp_path / "experiment.toml"
    file.write_text(
        f'endpoint = "http://127.0.0.1:{port}"\nrounds = {rounds}\nhealthy_s = 60\nstop_s = 20\n'
        f"[variants.slow]\nargv = {json.dumps([*argv, 'ttft_ms=20,itl_ms=30'])}\n"
        f"[variants.fast]\nargv = {json.dumps([*argv, 'ttft_ms=20,itl_ms=10'])}\n"
        f"[variants.broken]\nargv = {json.dumps([sys.executable, '-c', 'raise SystemExit(chr(110) + chr(111))'])}\n"
    )
    return file, port


@pytest.mark.slow
async def test_variants_are_started_measured_and_compared(tmp_path: Path) -> None:
    file, port = written(tmp_path)
    code, out, err = await experiment(tmp_path, file, "--yes", "--json", *FAST)
    found = json.loads(out)
    assert code == 1  # one variant did not start: that is in the table, with its reason
    attempts = {(one["variant"], one["round"]): one for one in found["attempts"]}
    assert len(attempts) == 6 and "starting slow #1" in err
    assert all(attempts[name, turn]["run"]["requests"]["ok"] == 1 for name in ("slow", "fast") for turn in (1, 2))
    assert "exit code 1" in attempts["broken", 1]["failed"] and "its log ends: no" in attempts["broken", 1]["failed"]
    fast, broken = found["comparisons"]
    assert (fast["b"], len(fast["pairs"])) == ("fast", 2) and fast["verdict"]["effect"]["ratio"] > 1.5
    assert broken["verdict"]["word"] == "not_resolved"
    with socket.socket() as free:
        assert free.connect_ex(("127.0.0.1", port)) != 0  # nothing is left running


async def test_nothing_is_touched_without_a_yes(tmp_path: Path) -> None:
    file, _ = written(tmp_path)
    code, out, _ = await experiment(tmp_path, file, "--dry-run")
    assert code == 0 and "6 starts against" in out and "order: " in out
    code, out, err = await experiment(tmp_path, file)
    assert (code, out) == (2, "") and "nobody to ask" in err and "--yes" in err
    code, _, err = await experiment(tmp_path, file, "--yes", "--readonly")
    assert code == 2 and "--readonly" in err
    file.write_text("endpoint = 1")
    code, _, err = await experiment(tmp_path, file, "--yes")
    assert code == 2 and "experiment.toml" in err


async def test_a_server_that_never_ends_its_answer_is_no_server_that_answers() -> None:
    """Its list of models was read for as long as it came: healthy_s meant nothing, and the memory went."""

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while not writer.is_closing():
                writer.write(b" " * 65536)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(60):
        assert not await answers_of(f"http://127.0.0.1:{port}", None)()
    server.close()
