"""What one healthy or half-dumb GPU makes the probe say: values, reasons, real zeros, and how often it asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.gpu.device import MEASURED
from decodetop.gpu.judgement import alarms
from decodetop.gpu.library import Memory, MigSeen
from decodetop.gpu.limited import Limited
from decodetop.gpu.machine import Machine
from decodetop.gpu.probe import GpuProbe
from decodetop.gpu.reading import NOT_ON_PCIE, Gpu, Link, MigInstance
from decodetop.gpu.text import pcie_slot
from support.clock import ManualClock
from support.fake_nvml_layer import GIB, FakeGpu, FakeLibrary


def probe_of(library: FakeLibrary, clock: ManualClock, root: Path = Path("/nonexistent")) -> GpuProbe:
    return GpuProbe(clock, library, machine=Machine(root))


async def second_reading(library: FakeLibrary, root: Path = Path("/nonexistent")) -> Gpu:
    clock = ManualClock()
    probe = probe_of(library, clock, root)
    await probe.read()
    await clock.advance(1)
    reading = await probe.read()
    await probe.close()
    return reading.gpus[0]


async def test_a_busy_gpu_is_read_whole() -> None:
    gpu = await second_reading(FakeLibrary(FakeGpu()))
    assert (gpu.uuid, gpu.name, gpu.pci_bus_id) == ("GPU-0", "NVIDIA H200", "00000000:00:06.0")
    assert (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz) == (1755, 1980)
    assert (gpu.mem_clock_mhz, gpu.mem_clock_max_mhz, gpu.memory_bus_bits) == (3201, 3201, 6016)
    assert (gpu.pcie_gen, gpu.pcie_gen_max, gpu.pcie_gen_device_max) == (5, 5, 5)
    assert (gpu.pcie_width, gpu.pcie_width_max, gpu.pcie_replays) == (16, 16, 1)
    assert gpu.memory_used_bytes == 107308777472
    assert gpu.memory_reserved_bytes == 644939776
    assert (gpu.power_w, gpu.power_limit_w, gpu.energy_j) == (474.32, 700.0, 2503.562)
    assert (gpu.temperature_c, gpu.memory_temperature_c, gpu.temperature_slowdown_c) == (44.0, 38.0, 89.0)
    assert (gpu.utilization_percent, gpu.memory_busy_percent) == (100.0, 79.0)
    assert (gpu.dram_bandwidth_percent, gpu.tensor_active_percent) == (61.75, 93.5)
    assert gpu.pcie_rx_bytes_s == pytest.approx(56433.4 * 2**20)
    assert gpu.nvlink_tx_bytes_s == pytest.approx(256.2 * 2**20)
    assert (gpu.architecture, gpu.virtualization, gpu.mig_enabled, gpu.persistence_mode) == (
        "Hopper",
        "passthrough",
        False,
        True,
    )
    assert (gpu.nvlink_links, gpu.nvlink_links_active) == (18, 18)
    assert gpu.time_limited_ns is not None and gpu.time_limited_ns["power cap"] == 5_000_000
    assert gpu.processes == ()


async def test_versions_links_and_the_cost_of_the_round() -> None:
    clock = ManualClock()
    probe = probe_of(FakeLibrary(FakeGpu(), FakeGpu(uuid="GPU-1")), clock)
    reading = await probe.read()
    assert (reading.driver_version, reading.nvml_version, reading.cuda_version) == (
        "580.159.04",
        "13.580.159.04",
        "13.0",
    )
    assert reading.links == (Link(a=0, b=1, path="sockets"),)
    await clock.advance(1)
    again = await probe.read()
    assert again.calls is not None and 20 <= again.calls <= 25, "about 11 a GPU, and one for Xids"
    await probe.close()


async def test_every_missing_value_has_a_reason() -> None:
    """With everything refused but the core, and with everything answered."""
    answers = FakeGpu()
    refuses = dict.fromkeys(FakeGpu.__dataclass_fields__, 3)
    refuses.pop("clock_sm")
    for gpu in (
        await second_reading(FakeLibrary(answers)),
        await second_reading(FakeLibrary(answers.but(refused=refuses))),
    ):
        assert msgspec.json.decode(msgspec.json.encode(gpu), type=Gpu) == gpu
        missing = {field for field in MEASURED if getattr(gpu, field) is None} - {"recovery_action"}
        assert missing <= gpu.reasons.keys()
        assert all(gpu.reasons.values())
        assert not {field for field in gpu.reasons if getattr(gpu, field) is not None}


async def test_a_real_zero_stays_zero() -> None:
    gpu = await second_reading(FakeLibrary(FakeGpu(utilization=(0, 0), gpm=dict.fromkeys((2, 10, 20), 0.0), fan=0)))
    assert (gpu.utilization_percent, gpu.memory_busy_percent, gpu.fan_percent) == (0.0, 0.0, 0.0)
    assert (gpu.dram_bandwidth_percent, gpu.pcie_tx_bytes_s) == (0.0, 0.0)
    assert gpu.ecc_uncorrected == 0 and gpu.event_reasons == 4
    # a metric that this GPU lacks is not a zero, though the driver answers 0.0
    assert gpu.tensor_active_percent is None and "metric" in gpu.reasons["tensor_active_percent"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"clock_sm": 0xFFFFFFFF}, "sm_clock_mhz"),
        ({"max_clock_mem": 0}, "mem_clock_max_mhz"),
        ({"utilization": (255, 3)}, "utilization_percent"),
        ({"temperature": 0}, "temperature_c"),
        ({"temperature": 255}, "temperature_c"),
        ({"power_mw": 0xFFFFFFFF}, "power_w"),
        ({"power_mw": 0}, "power_w"),
        ({"pcie_gen": 0}, "pcie_gen"),
        ({"pcie_width": 0xFFFFFFFF}, "pcie_width"),
        ({"performance_state": 32}, "performance_state"),
        ({"event_reasons": 2**64 - 1}, "event_reasons"),
        ({"memory": Memory(2**64 - 1, 0, 0, 0)}, "memory_total_bytes"),
        ({"memory": Memory(80 * GIB, 2**64 - 1, GIB, 0)}, "memory_used_bytes"),
        ({"fan": 0xFFFFFFFF}, "fan_percent"),
        ({"gpm": {10: 4e9}}, "dram_bandwidth_percent"),
        ({"fields": {82: 0}}, "memory_temperature_c"),
        ({"fields": {94: 0xFFFFFFFF}}, "pcie_replays"),
        ({"fields": {4: 2**64 - 1}}, "ecc_uncorrected"),
        ({"fields": {4: 2**32 - 1}}, "ecc_uncorrected"),
        ({"fields": {144: 0xFFFFFFFF}}, "row_remap_pending"),
        ({"fields": {145: 255}}, "row_remap_failed"),
        ({"fields": {31: 255}}, "page_retirement_pending"),
        ({"fields": {230: 0xFFFFFFFF}}, "recovery_action"),
        ({"fields": {91: 18, 165: 255}}, "nvlink_links_active"),
        ({"mig": 0xFFFFFFFF}, "mig_enabled"),
        ({"persistence": 255}, "persistence_mode"),
        ({"application_clock_sm": 0xFFFFFFFF}, "sm_clock_application_mhz"),
        ({"temperature_left": 255}, "temperature_left_c"),
    ],
)
async def test_an_absurd_value_is_not_shown(changes: dict[str, object], field: str) -> None:
    gpu = await second_reading(FakeLibrary(FakeGpu(**changes)))
    assert getattr(gpu, field) is None
    assert "not believed" in gpu.reasons[field]
    assert gpu.state == "ok"


async def test_what_was_not_measured_raises_no_alarm() -> None:
    """A filled flag once said that the card needs replacing, and a filled link state that its NVLinks are down."""
    filled = dict.fromkeys((3, 4, 31, 91, 94, 142, 143, 144, 145, 164, 165, 166, 230), 0xFFFFFFFF)
    gpu = await second_reading(FakeLibrary(FakeGpu(fields=filled | {91: 18}, event_reasons=0)))
    assert alarms(gpu) == []


async def test_a_filled_counter_of_limited_time_is_left_out() -> None:
    gpu = await second_reading(FakeLibrary(FakeGpu(fields={74: 5, 76: 0xFFFFFFFF, 77: 2**64 - 1})))
    assert gpu.time_limited_ns == {"power cap": 5}


async def test_what_is_refused_for_good_is_asked_once() -> None:
    library = FakeLibrary(
        FakeGpu(refused={"fan": 3, "energy_mj": 13, "power_mw": 4, "gpm_supported": 13}, fields={82: 40})
    )
    clock = ManualClock()
    probe = probe_of(library, clock)
    for _ in range(25):
        reading = await probe.read()
        await clock.advance(1)
    gpu = reading.gpus[0]
    assert gpu.reasons["fan_percent"] == "not supported by this GPU"
    assert gpu.reasons["energy_j"] == "not in this driver"
    assert gpu.reasons["power_w"] == "no permission"
    assert gpu.reasons["ecc_uncorrected"] == "not supported by this GPU"
    assert gpu.reasons["dram_bandwidth_percent"] == "not in this driver"
    for method in ("fan", "energy_mj", "power_mw", "gpm_supported", "name", "max_clock_sm", "mig"):
        assert library.asked[(method, 0)] == 1, method
    assert library.asked[("clock_sm", 0)] == 25
    assert 3 <= library.asked[("pcie_width", 0)] <= 4, "every ten seconds"
    await probe.close()


async def test_an_unknown_error_is_asked_again_later() -> None:
    library = FakeLibrary(FakeGpu(refused={"power_mw": 999}))
    clock = ManualClock()
    probe = probe_of(library, clock)
    reading = await probe.read()
    assert "unknown error" in reading.gpus[0].reasons["power_w"] and reading.gpus[0].state == "ok"
    library.gpus[0].refused.clear()
    await clock.advance(1)
    assert (await probe.read()).gpus[0].power_w is None
    assert library.asked[("power_mw", 0)] == 1
    await clock.advance(4)
    assert (await probe.read()).gpus[0].power_w == 474.32
    await probe.close()


async def test_gpm_needs_two_readings_a_tenth_of_a_second_apart() -> None:
    library = FakeLibrary(FakeGpu())
    clock = ManualClock()
    probe = probe_of(library, clock)
    assert (await probe.read()).gpus[0].reasons["dram_bandwidth_percent"] == "first reading: needs two"
    await clock.advance(0.05)
    assert (await probe.read()).gpus[0].dram_bandwidth_percent is None
    assert library.asked[("gpm_take", 0)] == 1
    await clock.advance(0.1)
    assert (await probe.read()).gpus[0].dram_bandwidth_percent == 61.75
    await probe.close()
    assert library.samples_alive == 0 and not library.open


async def test_before_hopper_there_is_no_gpm() -> None:
    gpu = await second_reading(FakeLibrary(FakeGpu(gpm_supported=False, architecture=8)))
    assert gpu.architecture == "Ada"
    assert gpu.reasons["dram_bandwidth_percent"] == gpu.reasons["nvlink_rx_bytes_s"] == "needs GPM: Hopper or later"


async def test_an_old_driver_counts_reserved_memory_as_used() -> None:
    gpu = await second_reading(FakeLibrary(FakeGpu(memory=Memory(80 * GIB, GIB, 79 * GIB, None))))
    assert gpu.memory_used_bytes == GIB
    assert gpu.memory_reserved_bytes is None and "used" in gpu.reasons["memory_reserved_bytes"]


async def test_mig_and_vgpu_explain_what_they_hide() -> None:
    mig = await second_reading(FakeLibrary(FakeGpu(mig=True, refused={"utilization": 3, "gpm_take": 3})))
    assert mig.mig_enabled and mig.reasons["utilization_percent"] == "not measured while MIG is on"
    assert mig.reasons["dram_bandwidth_percent"] == "not measured while MIG is on"
    vgpu = await second_reading(FakeLibrary(FakeGpu(virtualization=2, refused={"power_mw": 3})))
    assert vgpu.reasons["power_w"] == "not available in a vGPU guest"


async def test_mig_instances_are_listed_where_mig_is_on() -> None:
    one = MigSeen("MIG-1", 7, "NVIDIA H100 MIG 1g.10gb", Memory(10 * GIB, 3 * GIB, 7 * GIB, 0))
    two = MigSeen("MIG-2", None, None, None)
    filled = MigSeen("MIG-3", 9, None, Memory(2**64 - 1, 2**64 - 1, 0, 0))
    on = await second_reading(FakeLibrary(FakeGpu(mig=True, mig_instances=[one, two, filled])))
    assert on.mig_instances == (
        MigInstance(
            uuid="MIG-1",
            gpu_instance=7,
            name="NVIDIA H100 MIG 1g.10gb",
            memory_used_bytes=3 * GIB,
            memory_total_bytes=10 * GIB,
        ),
        MigInstance(uuid="MIG-2"),
        MigInstance(uuid="MIG-3", gpu_instance=9),
    )
    library = FakeLibrary(FakeGpu())
    assert (await second_reading(library)).reasons["mig_instances"] == "MIG is off"
    assert library.asked[("mig_instances", 0)] == 0
    never = await second_reading(FakeLibrary(FakeGpu(refused={"mig": 3})))
    assert never.reasons["mig_instances"] == "no MIG here"


def host_with_memory(root: Path) -> Path:
    (root / "proc").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal:  125829120 kB\nMemFree: 1 kB\nMemAvailable: 104857600 kB\n")
    return root


@pytest.mark.parametrize("silent", [{"refused": {"memory": 3}}, {"memory": Memory(0, 0, 0, 0)}])
async def test_unified_memory_is_the_hosts_and_what_processes_hold(silent: dict[str, object], tmp_path: Path) -> None:
    chip = FakeGpu(name="NVIDIA GB10", bus_type=3, processes=[(41, 7 * GIB), (42, GIB)], pcie_gen=1, **silent)
    library = FakeLibrary(chip)
    gpu = await second_reading(library, host_with_memory(tmp_path))
    assert gpu.memory_is_unified
    assert (gpu.memory_total_bytes, gpu.memory_free_bytes) == (120 * GIB, 100 * GIB)
    assert gpu.memory_used_bytes == 8 * GIB
    # placeholders gen 1 x1 of a chip without a link are not a slow link
    assert gpu.pcie_gen is None and gpu.reasons["pcie_gen"] == gpu.reasons["pcie_width"] == NOT_ON_PCIE
    assert library.asked[("pcie_gen", 0)] == 0


async def test_a_card_that_refuses_its_memory_is_not_taken_for_unified(tmp_path: Path) -> None:
    gpu = await second_reading(FakeLibrary(FakeGpu(refused={"memory": 3})), host_with_memory(tmp_path))
    assert not gpu.memory_is_unified and gpu.memory_total_bytes is None
    assert gpu.reasons["memory_total_bytes"] == "not supported by this GPU"


async def test_the_process_list_is_read_when_memory_moved() -> None:
    library = FakeLibrary(FakeGpu(processes=[(41, GIB)]))
    clock = ManualClock()
    probe = probe_of(library, clock)
    for _ in range(30):
        await probe.read()
        await clock.advance(1)
    assert library.asked[("processes", 0)] == 1
    library.gpus[0] = library.gpus[0].but(memory=Memory(80 * GIB, GIB, 79 * GIB, 0), processes=[(41, GIB), (43, None)])
    gpu = (await probe.read()).gpus[0]
    assert gpu.processes is not None and [one.pid for one in gpu.processes] == [41, 43]
    assert gpu.processes[1].memory_bytes is None
    assert library.asked[("processes", 0)] == 2
    await probe.close()


async def test_a_wrong_process_struct_is_not_believed() -> None:
    gpu = await second_reading(FakeLibrary(FakeGpu(processes=[(0, 1), (44, 2**40)])))
    assert gpu.processes is not None
    assert [(one.pid, one.memory_bytes) for one in gpu.processes] == [(44, None)]


async def test_while_quiet_only_cheap_counters_are_read() -> None:
    library = FakeLibrary(FakeGpu())
    clock = ManualClock()
    quiet = False
    probe = GpuProbe(clock, library, machine=Machine(Path("/nonexistent")), quiet=lambda: quiet)
    await probe.read()
    quiet = True
    before = library.asked[("pcie_width", 0)], library.asked[("processes", 0)]
    for step in range(30):
        library.gpus[0] = library.gpus[0].but(memory=Memory(80 * GIB, step, 79 * GIB, 0))
        await clock.advance(1)
        gpu = (await probe.read()).gpus[0]
    assert (library.asked[("pcie_width", 0)], library.asked[("processes", 0)]) == before
    assert gpu.memory_used_bytes == 29 and gpu.dram_bandwidth_percent == 61.75 and gpu.energy_j == 2503.562
    await probe.close()


async def test_the_first_reading_is_whole_even_while_quiet() -> None:
    library = FakeLibrary(FakeGpu(processes=[(41, GIB)]))
    probe = GpuProbe(ManualClock(), library, machine=Machine(Path("/nonexistent")), quiet=lambda: True)
    gpu = (await probe.read()).gpus[0]
    assert gpu.power_limit_w == 700.0 and gpu.processes
    await probe.close()


async def test_xids_are_kept_with_their_time() -> None:
    library = FakeLibrary(FakeGpu(), FakeGpu(uuid="GPU-1"))
    clock = ManualClock()
    probe = probe_of(library, clock)
    await probe.read()
    await clock.advance(5)
    library.xids = [(1, 79), (1, 45)]
    reading = await probe.read()
    assert reading.gpus[0].xids == ()
    assert [(xid.code, xid.t_ns) for xid in reading.gpus[1].xids] == [(79, 5_000_000_000), (45, 5_000_000_000)]
    await clock.advance(1)
    assert len((await probe.read()).gpus[1].xids) == 2, "they stay"
    await probe.close()


async def test_the_numa_node_comes_from_the_kernel(tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:00:06.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    assert (await second_reading(FakeLibrary(FakeGpu()), tmp_path)).numa_node == 1
    (device / "numa_node").write_text("-1\n")
    gpu = await second_reading(FakeLibrary(FakeGpu()), tmp_path)
    assert gpu.numa_node is None and gpu.reasons["numa_node"] == "the kernel does not say"


async def test_what_somebody_set_by_hand() -> None:
    gpu = await second_reading(FakeLibrary(FakeGpu(compute_mode=3, application_clock_sm=1410)))
    assert (gpu.sm_clock_application_mhz, gpu.mem_clock_application_mhz) == (1410, 3201)
    assert (gpu.compute_mode, gpu.temperature_left_c) == ("exclusive process", 43.0)
    newer = await second_reading(FakeLibrary(FakeGpu(refused={"application_clock_sm": 26}, compute_mode=9)))
    assert newer.reasons["sm_clock_application_mhz"] == "no longer in this driver"
    assert newer.compute_mode is None and "mode 9" in newer.reasons["compute_mode"]


async def test_nvlink_says_its_version_and_what_its_links_carry() -> None:
    gpu = await second_reading(FakeLibrary(FakeGpu()))
    assert gpu.nvlink_version == "4.0" and gpu.nvlink_max_bytes_s == pytest.approx(18 * 26.562e9)
    none = await second_reading(FakeLibrary(FakeGpu(fields={91: 0})))
    assert none.nvlink_links == none.nvlink_links_active == 0
    assert none.reasons["nvlink_version"] == none.reasons["nvlink_max_bytes_s"] == "it has no NVLink"


async def test_retired_pages_of_cards_before_ampere() -> None:
    gpu = await second_reading(FakeLibrary(FakeGpu(fields={29: 2, 30: 1, 31: 1})))
    assert (gpu.pages_retired, gpu.page_retirement_pending) == (3, True)


@pytest.mark.parametrize(
    ("driver", "fields", "expected"),
    [
        ("580.159.04", {74: 1, 75: 9, 269: 2, 270: 3, 271: 4}, {"SW thermal": 2, "HW thermal": 3, "power brake": 4}),
        ("580.65.06", {74: 1, 75: 9, 251: 2, 252: 3, 253: 4}, {"SW thermal": 2, "HW thermal": 3, "power brake": 4}),
        # 251-253 are power smoothing in later branches
        ("590.48.01", {74: 1, 75: 9, 251: 1, 252: 1, 253: 1}, {"thermal": 9}),
        ("535.183.01", {74: 1, 75: 9, 251: 1, 269: 2}, {"thermal": 9}),
        (None, {74: 1, 75: 9, 269: 2}, {"thermal": 9}),
    ],
)
async def test_time_lost_to_heat_is_read_by_the_ids_of_the_drivers_branch(
    driver: str | None, fields: dict[int, float], expected: dict[str, int]
) -> None:
    answers = Limited(driver).read(OneGpu(fields), object())
    assert answers == ({"power cap": 1, **expected},)


class OneGpu(FakeLibrary):
    """Fields without a session."""

    def __init__(self, fields: dict[int, float]) -> None:
        super().__init__(FakeGpu(fields=fields))
        self.open, self.sessions = True, 1

    def fields(self, gpu: Any, asked: Any) -> Any:
        return super().fields((1, 0), asked)


async def test_counts_of_this_run_begin_with_it() -> None:
    library = FakeLibrary(FakeGpu())
    clock = ManualClock()
    probe = probe_of(library, clock)
    first = (await probe.read()).gpus[0]
    assert (first.run_began_ns, first.energy_run_j) == (0, 0.0)
    for _ in range(12):
        await clock.advance(1)
        fields = {**library.gpus[0].fields, 74: library.gpus[0].fields[74] + 500_000_000}
        library.gpus[0] = library.gpus[0].but(energy_mj=library.gpus[0].energy_mj + 700_000, fields=fields)
        gpu = (await probe.read()).gpus[0]
    assert gpu.run_began_ns == 0 and gpu.energy_run_j == pytest.approx(7000, abs=5 * 700)
    assert gpu.time_limited_run_ns is not None and 2.5e9 <= gpu.time_limited_run_ns["power cap"] <= 6e9
    assert gpu.time_limited_run_ns["HW thermal"] == 0
    # the driver was loaded anew: its counters, and so ours, begin anew
    library.gpus[0] = FakeGpu(energy_mj=1000)
    for _ in range(6):
        await clock.advance(1)
        gpu = (await probe.read()).gpus[0]
    assert gpu.energy_run_j == 0.0 and gpu.run_began_ns is not None and gpu.run_began_ns > 12e9
    await probe.close()


async def test_while_quiet_the_counters_a_benchmark_takes_are_read_each_time() -> None:
    library = FakeLibrary(FakeGpu(energy_mj=1))
    clock = ManualClock()
    probe = GpuProbe(clock, library, machine=Machine(Path("/nonexistent")), quiet=lambda: True)
    await probe.read()
    await clock.advance(1)
    library.gpus[0].fields[269] = 42
    gpu = (await probe.read()).gpus[0]
    assert gpu.time_limited_ns is not None and gpu.time_limited_ns["SW thermal"] == 42
    await probe.close()


async def test_the_slot_is_the_port_above_the_card(tmp_path: Path) -> None:
    port = tmp_path / "sys/devices/pci0000:00/0000:00:01.0"
    card = port / "0000:00:06.0"
    card.mkdir(parents=True)
    place = tmp_path / "sys/bus/pci/devices"
    place.mkdir(parents=True)
    (place / "0000:00:06.0").symlink_to(card)
    (port / "max_link_speed").write_text("16.0 GT/s PCIe\n")
    (port / "max_link_width").write_text("16\n")
    gpu = await second_reading(FakeLibrary(FakeGpu(pcie_gen=4, pcie_gen_max=4)), tmp_path)
    assert (gpu.pcie_gen_slot_max, gpu.pcie_width_slot_max, pcie_slot(gpu)) == (4, 16, "gen4 x16")
    # the port of a virtual machine is its host's invention
    (port / "max_link_speed").write_text("2.5 GT/s PCIe\n")
    virtual = await second_reading(FakeLibrary(FakeGpu()), tmp_path)
    assert pcie_slot(virtual) == "gen1 x16, not believed: its link is faster"
    (port / "max_link_speed").write_text("Unknown\n")
    assert pcie_slot(await second_reading(FakeLibrary(FakeGpu()), tmp_path)) == "gen? x16"
    nothing = await second_reading(FakeLibrary(FakeGpu()))
    assert nothing.reasons["pcie_gen_slot_max"] == "the kernel does not say" and pcie_slot(nothing) == "–"


async def test_the_fastest_link_under_load_is_kept_for_the_run() -> None:
    library, clock = FakeLibrary(FakeGpu(pcie_gen=1, utilization=(0, 0))), ManualClock()
    probe = probe_of(library, clock)
    assert (await probe.read()).gpus[0].pcie_fastest is None, "not under load yet"
    for changes in ({}, {"pcie_gen": 4, "pcie_width": 8}, {"pcie_gen": 1, "utilization": (0, 0)}):
        library.gpus[0] = FakeGpu(**changes)
        await clock.advance(11)
        assert (await probe.read()).gpus[0].pcie_fastest == (5, 16)
    await probe.close()
