"""Driver faults through a fake libnvidia-ml.so.1 in C, in a process of its own: the ctypes layer is the real one."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.fake_nvml import FakeNvml, build, compiler, h100s

PATIENCE_S = 30.0
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


class Child:
    """A probe in another process that has loaded the fake library."""

    def __init__(self, box: FakeNvml, environment: dict[str, str] | None = None) -> None:
        environ = box.environment() if environment is None else environment
        environ["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT / 'tests'}"
        command = [sys.executable, "-m", "support.fake_nvml_child"]
        self.box = box
        os.mkfifo(box.directory / "hung")
        self._hung = os.open(box.directory / "hung", os.O_RDONLY | os.O_NONBLOCK)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, text=True
        )

    def say(self, line: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, self.process.stderr.read() if self.process.stderr else ""
        return json.loads(answer)

    def read(self, after_s: float = 1) -> Any:
        self.say(f"advance {after_s}")
        return self.say("read")["reading"]

    def until_hung(self, function: str) -> None:
        """Wait until the library holds a call of this function."""
        assert select.select([self._hung], [], [], PATIENCE_S)[0], self.box.counts()
        assert os.read(self._hung, 1 << 12).decode() == function

    def close(self) -> None:
        os.close(self._hung)

    def end(self) -> int:
        """Exit code once stdin closes."""
        _, errors = self.process.communicate(timeout=30)
        assert not errors, errors
        return self.process.returncode


@pytest.fixture
def start(library: Path, tmp_path: Path) -> Iterator[Callable[[list[str]], Child]]:
    children: list[Child] = []

    def begin(lines: list[str]) -> Child:
        box = FakeNvml(tmp_path / "box", library)
        box.script(lines)
        children.append(Child(box))
        return children[-1]

    yield begin
    for child in children:
        child.process.kill()
        child.process.communicate()
        child.close()


def states(reading: Any) -> list[str]:
    return [gpu["state"] for gpu in reading["gpus"]]


def test_eight_busy_gpus(start: Callable[[list[str]], Child]) -> None:
    child = start(h100s(8))
    child.read()
    reading = child.read()
    assert states(reading) == ["ok"] * 8
    gpu = reading["gpus"][7]
    assert (gpu["sm_clock_mhz"], gpu["sm_clock_max_mhz"], gpu["mem_clock_mhz"]) == (1755, 1980, 2619)
    assert (gpu["pcie_gen"], gpu["pcie_width"], gpu["pci_bus_id"]) == (5, 16, "00000000:17:00.0")
    assert gpu["memory_used_bytes"] == 60 * 2**30 and gpu["memory_reserved_bytes"] == 480 * 2**20
    assert gpu["power_w"] == pytest.approx(612.345) and gpu["dram_bandwidth_percent"] == 62
    assert gpu["pcie_rx_bytes_s"] == 1500 * 2**20 and gpu["nvlink_links_active"] == 18
    assert gpu["time_limited_ns"]["power cap"] == 7_000_000 and gpu["time_limited_run_ns"]["power cap"] == 0
    assert (gpu["compute_mode"], gpu["sm_clock_application_mhz"], gpu["mem_clock_application_mhz"]) == (
        "default",
        1980,
        2619,
    )
    assert gpu["temperature_left_c"] == 28 and gpu["nvlink_version"] == "4.0"
    assert gpu["nvlink_max_bytes_s"] == pytest.approx(18 * 26.562e9) and gpu["energy_run_j"] >= 0
    assert gpu["reasons"]["fan_percent"] == "not supported by this GPU"
    assert len(reading["links"]) == 28 and {link["path"] for link in reading["links"]} == {"nvlink"}
    assert (reading["driver_version"], reading["cuda_version"]) == ("580.159.04", "13.0")
    child.say("close")
    assert child.box.calls()["nvmlShutdown"] == 1
    assert child.box.calls()["nvmlGpmSampleFree"] == child.box.calls()["nvmlGpmSampleAlloc"] == 16
    assert child.end() == 0


def test_sixteen_gpus(start: Callable[[list[str]], Child]) -> None:
    child = start(h100s(16))
    child.read()
    reading = child.read()
    assert states(reading) == ["ok"] * 16 and [gpu["index"] for gpu in reading["gpus"]] == list(range(16))
    assert {gpu["dram_bandwidth_percent"] for gpu in reading["gpus"]} == {62}
    assert len({gpu["uuid"] for gpu in reading["gpus"]}) == 16 and len(reading["links"]) == 120


def test_the_order_of_the_gpus_changes(start: Callable[[list[str]], Child]) -> None:
    """GPU 2 comes back as 0, and 0 is gone: figures and counts follow the card, not the place."""
    child = start([*h100s(3), "gpu 2 energy 9000000", "gpu 0 energy 1000"])
    child.read()
    uuid = [f"GPU-00000000-0000-0000-0000-{at:012d}" for at in range(3)]
    moved = [*h100s(3), "count 2", f"text 0 uuid {uuid[2]}", "gpu 0 energy 9000000", "gpu 0 sm_clock 777"]
    child.box.script(moved)
    child.read(10)
    first, gone, second = child.read(5)["gpus"]
    assert (first["index"], first["uuid"], first["state"], first["sm_clock_mhz"]) == (0, uuid[2], "ok", 777)
    assert 0 <= first["energy_run_j"] < 9000
    assert (gone["index"], gone["uuid"], gone["state"]) == (0, uuid[0], "lost")
    assert (second["index"], second["uuid"], second["state"]) == (1, uuid[1], "ok")


def test_the_library_is_called_less_than_nvitop_does(start: Callable[[list[str]], Child]) -> None:
    """At 1 Hz with 8 GPUs whose memory moves; nvitop made 93 to 102 calls a second on the same library."""
    child = start(h100s(8, moving=True))
    child.read()
    before = sum(child.box.calls().values())
    reported = sum(child.read()["calls"] for _ in range(30))
    counted = sum(child.box.calls().values()) - before
    print(counted / 30)
    assert 80 * 30 < counted <= 93 * 30
    # nvidia-ml-py asks twice for one list of processes
    assert reported <= counted <= reported * 1.05
    assert child.box.calls()["nvmlDeviceGetCurrPcieLinkWidth"] <= 8 * 4
    assert "nvmlDeviceGetPcieThroughput" not in child.box.calls()
    assert child.box.calls()["nvmlInitWithFlags"] == 1


def test_a_gpu_lost_mid_run_comes_back(start: Callable[[list[str]], Child]) -> None:
    child = start(h100s(4))
    child.read()
    child.box.script([*h100s(4), "fault 2 * 15"])
    reading = child.read()
    assert states(reading) == ["ok", "ok", "lost", "ok"]
    lost = reading["gpus"][2]
    assert lost["memory_used_bytes"] == 60 * 2**30 and lost["state_since_ns"] == 2_000_000_000
    touched = sum(calls[2] for calls in child.box.counts().values())
    assert states(child.read(5)) == ["ok", "ok", "lost", "ok"]
    assert sum(calls[2] for calls in child.box.counts().values()) == touched
    child.box.script(h100s(4))
    assert states(child.read(10)) == ["ok"] * 4
    assert child.box.calls()["nvmlInitWithFlags"] == 2


@pytest.mark.parametrize(("code", "state"), [(4, "denied"), (17, "denied"), (999, "broken"), (15, "lost")])
def test_one_unreadable_among_many(start: Callable[[list[str]], Child], code: int, state: str) -> None:
    child = start([*h100s(8), f"fault 3 nvmlDeviceGetHandleByIndex_v2 {code}"])
    reading = child.read()
    assert states(reading) == ["ok"] * 3 + [state] + ["ok"] * 4
    assert reading["gpus"][3]["state_message"] and reading["gpus"][3]["memory_total_bytes"] is None


def test_a_field_without_permission(start: Callable[[list[str]], Child]) -> None:
    child = start([*h100s(1), "fault 0 nvmlDeviceGetComputeRunningProcesses_v3 4"])
    gpu = child.read()["gpus"][0]
    assert gpu["state"] == "ok" and gpu["processes"] is None
    assert gpu["reasons"]["processes"] == "no permission"


def test_a_hung_call_stalls_its_gpu_and_holds_up_neither_others_nor_exit(start: Callable[[list[str]], Child]) -> None:
    child = start(h100s(4))
    child.read()
    child.box.script([*h100s(4), "hang 1 nvmlDeviceGetUtilizationRates", "gpu 3 sm_clock 900"])
    child.say("advance 1")
    child.say("begin")
    child.until_hung("nvmlDeviceGetUtilizationRates")
    child.say("advance 2")
    reading = child.say("end")["reading"]
    assert states(reading) == ["ok", "stalled", "ok", "ok"]
    assert "utilization_percent" in reading["gpus"][1]["state_message"]
    assert reading["gpus"][3]["sm_clock_mhz"] == 900
    assert states(child.read()) == ["ok", "stalled", "ok", "ok"]
    assert child.box.counts()["nvmlDeviceGetUtilizationRates"][:4] == [3, 2, 3, 3]
    child.say("close")
    assert "nvmlShutdown" not in child.box.calls()
    assert child.end() == 0


def test_a_hung_call_that_returns_heals(start: Callable[[list[str]], Child]) -> None:
    child = start(h100s(2))
    child.read()
    child.box.script([*h100s(2), "hang 0 nvmlGpmSampleGet"])
    child.say("advance 1")
    child.say("begin")
    child.until_hung("nvmlGpmSampleGet")
    child.say("advance 2")
    assert states(child.say("end")["reading"]) == ["stalled", "ok"]
    child.box.script(h100s(2))
    deadline = time.monotonic() + 30
    while states(child.read()) != ["ok", "ok"]:
        assert time.monotonic() < deadline


def test_slow_calls_are_waited_for(start: Callable[[list[str]], Child]) -> None:
    child = start([*h100s(2), "delay * nvmlDeviceGetClockInfo 20"])
    assert states(child.read()) == ["ok", "ok"]


def test_absurd_values(start: Callable[[list[str]], Child]) -> None:
    odd = ["gpu 0 sm_clock 4294967295", "gpu 0 util 255", "gpu 0 temperature 0", "gpu 0 power 4294967295"]
    odd += ["gpu 0 pcie_width 4294967295", "gpu 0 pstate 32", "field 0 94 4294967295", "gpm 0 10 nan"]
    child = start([*h100s(2), *odd])
    child.read()
    gpu, other = child.read()["gpus"]
    for field in ("sm_clock_mhz", "utilization_percent", "temperature_c", "power_w", "pcie_width", "performance_state"):
        assert gpu[field] is None and "not believed" in gpu["reasons"][field], field
        assert other[field] is not None
    assert gpu["pcie_replays"] is None
    assert gpu["dram_bandwidth_percent"] is None and gpu["sm_active_percent"] == 91
    assert gpu["state"] == "ok"


def test_the_number_of_gpus_changes(start: Callable[[list[str]], Child]) -> None:
    child = start(h100s(3))
    child.read()
    child.box.script([*h100s(3), "count 2"])
    child.read(10)
    reading = child.read()
    assert [(gpu["index"], gpu["state"]) for gpu in reading["gpus"]] == [(0, "ok"), (1, "ok"), (2, "lost")]
    assert reading["gpus"][2]["uuid"].endswith("2")
    child.box.script([*h100s(4), "count 4"])
    child.read(10)
    assert states(child.read()) == ["ok"] * 4


def test_the_driver_goes_and_comes_back(start: Callable[[list[str]], Child]) -> None:
    child = start(h100s(2))
    child.read()
    child.box.script([*h100s(2), "fault * * 9", "fault - * 9"])
    child.say("advance 1")
    failure = child.say("read")["failure"]
    assert failure["kind"] == "absent" and "not loaded" in failure["message"]
    child.say("advance 1")
    assert child.say("read")["failure"]["kind"] == "absent"
    child.box.script(h100s(2))
    assert states(child.read()) == ["ok", "ok"]


@pytest.mark.parametrize(
    ("lines", "kind", "words"),
    [
        (["fault - nvmlInitWithFlags 9"], "absent", "driver is not loaded"),
        (["fault - nvmlInitWithFlags 18"], "absent", "the loaded kernel module"),
        (["fault - nvmlInitWithFlags 999"], "broken", "NVML does not start"),
        (["count 0"], "absent", "sees no GPU"),
    ],
)
def test_no_session(start: Callable[[list[str]], Child], lines: list[str], kind: str, words: str) -> None:
    child = start([*h100s(2), *lines])
    failure = child.say("read")["failure"]
    assert failure["kind"] == kind and words in failure["message"] and failure["hint"]
    child.box.script(h100s(2))
    assert states(child.read()) == ["ok", "ok"]


def test_no_library(start: Callable[[list[str]], Child], tmp_path: Path) -> None:
    child = start(h100s(1))
    (child.box.directory / "libnvidia-ml.so.1").unlink()
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a driver of its own")
    failure = child.say("read")["failure"]
    assert failure["kind"] == "absent" and failure["hint"]
    build(child.box.directory)
    assert states(child.read()) == ["ok"], "installed while we run"


def test_an_older_driver(tmp_path: Path) -> None:
    """R470: no second memory form, old names of temperature, reasons and process lists, no GPM, no event set."""
    missing = ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons"]
    missing += [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlEventSetCreate",
    ]
    missing += ["nvmlGpmQueryDeviceSupport", "nvmlDeviceGetGpuMaxPcieLinkGeneration", "nvmlDeviceGetBusType"]
    box = FakeNvml(tmp_path, without=missing)
    box.script([*h100s(1), "process 0 1 1073741824", "process 0 999999 -1"])
    child = Child(box)
    try:
        child.read()
        gpu = child.read()["gpus"][0]
        assert gpu["state"] == "ok" and gpu["temperature_c"] == 61 and gpu["event_reasons"] == 4
        assert gpu["memory_used_bytes"] == 60 * 2**30 + 480 * 2**20 and gpu["memory_reserved_bytes"] is None
        assert [(one["pid"], one["memory_bytes"]) for one in gpu["processes"]] == [(1, 2**30), (999999, None)]
        assert gpu["reasons"]["dram_bandwidth_percent"] == "not in this driver"
        assert gpu["reasons"]["pcie_gen_device_max"] == "not in this driver"
    finally:
        child.process.kill()
        child.process.communicate()
        child.close()


def test_an_xid_is_heard(start: Callable[[list[str]], Child]) -> None:
    child = start(h100s(2))
    child.read()
    child.box.script([*h100s(2), "xid 1 63"])
    assert [one["code"] for one in child.read()["gpus"][1]["xids"]] == [63]


def test_mig(start: Callable[[list[str]], Child]) -> None:
    """Two instances with a gap between; what the driver does not measure while MIG is on is unknown, never 0."""
    mig = ["gpu 0 mig 1", "gpu 0 mig_places 7", "fault 0 nvmlDeviceGetUtilizationRates 3"]
    for index, number in ((15, 9), (13, 11)):
        mig += [f"text {index} uuid MIG-{number}", f"text {index} name NVIDIA H100 80GB HBM3 MIG 1g.10gb"]
        mig += [f"gpu {index} gpu_instance {number}", f"gpu {index} mem_total {10 * 2**30}"]
        mig += [f"gpu {index} mem_used {3 * 2**30}", f"gpu {index} mem_reserved 0"]
    child = start([*h100s(2), *mig, "fault 13 nvmlDeviceGetMemoryInfo_v2 4"])
    child.read()
    gpu, plain = child.read()["gpus"]
    assert (gpu["state"], gpu["mig_enabled"], gpu["utilization_percent"]) == ("ok", True, None)
    assert gpu["reasons"]["utilization_percent"] == "not measured while MIG is on"
    assert gpu["memory_used_bytes"] == 60 * 2**30, "the whole card's"
    first, second = gpu["mig_instances"]
    assert (first["uuid"], first["gpu_instance"], first["memory_used_bytes"]) == ("MIG-9", 9, 3 * 2**30)
    assert (second["uuid"], second["gpu_instance"], second["memory_total_bytes"]) == ("MIG-11", 11, None)
    assert (plain["mig_instances"], plain["reasons"]["mig_instances"]) == (None, "MIG is off")
    assert plain["utilization_percent"] == 98


def test_mig_is_made_while_we_run(start: Callable[[list[str]], Child]) -> None:
    """Turning it on resets the GPU."""
    child = start(h100s(1))
    child.read()
    child.box.script([*h100s(1), "fault 0 * 15"])
    assert states(child.read()) == ["lost"]
    child.box.script([*h100s(1), "gpu 0 mig 1", "gpu 0 mig_places 7", "text 15 uuid MIG-9"])
    gpu = child.read(20)["gpus"][0]
    assert (gpu["state"], [one["uuid"] for one in gpu["mig_instances"]]) == ("ok", ["MIG-9"])


def test_a_vgpu_guest(start: Callable[[list[str]], Child]) -> None:
    """The host keeps power, clocks' limits and counters to itself."""
    hidden = ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetTemperatureV"]
    hidden += ["nvmlDeviceGetTemperature", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFanSpeed"]
    guest = ["gpu 0 virtualization 2", "text 0 name NVIDIA L40S-24Q", "gpu 0 gpm_supported 0"]
    child = start([*h100s(1), *guest, *(f"fault 0 {name} 3" for name in hidden)])
    child.read()
    gpu = child.read()["gpus"][0]
    assert (gpu["state"], gpu["virtualization"], gpu["utilization_percent"]) == ("ok", "vgpu", 98)
    for field in ("power_w", "power_limit_w", "temperature_c", "energy_j"):
        assert (gpu[field], gpu["reasons"][field]) == (None, "not available in a vGPU guest"), field
    asked = child.box.calls()["nvmlDeviceGetPowerUsage"]
    child.read()
    assert child.box.calls()["nvmlDeviceGetPowerUsage"] == asked, "asked once and remembered"


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("NVIDIA GB10", ["fault 0 nvmlDeviceGetMemoryInfo_v2 3", "fault 0 nvmlDeviceGetMemoryInfo 3"]),
        ("Orin (nvgpu)", ["gpu 0 mem_total 0", "gpu 0 mem_used 0", "gpu 0 mem_reserved 0"]),
    ],
)
def test_unified_memory(start: Callable[[list[str]], Child], name: str, memory: list[str]) -> None:
    """The host's memory, and what the chip's processes hold; of its made-up PCIe link (gen 1, x1) nothing is shown."""
    placeholder = ["gpu 0 bus_type 4", "gpu 0 pcie_gen 1", "gpu 0 pcie_width 1"]
    held = [f"process 0 1 {3 * 2**30}", f"process 0 999999 {2**30}"]
    child = start([*h100s(1), f"text 0 name {name}", *placeholder, *memory, *held])
    child.read()
    gpu = child.read()["gpus"][0]
    host = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in Path("/proc/meminfo").read_text().splitlines()}
    assert (gpu["state"], gpu["memory_is_unified"], gpu["memory_total_bytes"]) == ("ok", True, host["MemTotal"])
    assert gpu["memory_used_bytes"] == 4 * 2**30, "not all that the host has in use"
    assert gpu["reasons"]["memory_reserved_bytes"] == "unified with the host's memory"
    assert (gpu["pcie_gen"], gpu["pcie_width"]) == (None, None) and "not on PCIe" in gpu["reasons"]["pcie_gen"]


def test_a_card_that_hides_its_memory_is_not_unified(start: Callable[[list[str]], Child]) -> None:
    child = start([*h100s(1), "fault 0 nvmlDeviceGetMemoryInfo_v2 3", "fault 0 nvmlDeviceGetMemoryInfo 3"])
    gpu = child.read()["gpus"][0]
    assert (gpu["memory_is_unified"], gpu["memory_total_bytes"]) == (False, None)
