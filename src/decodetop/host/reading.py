"""What the kernel says of the host, and of the inference server's processes."""

from __future__ import annotations

import msgspec

from decodetop.core.sample import Reading

NO_LIMIT = "no limit"
"""The reason that stands where a container's limit would."""


class HostProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a watched server. `cpu_percent` is of one core: 100 = one core wholly used.

    `numa_node` is that of the core it last ran on.
    """

    pid: int
    root_pid: int
    role: str
    title: str
    cpu_percent: float | None = None
    memory_rss_bytes: int | None = None
    threads: int | None = None
    numa_node: int | None = None
    context_switches_s: float | None = None


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """Space where `path` lies; `role` says why it matters (investigation, traces, logs)."""

    role: str
    path: str
    free_bytes: int
    total_bytes: int


class HostReading(Reading, frozen=True, kw_only=True):
    """`cpu_percent` is of all cores, `cpu_max_core_percent` of the busiest one, since the last reading.

    Busy is neither idle nor waiting for a disk; what a hypervisor took (`cpu_steal_percent`) stands apart.
    The limits are this container's (cgroup), None with the reason "no limit" outside of one.
    `reasons` names fields, and `processes.PID` or `disks.PATH` for what could not be read of one of them.
    """

    cpu_count: int
    cpu_percent: float | None = None
    cpu_max_core_percent: float | None = None
    cpu_per_core_percent: tuple[float, ...] = ()
    cpu_steal_percent: float | None = None
    cpu_frequency_mhz: float | None = None
    cpu_numa_nodes: int | None = None
    load_1: float | None = None
    load_5: float | None = None
    load_15: float | None = None
    memory_used_bytes: int | None = None
    memory_available_bytes: int | None = None
    memory_total_bytes: int | None = None
    cpu_limit_cores: float | None = None
    memory_limit_bytes: int | None = None
    memory_limit_used_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    disks: tuple[Disk, ...] = ()
    processes: tuple[HostProcess, ...] = ()
    kernel: str | None = None
    boot_wall_ns: int | None = None
    reasons: dict[str, str] = {}
