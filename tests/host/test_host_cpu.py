"""Shares of CPU time, and what the kernel's files say of cores and nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodetop.host.cpu import CoreTimes, core_times, cpus_of, usage
from decodetop.host.machine import Machine


def test_waiting_guests_and_theft_are_not_work() -> None:
    fields = {"user": 50.0, "nice": 1.0, "system": 9.0, "idle": 20.0, "iowait": 5.0, "irq": 0.0, "softirq": 5.0}
    times = core_times({**fields, "steal": 10.0, "guest": 7.0, "guest_nice": 1.0})
    assert times == CoreTimes(busy=65.0, stolen=10.0, total=100.0)


def test_shares_between_two_readings() -> None:
    before = [CoreTimes(10, 0, 100), CoreTimes(0, 0, 100)]
    after = [CoreTimes(11, 0, 101), CoreTimes(0, 0.5, 101)]
    used = usage(before, after)
    assert used is not None
    assert (used.per_core, used.mean, used.highest, used.stolen) == ((100.0, 0.0), 50.0, 100.0, 25.0)


@pytest.mark.parametrize("before", [[], [CoreTimes(0, 0, 1), CoreTimes(0, 0, 1)], [CoreTimes(5, 0, 10)]])
def test_no_share_without_two_readings_of_the_same_cores(before: list[CoreTimes]) -> None:
    assert usage(before, [CoreTimes(5, 0, 10)]) is None


times = st.builds(CoreTimes, st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))


@settings(deadline=None)
@given(st.lists(times, max_size=4), st.lists(times, max_size=4))
def test_shares_are_always_percent(before: list[CoreTimes], after: list[CoreTimes]) -> None:
    """Idle counters of real kernels step back now and then."""
    used = usage(before, after)
    if used is not None:
        assert all(0 <= share <= 100 for share in (*used.per_core, used.mean, used.highest, used.stolen))


@pytest.mark.parametrize(
    ("text", "cores"),
    [("0-3,8\n", {0, 1, 2, 3, 8}), ("", set()), ("5", {5}), ("0-1,4-5", {0, 1, 4, 5}), ("x,2-y", set())],
)
def test_lists_of_cores(text: str, cores: set[int]) -> None:
    assert cpus_of(text) == cores


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_two_sockets(tmp_path: Path) -> None:
    put(tmp_path, "sys/devices/system/node/node0/cpulist", "0-1\n")
    put(tmp_path, "sys/devices/system/node/node1/cpulist", "2-3\n")
    machine = Machine(tmp_path)
    assert [machine.node_of(core) for core in (0, 2, 3, 9)] == [0, 1, 1, None]
    assert machine.node_count() == 2
    assert Machine(tmp_path / "none").node_count() is None


def test_the_clock_is_asked_of_eight_cores_at_most(tmp_path: Path) -> None:
    for core in range(64):
        put(tmp_path, f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", f"{2_000_000 + core % 2 * 1000}\n")
    asked: list[str] = []

    class Counting(Machine):
        def _text(self, path: str | Path) -> str:
            asked.append(str(path))
            return super()._text(path)

    assert Counting(tmp_path).frequency_mhz(64) == 2000.0
    assert len(asked) == 8


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        ({"cpu.max": "800000 100000\n", "memory.max": "137438953472\n", "memory.current": "42\n"}, 8.0, (2**37, 42)),
        ({"cpu.max": "max 100000\n", "memory.max": "max\n", "memory.current": "42\n"}, None, None),
        (
            {
                "cpu/cpu.cfs_quota_us": "150000\n",
                "cpu/cpu.cfs_period_us": "100000\n",
                "memory/memory.limit_in_bytes": "1073741824\n",
                "memory/memory.usage_in_bytes": "7\n",
            },
            1.5,
            (2**30, 7),
        ),
        (
            {
                "cpu/cpu.cfs_quota_us": "-1\n",
                "cpu/cpu.cfs_period_us": "100000\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                "memory/memory.usage_in_bytes": "7\n",
            },
            None,
            None,
        ),
        ({}, None, None),
        ({"cpu.max": "\u00b200 100000\n", "memory.max": "\u00b2\n", "memory.current": "-1\n"}, None, None),
        ({"cpu.max": "0 100000\n", "memory.max": "0\n", "memory.current": "1\n"}, None, None),
        ({"cpu.max": "5 0\n", "memory.max": "9" * 30, "memory.current": "1\n"}, None, None),
    ],
)
def test_limits_of_a_container(
    tmp_path: Path, files: dict[str, str], cores: float | None, memory: tuple[int, int] | None
) -> None:
    for path, text in files.items():
        put(tmp_path, f"sys/fs/cgroup/{path}", text)
    machine = Machine(tmp_path)
    assert (machine.cpu_limit_cores(), machine.memory_limit()) == (cores, memory)


def test_the_clock_of_a_guest_comes_from_cpuinfo(tmp_path: Path) -> None:
    put(tmp_path, "proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 2400.5\n\nprocessor\t: 1\ncpu MHz\t\t: 2401.5\n")
    assert Machine(tmp_path).frequency_mhz(2) == 2401.0
    assert Machine(tmp_path / "none").frequency_mhz(2) is None


def test_odd_words_of_the_kernel_are_no_numbers(tmp_path: Path) -> None:
    put(tmp_path, "sys/devices/system/node/node0x/cpulist", "0\n")
    put(tmp_path, "sys/devices/system/node/node1/cpulist", "\u00b2,1-4294967295,3\n")
    put(tmp_path, "proc/cpuinfo", "cpu MHz : 2400.1.2\ncpu MHz : .\n")
    machine = Machine(tmp_path)
    assert (machine.node_count(), machine.node_of(3), machine.node_of(0)) == (1, 1, None)
    assert machine.frequency_mhz(1) == pytest.approx(2400.1)
