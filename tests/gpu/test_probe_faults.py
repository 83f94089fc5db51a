"""One GPU's trouble is its own: lost, forbidden, hung or odd GPUs beside healthy ones, and sessions that end."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from decodetop.core.clock import SECOND_NS
from decodetop.errors import ProbeError
from decodetop.gpu.asks import CORE
from decodetop.gpu.device import Device
from decodetop.gpu.machine import Machine
from decodetop.gpu.probe import CALL_DEADLINE_S, OPEN_DEADLINE_S, GpuProbe
from decodetop.gpu.processes import ProcessNames
from decodetop.gpu.reading import Gpu, GpuReading
from support.clock import ManualClock, settle
from support.fake_nvml_layer import FakeGpu, FakeLibrary


def boxed(*gpus: FakeGpu) -> tuple[FakeLibrary, ManualClock, GpuProbe]:
    library, clock = FakeLibrary(*gpus), ManualClock()
    return library, clock, GpuProbe(clock, library, machine=Machine(Path("/nonexistent")))


def four() -> list[FakeGpu]:
    return [FakeGpu(uuid=f"GPU-{at}") for at in range(4)]


def states(reading: GpuReading) -> list[str]:
    return [gpu.state for gpu in reading.gpus]


@pytest.mark.parametrize("code", [15, 16, 8, 11])
async def test_a_lost_gpu_keeps_its_row_and_the_others_go_on(code: int) -> None:
    library, clock, probe = boxed(*four())
    await probe.read()
    await clock.advance(1)
    library.gpus[1].refused["*"] = code
    library.gpus[2] = library.gpus[2].but(clock_sm=1980)
    reading = await probe.read()
    assert states(reading) == ["ok", "lost", "ok", "ok"]
    lost = reading.gpus[1]
    assert (lost.uuid, lost.sm_clock_mhz, lost.memory_used_bytes) == ("GPU-1", 1755, 107308777472), "last good figures"
    assert lost.state_message and lost.state_since_ns == SECOND_NS
    assert reading.gpus[2].sm_clock_mhz == 1980
    await probe.close()


async def test_a_lost_gpu_is_not_touched_until_a_new_session_and_may_come_back() -> None:
    library, clock, probe = boxed(*four())
    await probe.read()
    library.gpus[1].refused["*"] = 15
    await clock.advance(1)
    await probe.read()
    touched = sum(times for (_, index), times in library.asked.items() if index == 1)
    for _ in range(9):
        await clock.advance(1)
        assert states(await probe.read())[1] == "lost"
    assert sum(times for (_, index), times in library.asked.items() if index == 1) == touched
    assert library.sessions == 1
    await clock.advance(1)
    reading = await probe.read()
    assert library.sessions == 2 and states(reading) == ["ok", "lost", "ok", "ok"]
    assert reading.gpus[1].state_since_ns == SECOND_NS, "lost since the first time, not since the last try"
    library.gpus[1].refused.clear()
    await clock.advance(19)
    assert library.sessions == 2, "the second try waits longer"
    await clock.advance(1)
    assert states(await probe.read()) == ["ok"] * 4 and library.sessions == 3
    await clock.advance(60)
    assert states(await probe.read()) == ["ok"] * 4 and library.sessions == 3
    await probe.close()


@pytest.mark.parametrize(("code", "state"), [(4, "denied"), (17, "denied"), (15, "lost"), (999, "broken")])
async def test_a_gpu_without_a_handle_keeps_its_row(code: int, state: str) -> None:
    library, clock, probe = boxed(*four())
    library.gpus[1].refused["handle"] = code
    reading = await probe.read()
    assert states(reading) == ["ok", state, "ok", "ok"]
    bad = reading.gpus[1]
    assert bad.index == 1 and bad.uuid is None and bad.memory_total_bytes is None and bad.state_message
    for _ in range(9):
        await clock.advance(1)
        await probe.read()
    assert library.asked[("handle", 1)] == 1
    library.gpus[1].refused.clear()
    await clock.advance(10)
    assert states(await probe.read()) == ["ok"] * 4
    await probe.close()


@pytest.mark.parametrize(("code", "state"), [(999, "broken"), (17, "denied"), (4, "denied")])
async def test_a_gpu_whose_every_call_fails_is_not_ok(code: int, state: str) -> None:
    library, clock, probe = boxed(*four())
    await probe.read()
    library.gpus[3].refused["*"] = code
    await clock.advance(1)
    reading = await probe.read()
    assert states(reading) == ["ok", "ok", "ok", state]
    assert reading.gpus[3].sm_clock_mhz == 1755
    await probe.close()


async def hung(
    gpus: list[FakeGpu], *methods: tuple[str, int]
) -> tuple[FakeLibrary, ManualClock, GpuProbe, GpuReading, list[threading.Event]]:
    """A probe whose second round met these hangs and gave up on them at the deadline."""
    library, clock, probe = boxed(*gpus)
    await probe.read()
    await clock.advance(1)
    events = [library.hang(method, index) for method, index in methods]
    reading = asyncio.ensure_future(probe.read())
    await asyncio.to_thread(events[0][0].wait, 10)
    await clock.advance(CALL_DEADLINE_S)
    for entered, _ in events[1:]:
        await asyncio.to_thread(entered.wait, 10)
    if events[1:]:
        await clock.advance(CALL_DEADLINE_S)
    return library, clock, probe, await reading, [release for _, release in events]


async def test_a_hung_call_stalls_its_gpu_only() -> None:
    library, clock, probe, reading, (release,) = await hung(four(), ("power_mw", 1))
    assert states(reading) == ["ok", "stalled", "ok", "ok"]
    stalled = reading.gpus[1]
    assert stalled.state_since_ns == SECOND_NS, "since the call began"
    assert stalled.power_w == 474.32 and "power_w" in (stalled.state_message or "")
    for _ in range(3):
        await clock.advance(1)
        assert states(await probe.read()) == ["ok", "stalled", "ok", "ok"]
    assert library.asked[("power_mw", 1)] == 2, "no second call until the first returns"
    assert library.asked[("power_mw", 2)] == 5
    library._hangs.clear()
    release.set()
    while probe._rounds.stuck:
        await asyncio.sleep(0.001)
    assert states(await probe.read()) == ["ok"] * 4
    await probe.close()
    assert not library.open


async def test_several_hung_gpus_cost_two_deadlines_not_four() -> None:
    _, clock, probe, reading, releases = await hung(four(), *(("clock_sm", at) for at in range(4)))
    assert states(reading) == ["stalled"] * 4
    assert clock.now_ns() == SECOND_NS + int(2 * CALL_DEADLINE_S * SECOND_NS)
    await clock.advance(1)
    assert states(await probe.read()) == ["stalled"] * 4, "answers at once: nobody is asked"
    for release in releases:
        release.set()
    while probe._rounds.stuck:
        await asyncio.sleep(0.001)
    await probe.close()


async def test_a_slow_call_within_the_deadline_is_no_stall() -> None:
    """Each GPU has the whole deadline for itself, however slow the ones before."""
    library, clock, probe = boxed(*four())
    await probe.read()
    events = [library.hang("clock_sm", at) for at in range(4)]
    reading = asyncio.ensure_future(probe.read())
    for entered, release in events:
        await asyncio.to_thread(entered.wait, 10)
        await clock.advance(0.75 * CALL_DEADLINE_S)
        release.set()
    assert states(await reading) == ["ok"] * 4
    await probe.close()


async def test_a_probe_closes_while_a_call_hangs() -> None:
    library, _, probe, _, (release,) = await hung(four(), ("memory", 2))
    await probe.close()
    assert library.asked[("shutdown", None)] == 0, "shutting down under a running call can crash"
    release.set()


async def test_a_hung_box_question_hides_no_gpu() -> None:
    library, clock, probe = boxed(*four())
    await probe.read()
    await clock.advance(1)
    entered, release = library.hang("xid_next")
    reading = asyncio.ensure_future(probe.read())
    await asyncio.to_thread(entered.wait, 10)
    await clock.advance(CALL_DEADLINE_S)
    assert states(await reading) == ["ok"] * 4
    release.set()


async def test_an_init_that_hangs_is_stalled_and_not_begun_twice() -> None:
    library, clock, probe = boxed(FakeGpu())
    entered, release = library.hang("init")
    for _ in range(2):
        reading = asyncio.ensure_future(probe.read())
        await asyncio.to_thread(entered.wait, 10)
        await settle()
        await clock.advance(OPEN_DEADLINE_S)
        with pytest.raises(ProbeError) as caught:
            await reading
        assert caught.value.kind == "stalled" and caught.value.hint
    release.set()
    assert states(await probe.read()) == ["ok"]
    assert library.asked[("init", None)] == 1
    await probe.close()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (12, "no NVIDIA GPU or driver"),
        (9, "driver is not loaded"),
        (18, "library is"),
        (999, "NVML does not start"),
        (4, "no permission"),
    ],
)
async def test_no_session_is_a_failure_with_words_and_is_tried_again(code: int, words: str) -> None:
    library, _, probe = boxed(FakeGpu())
    library.init_code = code
    with pytest.raises(ProbeError) as caught:
        await probe.read()
    assert words in caught.value.message and caught.value.hint
    assert caught.value.kind == {999: "broken", 4: "denied"}.get(code, "absent")
    library.init_code = 0
    assert states(await probe.read()) == ["ok"]
    await probe.close()


async def test_a_driver_without_gpus_is_absent() -> None:
    library, _, probe = boxed()
    with pytest.raises(ProbeError) as caught:
        await probe.read()
    assert caught.value.kind == "absent" and "580.159.04 sees no GPU" in caught.value.message
    assert not library.open
    library.gpus.append(FakeGpu())
    assert states(await probe.read()) == ["ok"]
    await probe.close()


@pytest.mark.parametrize("code", [1, 9, 18])
async def test_a_session_that_ends_is_begun_again_with_new_handles(code: int) -> None:
    library, clock, probe = boxed(*four())
    await probe.read()
    for gpu in library.gpus:
        gpu.refused["*"] = code
    await clock.advance(1)
    with pytest.raises(ProbeError) as caught:
        await probe.read()
    assert caught.value.kind == "absent"
    for gpu in library.gpus:
        gpu.refused.clear()
    await clock.advance(1)
    assert states(await probe.read()) == ["ok"] * 4
    assert library.sessions == 2
    await probe.close()


async def test_a_gpu_that_is_no_longer_listed_stays_as_lost() -> None:
    library, clock, probe = boxed(*four())
    await probe.read()
    gone = library.gpus.pop(1)
    library.gpus.append(FakeGpu(uuid="GPU-9"))
    library.gpus.append(FakeGpu(uuid="GPU-10"))
    await clock.advance(10)
    await probe.read()
    await clock.advance(1)
    reading = await probe.read()
    rows = [(gpu.index, gpu.uuid, gpu.state) for gpu in reading.gpus]
    assert rows == [
        (0, "GPU-0", "ok"),
        (1, "GPU-2", "ok"),
        (1, "GPU-1", "lost"),
        (2, "GPU-3", "ok"),
        (3, "GPU-9", "ok"),
        (4, "GPU-10", "ok"),
    ]
    assert reading.gpus[2].sm_clock_mhz == gone.clock_sm and reading.gpus[2].state_message
    library.gpus.append(gone)
    await clock.advance(10)
    await probe.read()
    await clock.advance(1)
    assert [gpu.uuid for gpu in (await probe.read()).gpus][-1] == "GPU-1"
    assert set(states(await probe.read())) == {"ok"}
    await probe.close()


async def test_events_that_a_driver_lacks_are_asked_once() -> None:
    library, clock, probe = boxed(FakeGpu())
    library.xid_code = 3
    for _ in range(5):
        await probe.read()
        await clock.advance(1)
    assert library.asked[("xid_next", None)] == 1
    await probe.close()


@pytest.mark.parametrize("uuid", ["GPU-same", ""])
async def test_gpus_that_can_t_be_told_apart_keep_their_own_figures(uuid: str) -> None:
    one, other = FakeGpu(uuid=uuid, energy_mj=9_000_000), FakeGpu(uuid=uuid, energy_mj=1_000, clock_sm=500)
    library, clock, probe = boxed(one, other)
    await probe.read()
    for _ in range(2):
        await clock.advance(5)
        library.gpus[0].energy_mj += 5_000
        reading = await probe.read()
    for gpu in reading.gpus:
        assert gpu.energy_run_j is None, "a difference between two GPUs is no energy"
        assert all("tells it" in gpu.reasons[name] for name in ("energy_run_j", "time_limited_run_ns", "run_began_ns"))
    library.gpus[1].refused["*"] = 15
    library.xids.append((0, 31))
    await clock.advance(1)
    reading = await probe.read()
    assert [(gpu.index, gpu.state, gpu.sm_clock_mhz) for gpu in reading.gpus] == [(0, "ok", 1755), (1, "lost", 500)]
    assert [[xid.code for xid in gpu.xids] for gpu in reading.gpus] == [[31], []]
    await probe.close()


async def test_a_gpu_that_was_never_read_says_why_of_each_figure() -> None:
    library, _, probe = boxed(*four())
    library.gpus[1].refused["handle"] = 4
    gpu = (await probe.read()).gpus[1]
    unknown = {name for name in gpu.__struct_fields__ if getattr(gpu, name) is None} - {"uuid"}
    assert unknown and {gpu.reasons.get(name) for name in unknown} == {"no permission"}
    await probe.close()


class Watch:
    """A clock that the driver's calls move on."""

    def __init__(self) -> None:
        self.t_ns = 0

    def now_ns(self) -> int:
        return self.t_ns


