"""The simulated GPUs follow the load."""

from __future__ import annotations

from itertools import pairwise

import pytest

from decodetop.errors import ProbeError
from decodetop.gpu.reading import Gpu
from decodetop.gpu.text import UNTOLD, unknown
from decodetop.sim import model
from decodetop.sim.gpus import SimGpuProbe
from decodetop.sim.model import Load
from support.clock import ManualClock


class FakeLoads:
    """A server that decodes one stream while `busy`."""

    def __init__(self, clock: ManualClock, tp: int = 1) -> None:
        self.clock = clock
        self.busy = False
        self.gone = False
        self.now = Load(t_ns=0, tp=tp, pid=4242, memory_bytes=10**11)

    async def load(self) -> Load:
        if self.gone:
            raise ConnectionRefusedError("refused")
        t_ns = self.clock.now_ns()
        span_ns = t_ns - self.now.t_ns
        steps = span_ns / 5.112e6 if self.busy else 0.0
        self.now = Load(
            t_ns=t_ns,
            tp=self.now.tp,
            pid=4242,
            memory_bytes=10**11,
            kernel_busy_ns=self.now.kernel_busy_ns + (span_ns if self.busy else 0),
            read_bytes=self.now.read_bytes + steps * model.WEIGHT_BYTES,
            flop=self.now.flop + steps * model.FLOP_PER_TOKEN * model.TILE_TOKENS,
        )
        return self.now


async def after(probe: SimGpuProbe, clock: ManualClock, seconds: int) -> tuple[Gpu, ...]:
    for _ in range(seconds):
        await clock.advance(1.0)
        reading = await probe.read()
    return reading.gpus


async def test_idle_clocks_and_link_rise_under_load_and_fall_again() -> None:
    clock = ManualClock()
    loads = FakeLoads(clock)
    probe = SimGpuProbe(loads, clock, count=2)
    idle = (await after(probe, clock, 10))[0]
    assert (idle.sm_clock_mhz, idle.pcie_gen, idle.utilization_percent, idle.event_reasons) == (345, 1, 0.0, 1)
    assert idle.power_w == pytest.approx(77, rel=0.01)
    loads.busy = True
    busy, other = await after(probe, clock, 10)
    assert (busy.sm_clock_mhz, busy.pcie_gen, busy.utilization_percent, busy.event_reasons) == (1980, 5, 100.0, 0)
    assert busy.power_w == pytest.approx(474, rel=0.03)
    assert busy.dram_bandwidth_percent == pytest.approx(61.75, abs=0.6)
    assert busy.memory_busy_percent == pytest.approx(79, abs=1)
    assert (other.sm_clock_mhz, other.memory_used_bytes, other.processes) == (345, 0, ())
    loads.busy = False
    just_now = (await after(probe, clock, 2))[0]
    assert (just_now.sm_clock_mhz, just_now.utilization_percent) == (1980, 0.0)
    later = (await after(probe, clock, 5))[0]
    assert (later.sm_clock_mhz, later.pcie_gen) == (345, 1)


async def test_temperature_lags_behind_power() -> None:
    clock = ManualClock()
    loads = FakeLoads(clock)
    probe = SimGpuProbe(loads, clock, count=1)
    await after(probe, clock, 2)
    loads.busy = True
    seen = [(await after(probe, clock, 1))[0].temperature_c for _ in range(60)]
    assert all(a is not None and b is not None and a <= b for a, b in pairwise(seen))
    assert seen[2] is not None and seen[-1] is not None and seen[2] < seen[-1] - 5


async def test_energy_is_power_over_time_and_memory_adds_up() -> None:
    clock = ManualClock()
    probe = SimGpuProbe(FakeLoads(clock, tp=2), clock, count=8)
    gpus = await after(probe, clock, 20)
    assert len(gpus) == 8
    for gpu in gpus:
        assert gpu.energy_j == pytest.approx(77 * 19, rel=0.02)
        assert gpu.memory_used_bytes is not None and gpu.memory_free_bytes is not None
        assert gpu.memory_reserved_bytes is not None
        held = gpu.memory_used_bytes + gpu.memory_free_bytes + gpu.memory_reserved_bytes
        assert held == gpu.memory_total_bytes
    assert [bool(gpu.processes) for gpu in gpus] == [True, True] + [False] * 6
    assert len({gpu.uuid for gpu in gpus}) == 8
    assert {gpu.name for gpu in gpus} == {"Simulated H200"}


async def test_the_same_seed_and_times_give_the_same_figures() -> None:
    async def story(seed: int) -> tuple[Gpu, ...]:
        clock = ManualClock()
        loads = FakeLoads(clock)
        probe = SimGpuProbe(loads, clock, count=2, seed=seed)
        await after(probe, clock, 3)
        loads.busy = True
        return await after(probe, clock, 3)

    assert await story(1) == await story(1)
    assert await story(1) != await story(2)


async def test_a_dead_server_is_a_lost_probe() -> None:
    clock = ManualClock()
    loads = FakeLoads(clock)
    loads.gone = True
    with pytest.raises(ProbeError) as caught:
        await SimGpuProbe(loads, clock).read()
    assert caught.value.kind == "lost"


async def test_what_is_not_simulated_says_so() -> None:
    clock = ManualClock()
    probe = SimGpuProbe(FakeLoads(clock), clock, count=16)
    gpus = await after(probe, clock, 1)
    assert all(UNTOLD not in unknown(gpu) for gpu in gpus)
    assert len({gpu.pci_bus_id for gpu in gpus}) == 16
    assert all(len(gpu.pci_bus_id or "") == len("00000000:19:00.0") for gpu in gpus)
