"""A host whose figures are the test's: in place of psutil and the kernel's files, on the test's clock."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pytest

from decodetop.core.clock import SECOND_NS
from decodetop.host.machine import Machine
from support.clock import ManualClock
from support.fake_proc import FakeProc

CORES = 32
GIB = 2**30
BUSY = 0.07
"""Share of each core."""


class _Times(NamedTuple):
    user: float
    system: float
    idle: float


class _Process:
    """One core's loop, always at work."""

    def __init__(self, clock: ManualClock, pid: int) -> None:
        self.pid = pid
        self._clock = clock

    def is_running(self) -> bool:
        return True

    def oneshot(self) -> Any:
        return contextlib.nullcontext()

    def cpu_times(self) -> tuple[float, float]:
        return self._clock.now_ns() / SECOND_NS * 0.62, 0.0

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(rss=9 * GIB)

    def num_threads(self) -> int:
        return 84

    def cpu_num(self) -> int:
        return 3

    def num_ctx_switches(self) -> SimpleNamespace:
        return SimpleNamespace(voluntary=int(self._clock.now_ns() / SECOND_NS * 900), involuntary=0)


class _Psutil:
    NoSuchProcess, ZombieProcess, AccessDenied = psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied

    def __init__(self, clock: ManualClock, proc: FakeProc) -> None:
        self._clock, self._proc = clock, proc

    def cpu_times(self, percpu: bool) -> list[_Times]:
        now_s = self._clock.now_ns() / SECOND_NS
        return [_Times(now_s * BUSY, 0.0, now_s * (1 - BUSY))] * CORES

    def cpu_count(self) -> int:
        return CORES

    def boot_time(self) -> float:
        return 1_700_000_000.0

    def virtual_memory(self) -> SimpleNamespace:
        return SimpleNamespace(total=1008 * GIB, available=914 * GIB)

    def swap_memory(self) -> SimpleNamespace:
        return SimpleNamespace(used=0, total=0)

    def Process(self, pid: int) -> _Process:
        if all(one.pid != pid for one in self._proc.all()):
            raise psutil.NoSuchProcess(pid)
        return _Process(self._clock, pid)


def fake_host(monkeypatch: pytest.MonkeyPatch, clock: ManualClock, proc: FakeProc, root: Path) -> Machine:
    """The machine to give to a HostProbe; its psutil is the fake from here on. `root` is for the kernel's files."""
    fake = _Psutil(clock, proc)
    monkeypatch.setattr("decodetop.host.probe.psutil", fake)
    monkeypatch.setattr("decodetop.host.processes.psutil", fake)
    kernel = SimpleNamespace(sysname="Linux", release="6.8.0-79-generic")
    system = SimpleNamespace(getloadavg=lambda: (2.25, 2.5, 2.75), uname=lambda: kernel, cpu_count=lambda: CORES)
    monkeypatch.setattr("decodetop.host.probe.os", system)
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "proc/vmstat").touch()
    (root / "proc/cpuinfo").write_text("cpu MHz : 3100.0\n")
    node = root / "sys/devices/system/node/node0"
    node.mkdir(parents=True, exist_ok=True)
    (node / "cpulist").write_text(f"0-{CORES - 1}\n")
    return Machine(root)