class SlowLibrary(FakeLibrary):
    """Each call takes half a second."""

    def __init__(self, watch: Watch, *gpus: FakeGpu) -> None:
        super().__init__(*gpus)
        self.watch = watch

    def _enter(self, method: str, index: int | None) -> None:
        super()._enter(method, index)
        self.watch.t_ns += SECOND_NS // 2


def test_a_driver_that_takes_half_a_second_a_call_is_read_in_turns(tmp_path: Path) -> None:
    """It was STALLED for good: what it had answered was thrown away each time for having come too late."""
    watch = Watch()
    library = SlowLibrary(watch, *four())
    library.init()
    clock: Any = watch
    names, machine = ProcessNames(tmp_path), Machine(tmp_path)
    devices = [
        Device(library, at, clock, machine, names, threading.Lock(), lambda: False, None, SECOND_NS) for at in range(4)
    ]
    seen: list[list[Gpu]] = [[], [], [], []]
    for _ in range(40):
        for device, readings in zip(devices, seen, strict=True):
            began_ns = watch.t_ns
            readings.append(device.read())
            assert watch.t_ns - began_ns <= 4 * SECOND_NS, "the others wait for it"
            assert watch.t_ns - device.asked_ns <= SECOND_NS, "it gives signs of life"
    for readings in seen:
        whole = next(at for at, gpu in enumerate(readings) if not set(CORE_FIGURES) & set(gpu.reasons))
        assert whole < 25, readings[-1].reasons
        assert readings[-1].name == "NVIDIA H200" and readings[-1].dram_bandwidth_percent == 61.75
        assert readings[-1].reasons["numa_node"] == "the kernel does not say"
    library.gpus[2] = library.gpus[2].but(clock_sm=500)
    later = [devices[2].read() for _ in range(12)]
    assert later[-1].sm_clock_mhz == 500, "each figure gets its turn again and again"


CORE_FIGURES = [field for ask in CORE for field in ask.fields]


async def test_a_gpu_hangs_by_the_age_of_its_call_and_not_of_its_round() -> None:
    library, clock, probe = boxed(*four())
    await probe.read()
    await clock.advance(1)
    gates = [library.hang(method, 1) for method in ("clock_sm", "event_reasons", "utilization")]
    reading = asyncio.ensure_future(probe.read())
    for entered, gone_on in gates:
        await asyncio.to_thread(entered.wait, 10)
        await clock.advance(CALL_DEADLINE_S * 0.75)
        gone_on.set()
    assert states(await reading) == ["ok"] * 4
    await probe.close()
