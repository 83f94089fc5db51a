"""`decodetop host`."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from decodetop.cli import host, main
from decodetop.core.clock import SystemClock
from decodetop.server.discover import Found, Scan
from decodetop.server.reading import ServerProcess


class HastyClock(SystemClock):
    """Sleeps take no time."""

    def __init__(self) -> None:
        super().__init__()
        self._skipped_ns = 0

    def now_ns(self) -> int:
        return super().now_ns() + self._skipped_ns

    async def sleep_until(self, t_ns: int) -> None:
        await asyncio.sleep(0.02)
        self._skipped_ns += max(0, t_ns - self.now_ns())


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "SystemClock", HastyClock)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["host", "--json", "--investigation", str(tmp_path)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["source"], answer["failure"], answer["errors"]) == (1, "host", None, [])
    reading = answer["reading"]
    assert reading["cpu_count"] >= 1 and reading["memory_total_bytes"] > 0
    assert reading["disks"][0]["path"] == str(tmp_path) and reading["disks"][0]["free_bytes"] > 0


def test_plain(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["host", "--investigation", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("CPU ") and any(line.startswith("disk       investigation ") for line in said)
    assert all(len(line) <= 80 for line in said)


def test_the_servers_processes_are_watched(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = ServerProcess(pid=os.getpid(), role="scheduler", title="sglang::scheduler")
    server = Found(
        engine="sglang",
        endpoint="http://127.0.0.1:30000",
        listening=True,
        root_pid=1,
        started_wall_ns=0,
        processes=(mine,),
        command=(),
        flags={},
    )
    monkeypatch.setattr(host, "scan", lambda proc: Scan(found=(server,)))
    assert main(["host", "--json", "--investigation", str(tmp_path)]) == 0
    (process,) = json.loads(capsys.readouterr().out)["reading"]["processes"]
    assert (process["pid"], process["root_pid"], process["role"]) == (os.getpid(), 1, "scheduler")
    assert process["cpu_percent"] is not None and process["memory_rss_bytes"] > 0
