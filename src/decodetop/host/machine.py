"""What psutil does not say, or says slowly: clock of the cores and NUMA nodes, from the kernel's files."""

from __future__ import annotations

import re
from pathlib import Path

from decodetop.core.outside import whole_number
from decodetop.host.cpu import cpus_of

_CORES_ASKED = 8


class Machine:
    """`root` is / but in tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._nodes: dict[int, int] | None = None

    def frequency_mhz(self, cores: int) -> float | None:
        """Mean over some cores, evenly spread: a kernel may take 20 ms to measure each one."""
        asked = sorted({at * cores // _CORES_ASKED for at in range(_CORES_ASKED)})
        path = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
        khz = [seen for core in asked if (seen := whole_number(self._text(path.format(core))))]
        if khz:
            return sum(khz) / len(khz) / 1000
        mhz = [
            float(text)
            for text in re.findall(r"^cpu MHz\s*:\s*(\d+(?:\.\d+)?)", self._text("proc/cpuinfo"), re.MULTILINE)
        ]
        return sum(mhz) / len(mhz) if mhz else None

    def node_of(self, core: int) -> int | None:
        """The NUMA node of a core."""
        return self._by_core().get(core)

    def node_count(self) -> int | None:
        return len(set(self._by_core().values())) or None

    def cpu_limit_cores(self) -> float | None:
        """CPU quota of this container in cores (cgroup v2, then v1); None without one."""
        quota, _, period = self._text("sys/fs/cgroup/cpu.max").strip().partition(" ")
        if not quota:
            quota = self._text("sys/fs/cgroup/cpu/cpu.cfs_quota_us").strip()
            period = self._text("sys/fs/cgroup/cpu/cpu.cfs_period_us").strip()
        share, of = whole_number(quota), whole_number(period)
        return share / of if share and of else None

    def memory_limit(self) -> tuple[int, int] | None:
        """(limit, used) of this container in bytes (cgroup v2, then v1); None without a limit."""
        v1 = "sys/fs/cgroup/memory/memory."
        limit = whole_number(self._text("sys/fs/cgroup/memory.max") or self._text(f"{v1}limit_in_bytes"))
        used = whole_number(self._text("sys/fs/cgroup/memory.current") or self._text(f"{v1}usage_in_bytes"))
        # without a limit v1 says 2**63 less a page
        return None if limit is None or used is None or not 0 < limit < 2**60 else (limit, used)

    def counts_swap(self) -> bool:
        """psutil warns on the terminal where the kernel has no such file."""
        return (self._root / "proc/vmstat").exists()

    def _by_core(self) -> dict[int, int]:
        if self._nodes is None:
            self._nodes = {}
            for path in (self._root / "sys/devices/system/node").glob("node[0-9]*"):
                node = whole_number(path.name.removeprefix("node"))
                if node is not None:
                    self._nodes.update(dict.fromkeys(cpus_of(self._text(path / "cpulist")), node))
        return self._nodes

    def _text(self, path: str | Path) -> str:
        try:
            return (self._root / path).read_text("utf-8", "replace")
        except OSError:
            return ""
