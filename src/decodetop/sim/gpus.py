"""Simulated GPUs that follow the simulated server's load: a probe for the source `gpu`."""

from __future__ import annotations

from typing import Protocol

from decodetop.core.clock import SECOND_NS, Clock
from decodetop.core.decode import NotDecoded
from decodetop.errors import ProbeError
from decodetop.gpu.reading import Gpu, GpuProcess, GpuReading
from decodetop.gpu.since import Since
from decodetop.sim import model
from decodetop.sim.model import IDLE, Activity, Load

NAME = "Simulated H200"
DRIVER = "580.159.04 (simulated)"
MEMORY_TOTAL = 150_754_820_096
MEMORY_RESERVED = 644_939_776

NOT_SIMULATED = (
    "numa_node",
    "virtualization",
    "mig_instances",
    "time_limited_ns",
    "sm_clock_application_mhz",
    "mem_clock_application_mhz",
    "pcie_gen_slot_max",
    "pcie_width_slot_max",
    "temperature_left_c",
    "compute_mode",
    "pages_retired",
    "page_retirement_pending",
    "nvlink_version",
    "nvlink_max_bytes_s",
)

READ_DEADLINE_S = 3.0


def gpu_uuid(index: int) -> str:
    return f"GPU-51a00000-0000-4000-8000-{index:012x}"


class LoadSource(Protocol):
    """Where a probe learns what the server did. Raises OSError when the server is gone."""

    async def load(self) -> Load: ...


class SimGpu:
    """One GPU's state: temperature and energy have inertia, clocks stay up for a while after work."""

    def __init__(self, index: int, seed: int) -> None:
        self.index = index
        self._seed = seed
        self._temperature_c = 36.0
        self._energy_j = 0.0
        self._idle_s = model.CLOCKED_FOR_S

    def step(self, seen: Activity, load: Load | None, seconds: float, tick: int) -> Gpu:
        """The GPU after `seconds` of `seen`; `load` None = no server holds memory on it."""
        self._idle_s = 0.0 if seen.busy > 0.001 else self._idle_s + seconds
        clocked = self._idle_s < model.CLOCKED_FOR_S
        wobble = 1.0 + 0.006 * model.noise(self._seed, self.index, tick)
        power = model.power_w(seen, clocked=clocked) * wobble
        self._temperature_c = model.settle_c(self._temperature_c, power, seconds)
        self._energy_j += power * seconds
        clock_mhz, reasons = model.sm_clock(seen, clocked=clocked)
        used = load.memory_bytes if load else 0
        sm = min(1.0, 1.04 * seen.dram + 0.9 * seen.tensor)
        return Gpu(
            index=self.index,
            uuid=gpu_uuid(self.index),
            name=NAME,
            pci_bus_id=f"{self.index // 8:08X}:{0x19 + 0x10 * (self.index % 8):02X}:00.0",
            numa_node=self.index * 2 // 8,
            sm_clock_mhz=clock_mhz,
            sm_clock_max_mhz=model.SM_MAX_MHZ,
            mem_clock_mhz=model.MEM_MHZ,
            mem_clock_max_mhz=model.MEM_MHZ,
            performance_state=0,
            event_reasons=reasons,
            pcie_gen=5 if clocked else 1,
            pcie_gen_max=5,
            pcie_gen_device_max=5,
            pcie_width=16,
            pcie_width_max=16,
            pcie_tx_bytes_s=(1.5 + 9.0 * seen.busy) * 2**20 * wobble,
            pcie_rx_bytes_s=(1.0 + 30.0 * seen.busy) * 2**20 * wobble,
            pcie_replays=0,
            memory_used_bytes=used,
            memory_free_bytes=MEMORY_TOTAL - MEMORY_RESERVED - used,
            memory_reserved_bytes=MEMORY_RESERVED,
            memory_total_bytes=MEMORY_TOTAL,
            utilization_percent=float(round(100 * seen.busy)),
            memory_busy_percent=float(round(128 * seen.dram)),
            sm_active_percent=100 * sm,
            sm_occupancy_percent=14 * sm,
            tensor_active_percent=100 * seen.tensor,
            dram_bandwidth_percent=100 * seen.dram,
            nvlink_tx_bytes_s=seen.nvlink_bytes_s,
            nvlink_rx_bytes_s=seen.nvlink_bytes_s,
            power_w=power,
            power_limit_w=model.POWER_LIMIT_W,
            energy_j=self._energy_j,
            temperature_c=float(round(self._temperature_c)),
            memory_temperature_c=float(round(self._temperature_c + 6)),
            ecc_uncorrected=0,
            persistence_mode=True,
            mig_enabled=False,
            processes=(GpuProcess(pid=load.pid, name="simulated server", memory_bytes=used),) if load else (),
            architecture="Hopper",
            memory_bus_bits=6016,
            power_limit_default_w=model.POWER_LIMIT_W,
            temperature_slowdown_c=89.0,
            ecc_corrected=0,
            rows_remapped=0,
            row_remap_pending=False,
            row_remap_failed=False,
            nvlink_links=18,
            nvlink_links_active=18,
            reasons={"fan_percent": "passively cooled", **dict.fromkeys(NOT_SIMULATED, "not simulated")},
        )


class SimGpuProbe:
    """`count` GPUs; the server's work is on the first `tp` of them, the others idle."""

    source = "gpu"

    def __init__(
        self, loads: LoadSource, clock: Clock, count: int = 2, *, period_s: float = 1.0, seed: int = 0
    ) -> None:
        self.period_s = period_s
        self.deadline_s = READ_DEADLINE_S
        self._loads = loads
        self._clock = clock
        self._gpus = [SimGpu(index, seed) for index in range(count)]
        self._since = Since()
        self._before: Load | None = None
        self._read_ns: int | None = None
        self._tick = 0

    async def read(self) -> GpuReading:
        """Raises ProbeError (lost) when the simulated server is gone."""
        try:
            load = await self._loads.load()
        except (OSError, NotDecoded) as error:
            message = f"the simulated server does not answer: {error}"
            raise ProbeError("lost", message, "leave the demo and start it again") from error
        seen = model.activity(self._before, load) if self._before is not None else IDLE
        self._before = load
        now_ns = self._clock.now_ns()
        seconds = 0.0 if self._read_ns is None else (now_ns - self._read_ns) / SECOND_NS
        self._read_ns = now_ns
        self._tick += 1
        stepped = [
            gpu.step(seen, load, seconds, self._tick)
            if gpu.index < load.tp
            else gpu.step(IDLE, None, seconds, self._tick)
            for gpu in self._gpus
        ]
        return GpuReading(
            gpus=tuple(self._since.add(gpu, gpu.uuid, now_ns) for gpu in stepped),
            driver_version=DRIVER,
            nvml_version="13.580.159.04 (simulated)",
            cuda_version="13.0",
            calls=0,
        )

    async def close(self) -> None:
        """Nothing is kept open."""
