"""What NVML says of the GPUs. None = not known, and `reasons[field]` says why; 0 is a real zero."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from decodetop.core.sample import Reading
from decodetop.core.state import Past

GpuState = Literal["ok", "lost", "denied", "stalled", "broken"]


NOT_ON_PCIE = "not on PCIe (C2C or on the package)"
"""The reason that stands for the PCIe fields of a chip without a PCIe link of its own."""


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds memory on the GPU. `memory_bytes` is None where the driver does not tell."""

    pid: int
    name: str | None = None
    memory_bytes: int | None = None


class Xid(msgspec.Struct, frozen=True, kw_only=True):
    """An error the driver reported while we listened; `t_ns` is session time."""

    code: int
    t_ns: int


class MigInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of a GPU with memory of its own; `gpu_instance` is the id that process lists name."""

    uuid: str
    gpu_instance: int | None = None
    name: str | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """How two GPUs (NVML indices, a < b) reach each other: decides what an all-reduce costs."""

    a: int
    b: int
    path: Literal["nvlink", "same_board", "pcie_switch", "pcie_switches", "host_bridge", "numa_node", "sockets"]


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. When `state` is not ok the figures are the last good ones, `state_since_ns` old at the latest.

    `memory_busy_percent` is NVML's utilization.memory: the share of time the memory was busy, not bandwidth.
    `dram_bandwidth_percent` is GPM metric 10: share of the theoretical bandwidth.
    `pcie_gen_max` is what this card reaches in this slot, `pcie_gen_device_max` what the card alone could,
    `pcie_gen_slot_max` and `pcie_width_slot_max` what the port above it could (the kernel's word, not NVML's).
    The application clocks are what was set for work (nvidia-smi -ac); a lock (-lgc) can't be read.
    `pcie_tx_bytes_s` and rx are means since the last reading (`pcie_traffic` gpm) or a watch of 20 ms (sample).
    A lost GPU keeps the index it had. `energy_j` counts from the driver's load, `time_limited_ns[reason]` too;
    `energy_run_j` and `time_limited_run_ns` count from the first reading of this run, at `run_began_ns`.
    `temperature_left_c` is how far the GPU is from its nearest slowdown. `nvlink_max_bytes_s`: all links up, one way.
    `pcie_fastest` is (generation, lanes) of the fastest link seen under load in this run, None before that.
    `recovery_action` is what the driver asks for, None while it asks for nothing or can't say (then with a reason).
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    numa_node: int | None = None
    state: GpuState = "ok"
    state_message: str | None = None
    state_since_ns: int | None = None

    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    mem_clock_mhz: int | None = None
    mem_clock_max_mhz: int | None = None
    sm_clock_application_mhz: int | None = None
    mem_clock_application_mhz: int | None = None
    performance_state: int | None = None
    event_reasons: int | None = None

    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_gen_device_max: int | None = None
    pcie_gen_slot_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_width_slot_max: int | None = None
    pcie_tx_bytes_s: float | None = None
    pcie_rx_bytes_s: float | None = None
    pcie_traffic: Literal["gpm", "sample"] | None = None
    pcie_replays: int | None = None
    pcie_fastest: tuple[int, int] | None = None

    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_is_unified: bool = False

    utilization_percent: float | None = None
    memory_busy_percent: float | None = None
    sm_active_percent: float | None = None
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_bandwidth_percent: float | None = None
    nvlink_tx_bytes_s: float | None = None
    nvlink_rx_bytes_s: float | None = None

    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    temperature_c: float | None = None
    temperature_left_c: float | None = None
    memory_temperature_c: float | None = None
    fan_percent: float | None = None
    ecc_uncorrected: int | None = None
    persistence_mode: bool | None = None
    compute_mode: str | None = None
    mig_enabled: bool | None = None
    mig_instances: tuple[MigInstance, ...] | None = None

    architecture: str | None = None
    virtualization: str | None = None
    memory_bus_bits: int | None = None
    power_limit_default_w: float | None = None
    temperature_slowdown_c: float | None = None
    ecc_corrected: int | None = None
    rows_remapped: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failed: bool | None = None
    pages_retired: int | None = None
    page_retirement_pending: bool | None = None
    recovery_action: str | None = None
    nvlink_links: int | None = None
    nvlink_links_active: int | None = None
    nvlink_version: str | None = None
    nvlink_max_bytes_s: float | None = None
    time_limited_ns: dict[str, int] | None = None
    run_began_ns: int | None = None
    energy_run_j: float | None = None
    time_limited_run_ns: dict[str, int] | None = None
    xids: tuple[Xid, ...] = ()

    processes: tuple[GpuProcess, ...] | None = None
    reasons: dict[str, str] = {}


class GpuReading(Reading, frozen=True, kw_only=True):
    """All GPUs of the box in NVML's order, and what the driver calls itself.

    `calls` = NVML calls of this round, `took_ms` = how long they took.
    """

    gpus: tuple[Gpu, ...]
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None
    calls: int | None = None
    took_ms: float | None = None
    links: tuple[Link, ...] = ()
    reasons: dict[str, str] = {}


class Energy(NamedTuple):
    """`joules` used in `seconds`, from the driver's counter: the power reading is but a sample of its last second."""

    joules: float
    seconds: float

    @property
    def mean_w(self) -> float:
        return self.joules / self.seconds


def energy_over(history: Iterable[Past], gpu: Gpu) -> Energy | None:
    """Between the first and the last reading whose counter moved: it is not read every second, so others repeat it.

    None until it moved twice, and where it went back (the driver was loaded anew).
    """
    known = [
        (past.t_ns, seen.energy_j)
        for past in history
        if (seen := same_gpu(past.reading, gpu)) is not None and seen.energy_j is not None
    ]
    first = next((after for before, after in pairwise(known) if after[1] != before[1]), None)
    last = next((after for after, before in pairwise(reversed(known)) if after[1] != before[1]), None)
    if first is None or last is None or last[0] == first[0] or last[1] <= first[1]:
        return None
    return Energy(last[1] - first[1], (last[0] - first[0]) / 1e9)


def gpu_of(reading: object, index: int) -> Gpu | None:
    """The GPU of that index in a reading; nearly always at the place of its index."""
    gpus = reading.gpus if isinstance(reading, GpuReading) else ()
    if 0 <= index < len(gpus) and gpus[index].index == index:
        return gpus[index]
    return next((one for one in gpus if one.index == index), None)


def same_gpu(reading: object, gpu: Gpu) -> Gpu | None:
    """`gpu` in another reading: by its UUID, for its index may have been another's when the driver counted anew."""
    there = gpu_of(reading, gpu.index)
    if there is None or gpu.uuid is None or there.uuid is None or there.uuid == gpu.uuid:
        return there
    gpus = reading.gpus if isinstance(reading, GpuReading) else ()
    return next((one for one in gpus if one.uuid == gpu.uuid), None)
