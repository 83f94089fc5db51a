"""The host probe on this machine, with processes that burn, vanish, forbid and come again under the same number."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

from decodetop.host.machine import Machine
from decodetop.host.probe import DISK_DEADLINE_S, DISK_NS, HostProbe
from decodetop.host.reading import HostProcess, HostReading
from support.clock import ManualClock


def watched(*pids: int) -> list[HostProcess]:
    return [HostProcess(pid=pid, root_pid=pids[0], role="scheduler", title="sglang::scheduler") for pid in pids]


async def test_this_machine() -> None:
    clock = ManualClock()
    probe = HostProbe(clock)
    first = await probe.read()
    assert first.cpu_count == psutil.cpu_count() and first.memory_total_bytes
    assert first.cpu_percent is None and first.reasons["cpu_percent"] == "first reading: needs two"
    assert msgspec.json.decode(msgspec.json.encode(first), type=HostReading) == first
    assert first.load_1 is not None and first.kernel and first.boot_wall_ns
    before = sum(psutil.cpu_times())
    while sum(psutil.cpu_times()) - before < 0.1:
        await asyncio.sleep(0.01)
    await clock.advance(1)
    second = await probe.read()
    assert second.cpu_percent is not None and 0 <= second.cpu_percent <= 100
    assert len(second.cpu_per_core_percent) == second.cpu_count
    assert second.cpu_max_core_percent == max(second.cpu_per_core_percent)
    for field in HostReading.__struct_fields__:
        assert getattr(second, field) is not None or second.reasons.get(field), field
    await probe.close()


class FakeProcess:
    """psutil.Process with numbers of the test."""

    table: dict[int, FakeProcess] = {}

    def __new__(cls, pid: int) -> Any:
        if pid not in cls.table:
            raise psutil.NoSuchProcess(pid)
        return cls.table[pid]

    def __init__(self, pid: int) -> None:
        pass

    @classmethod
    def put(cls, pid: int, **values: Any) -> FakeProcess:
        self = object.__new__(cls)
        self.alive = True
        self.denied = False
        self.cpu_s = 0.0
        self.switches = 0
        self.core = 0
        for name, value in values.items():
            setattr(self, name, value)
        cls.table[pid] = self
        return self

    def oneshot(self) -> Any:
        return nullcontext()

    def is_running(self) -> bool:
        return self.alive

    def cpu_times(self) -> Any:
        if self.denied:
            raise psutil.AccessDenied(1)
        if not self.alive:
            raise psutil.NoSuchProcess(1)
        return (self.cpu_s * 0.75, self.cpu_s * 0.25, 0.0, 0.0)

    def memory_info(self) -> Any:
        return SimpleNamespace(rss=2**30)

    def num_threads(self) -> int:
        return 88

    def cpu_num(self) -> int:
        return self.core

    def num_ctx_switches(self) -> Any:
        return SimpleNamespace(voluntary=self.switches, involuntary=0)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> type[FakeProcess]:
    monkeypatch.setattr(psutil, "Process", FakeProcess)
    monkeypatch.setattr(FakeProcess, "table", {})
    return FakeProcess


async def test_cpu_of_a_watched_process_is_of_one_core(processes: type[FakeProcess], tmp_path: Path) -> None:
    node = tmp_path / "sys/devices/system/node/node1"
    node.mkdir(parents=True)
    (node / "cpulist").write_text("4-7\n")
    scheduler = processes.put(71, cpu_s=10.0, switches=100, core=5)
    clock = ManualClock()
    probe = HostProbe(clock, lambda: watched(71), machine=Machine(tmp_path))
    (first,) = (await probe.read()).processes
    assert first.cpu_percent is None and first.threads == 88 and first.numa_node == 1
    scheduler.cpu_s, scheduler.switches = 11.96, 1100
    await clock.advance(2)
    (second,) = (await probe.read()).processes
    assert second.cpu_percent == pytest.approx(98.0) and second.context_switches_s == 500.0
    assert (second.role, second.title, second.memory_rss_bytes) == ("scheduler", "sglang::scheduler", 2**30)
    await probe.close()


async def test_processes_that_vanish_forbid_or_share_a_number(processes: type[FakeProcess]) -> None:
    old = processes.put(71, cpu_s=500.0)
    processes.put(72, denied=True)
    clock = ManualClock()
    probe = HostProbe(clock, lambda: watched(71, 72, 73))
    reading = await probe.read()
    assert [one.pid for one in reading.processes] == [71, 72]
    assert reading.processes[1].cpu_percent is None and reading.reasons["processes.72"] == "no permission"
    old.alive = False
    processes.put(71, cpu_s=3.0)
    await clock.advance(1)
    (again, _) = (await probe.read()).processes
    assert again.cpu_percent is None, "another process under the same number: no share of the old one's time"
    processes.table.clear()
    processes.put(72)
    old.alive = False
    await clock.advance(1)
    await probe.read()
    await probe.close()


async def test_a_process_that_ends_for_real_is_left_out() -> None:
    child = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
    probe = HostProbe(ManualClock(), lambda: watched(child.pid, os.getpid()))
    assert [one.pid for one in (await probe.read()).processes] == [child.pid, os.getpid()]
    assert child.stdin is not None
    child.stdin.close()
    await child.wait()
    reading = await probe.read()
    assert [one.pid for one in reading.processes] == [os.getpid()] and not any(
        "processes" in key for key in reading.reasons
    )
    await probe.close()


async def test_disks_by_role_and_a_folder_not_made_yet(tmp_path: Path) -> None:
    asked: Sequence[tuple[str, Path]] = [("traces", tmp_path), ("investigation", tmp_path / "not/made/yet")]
    probe = HostProbe(ManualClock(), disks=lambda: asked)
    disks = (await probe.read()).disks
    assert [disk.role for disk in disks] == ["traces", "investigation"]
    assert disks[0].free_bytes == disks[1].free_bytes > 0 and disks[1].path.endswith("yet")
    await probe.close()


async def test_a_disk_that_hangs_keeps_its_last_figure_and_nobody_waits_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = ManualClock()
    probe = HostProbe(clock, disks=lambda: [("traces", tmp_path)])
    good = (await probe.read()).disks
    entered, release, real = threading.Event(), threading.Event(), psutil.disk_usage
    calls: list[str] = []

    def hang(path: str) -> Any:
        calls.append(path)
        entered.set()
        release.wait()
        return real(path)

    monkeypatch.setattr(psutil, "disk_usage", hang)
    await clock.advance(DISK_NS / 1e9)
    reading = asyncio.ensure_future(probe.read())
    await asyncio.to_thread(entered.wait, 10)
    await clock.advance(DISK_DEADLINE_S)
    late = await reading
    assert late.disks == good and late.reasons[f"disks.{tmp_path}"] == "no answer for 1 s"
    await clock.advance(2 * DISK_NS / 1e9)
    assert (await probe.read()).reasons[f"disks.{tmp_path}"] and len(calls) == 1
    release.set()
    while probe._disk_thread.busy:
        await asyncio.sleep(0.001)
    await clock.advance(DISK_NS / 1e9)
    assert not any("disks" in key for key in (await probe.read()).reasons)
    await probe.close()


async def test_a_disk_that_refuses_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(path: str) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(psutil, "disk_usage", refuse)
    probe = HostProbe(ManualClock(), disks=lambda: [("traces", tmp_path)])
    reading = await probe.read()
    assert reading.disks == () and reading.reasons[f"disks.{tmp_path}"] == "Permission denied"
    await probe.close()


@pytest.mark.parametrize(
    ("hidden", "unknown"),
    [
        ("stat", {"cpu_percent", "cpu_max_core_percent", "cpu_per_core_percent", "cpu_steal_percent", "boot_wall_ns"}),
        ("meminfo", {"memory_used_bytes", "memory_available_bytes", "memory_total_bytes", "swap_total_bytes"}),
        ("btime", {"boot_wall_ns"}),
    ],
)
async def test_a_hidden_file_of_proc_costs_its_figures_only(
    hidden: str, unknown: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The whole host was BROKEN where a sandbox shows no /proc/stat, or one without `btime`."""
    for name in ("stat", "meminfo", "vmstat"):
        if name != hidden:
            text = Path("/proc", name).read_text("utf-8")
            (tmp_path / name).write_text(text.replace("btime", "xtime") if hidden == "btime" else text, "utf-8")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    probe = HostProbe(ManualClock())
    reading = await probe.read()
    assert {field for field in unknown if not reading.reasons[field].startswith("can't be read: ")} == set()
    figures = {"memory_total_bytes", "load_1", "boot_wall_ns", "cpu_count", "swap_total_bytes"} - unknown
    assert {field for field in figures if getattr(reading, field) is None} == set()
    await probe.close()


async def test_a_limit_above_what_there_is_limits_nothing(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text(f"{1000 * 100000} 100000\n")
    (group / "memory.max").write_text(f"{2**50}\n")
    (group / "memory.current").write_text("7\n")
    probe = HostProbe(ManualClock(), machine=Machine(tmp_path))
    reading = await probe.read()
    for field in ("cpu_limit_cores", "memory_limit_bytes", "memory_limit_used_bytes"):
        assert getattr(reading, field) is None and reading.reasons[field] == "no limit"
    await probe.close()
