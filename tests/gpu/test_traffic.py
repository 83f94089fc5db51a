"""PCIe traffic where there is no GPM: watched beside the rounds, never in them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from decodetop.gpu.machine import Machine
from decodetop.gpu.probe import GpuProbe
from decodetop.gpu.reading import GpuReading
from support.clock import ManualClock
from support.fake_nvml_layer import FakeGpu, FakeLibrary


def boxed(*gpus: FakeGpu, quiet: bool = False) -> tuple[FakeLibrary, ManualClock, GpuProbe]:
    library, clock = FakeLibrary(*gpus), ManualClock()
    return library, clock, GpuProbe(clock, library, machine=Machine(Path("/nonexistent")), quiet=lambda: quiet)


async def watched(probe: GpuProbe) -> GpuReading:
    """A reading after the watch that runs has ended."""
    assert probe._traffic is not None and probe._traffic.running is not None
    await asyncio.wait({probe._traffic.running})
    return await probe.read()


async def test_a_gpu_without_gpm_is_watched_every_five_seconds() -> None:
    library, clock, probe = boxed(FakeGpu(gpm_supported=False), FakeGpu(uuid="GPU-1"))
    first = await probe.read()
    assert first.gpus[0].pcie_rx_bytes_s is None and first.gpus[0].reasons["pcie_rx_bytes_s"]
    await clock.advance(1)
    ampere, hopper = (await watched(probe)).gpus
    assert (ampere.pcie_tx_bytes_s, ampere.pcie_rx_bytes_s, ampere.pcie_traffic) == (3516000.0, 547000.0, "sample")
    assert not ampere.reasons.keys() & {"pcie_tx_bytes_s", "pcie_rx_bytes_s"}
    assert hopper.pcie_traffic == "gpm" and library.asked[("pcie_kb_s", 1)] == 0
    for _ in range(10):
        await clock.advance(1)
        reading = await probe.read()
        if probe._traffic is not None and probe._traffic.running is not None:
            reading = await watched(probe)
    assert library.asked[("pcie_kb_s", 0)] == 6, "two calls, at 0, 5 and 10 s"
    assert reading.gpus[0].pcie_tx_bytes_s == 3516000.0
    await probe.close()
    assert not library.open


async def test_a_watch_holds_up_no_round_and_keeps_its_session() -> None:
    library, clock, probe = boxed(FakeGpu(gpm_supported=False))
    entered, release = library.hang("pcie_kb_s", 0)
    await probe.read()
    await asyncio.to_thread(entered.wait, 10)
    await clock.advance(1)
    assert (await probe.read()).gpus[0].state == "ok"
    library.gpus[0].refused["clock_sm"] = 15
    await clock.advance(1)
    assert (await probe.read()).gpus[0].state == "lost"
    await clock.advance(10)
    await probe.read()
    assert library.sessions == 1, "a call still uses its handle"
    library.gpus[0].refused.clear()
    release.set()
    while probe._rounds.busy:
        await asyncio.sleep(0.001)
    assert (await probe.read()).gpus[0].state == "ok" and library.sessions == 2
    await probe.close()
    assert not library.open


async def test_refused_once_or_quiet_it_is_not_asked() -> None:
    library, clock, probe = boxed(FakeGpu(gpm_supported=False, refused={"pcie_kb_s": 3}))
    await probe.read()
    gpu = (await watched(probe)).gpus[0]
    assert gpu.pcie_rx_bytes_s is None and gpu.pcie_traffic is None and gpu.reasons["pcie_rx_bytes_s"]
    await clock.advance(10)
    await probe.read()
    assert library.asked[("pcie_kb_s", 0)] == 1
    await probe.close()
    library, _, probe = boxed(FakeGpu(gpm_supported=False), quiet=True)
    await probe.read()
    await probe.close()
    assert library.asked[("pcie_kb_s", 0)] == 0
