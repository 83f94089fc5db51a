"""What two real H200 answered, said again by the fake driver: the figures must come out as the driver meant them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.gpu.reading import GpuReading
from decodetop.gpu.text import dram_gb_s, dram_peak_gb_s, lines, pcie
from decodetop.gpu.text import limits_text as limits
from support.fake_nvml import FakeNvml, build, compiler

ROOT = Path(__file__).parents[2]
RECORDING = json.loads((ROOT / "tests/captures/nvml_h200_x2.json").read_text())

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C compiler")

# script key -> recorded call
CALLS = {
    "sm_clock": "nvmlDeviceGetClockInfo(1)",
    "mem_clock": "nvmlDeviceGetClockInfo(2)",
    "sm_clock_max": "nvmlDeviceGetMaxClockInfo(1)",
    "mem_clock_max": "nvmlDeviceGetMaxClockInfo(2)",
    "reasons": "nvmlDeviceGetCurrentClocksEventReasons()",
    "pstate": "nvmlDeviceGetPerformanceState()",
    "power": "nvmlDeviceGetPowerUsage()",
    "power_limit": "nvmlDeviceGetEnforcedPowerLimit()",
    "power_default": "nvmlDeviceGetPowerManagementDefaultLimit()",
    "energy": "nvmlDeviceGetTotalEnergyConsumption()",
    "temperature": "nvmlDeviceGetTemperature(0)",
    "slowdown": "nvmlDeviceGetTemperatureThreshold(1)",
    "fan": "nvmlDeviceGetFanSpeed()",
    "pcie_gen": "nvmlDeviceGetCurrPcieLinkGeneration()",
    "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth()",
    "pcie_gen_max": "nvmlDeviceGetMaxPcieLinkGeneration()",
    "pcie_width_max": "nvmlDeviceGetMaxPcieLinkWidth()",
    "pcie_gen_device": "nvmlDeviceGetGpuMaxPcieLinkGeneration()",
    "persistence": "nvmlDeviceGetPersistenceMode()",
    "bus_type": "nvmlDeviceGetBusType()",
    "architecture": "nvmlDeviceGetArchitecture()",
    "virtualization": "nvmlDeviceGetVirtualizationMode()",
    "bus_width": "nvmlDeviceGetMemoryBusWidth()",
}


def script(moment: str) -> list[str]:
    """The recording as lines for the fake driver; GPU 0 as it was in `moment`, GPU 1 idle."""
    system = RECORDING["system"]
    out = [f"driver {system['nvmlSystemGetDriverVersion']['ok']}", f"nvml {system['nvmlSystemGetNVMLVersion']['ok']}"]
    out += [f"cuda {system['nvmlSystemGetCudaDriverVersion_v2']['ok']}", "count 2", "nvlink 1"]
    for device in RECORDING["devices"]:
        out += recorded(device, RECORDING["gpm_idle"][device["index"]])
    if moment != "idle":
        snap = RECORDING["busy"][moment]["snap"]
        values = {"sm_clock": snap["clk"][1], "power": snap["power"], "reasons": snap["reasons"]}
        values |= {"util": snap["util"]["gpu"], "mem_util": snap["util"]["memory"], "energy": snap["energy"]}
        out += [f"gpu 0 {key} {value}" for key, value in values.items()]
        out += metrics(0, RECORDING["busy"][moment]["gpm"])
    return out


def recorded(device: Any, gpm: Any) -> list[str]:
    gpu, calls = device["index"], device["calls"]
    out = [f"gpu {gpu} {key} {calls[name]['ok']}" for key, name in CALLS.items() if "ok" in calls[name]]
    memory = calls["nvmlDeviceGetMemoryInfo(33554472)"]["ok"]
    out += [f"gpu {gpu} mem_{key} {memory[key]}" for key in ("total", "used", "reserved")]
    rates = calls["nvmlDeviceGetUtilizationRates()"]["ok"]
    out += [f"gpu {gpu} util {rates['gpu']}", f"gpu {gpu} mem_util {rates['memory']}"]
    out += [f"gpu {gpu} mig {calls['nvmlDeviceGetMigMode()']['ok'][0]}", f"gpu {gpu} gpm_supported 1"]
    out += [
        f"text {gpu} name {calls['nvmlDeviceGetName()']['ok']}",
        f"text {gpu} uuid {calls['nvmlDeviceGetUUID()']['ok']}",
    ]
    out += [f"text {gpu} bus {calls['nvmlDeviceGetPciInfo()']['ok']['busId']}"]
    out += [f"field {gpu} {number} {value}" for number, value in device["fields"].items()]
    return out + metrics(gpu, gpm)


def metrics(gpu: int, gpm: Any) -> list[str]:
    return [f"gpm {gpu} {number} {one['value']}" for number, one in gpm.items() if one["name"]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GpuReading]:
    library = build(tmp_path_factory.mktemp("nvml"))
    known: dict[str, GpuReading] = {}

    def read(moment: str) -> GpuReading:
        if moment not in known:
            box = FakeNvml(tmp_path_factory.mktemp(moment), library)
            box.script(script(moment))
            environ = {**box.environment(), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
            command = [sys.executable, "-m", "support.fake_nvml_child"]
            told = subprocess.run(
                command, input="read\nadvance 1\nread\nclose\n", env=environ, text=True, capture_output=True, check=True
            )
            answer = json.loads(told.stdout.splitlines()[2])
            known[moment] = msgspec.convert(answer["reading"], GpuReading)
        return known[moment]

    return read


def test_identity_and_limits_of_the_machine(seen: Callable[[str], GpuReading]) -> None:
    reading = seen("idle")
    assert (reading.driver_version, reading.nvml_version, reading.cuda_version) == (
        "580.159.04",
        "13.580.159.04",
        "13.0",
    )
    gpu = reading.gpus[0]
    assert (gpu.name, gpu.uuid) == ("NVIDIA H200", "GPU-8a14e371-03df-d16d-fd8a-fb2a5f180c53")
    assert (gpu.pci_bus_id, gpu.virtualization, gpu.architecture) == ("00000000:00:06.0", "passthrough", "Hopper")
    assert (gpu.sm_clock_max_mhz, gpu.mem_clock_max_mhz, gpu.memory_bus_bits) == (1980, 3201, 6016)
    assert dram_peak_gb_s(gpu) == pytest.approx(4814.3, abs=0.05)
    assert (gpu.power_limit_w, gpu.temperature_slowdown_c) == (700.0, 89.0)
    assert gpu.nvlink_links == gpu.nvlink_links_active == 18
    assert gpu.reasons["fan_percent"] == "not supported by this GPU"


def test_an_idle_h200_is_idle_and_whole(seen: Callable[[str], GpuReading]) -> None:
    gpu = seen("idle").gpus[0]
    assert gpu.memory_used_bytes == 0, "the first form of the call would say 644,939,776"
    assert gpu.memory_reserved_bytes == 644939776 and gpu.memory_free_bytes == 150109880320
    assert (gpu.sm_clock_mhz, gpu.power_w, gpu.temperature_c, gpu.memory_temperature_c) == (345, 79.549, 36.0, 38.0)
    assert (gpu.utilization_percent, gpu.dram_bandwidth_percent, gpu.ecc_uncorrected) == (0.0, 0.0, 0)
    assert (pcie(gpu), limits(gpu), gpu.pcie_replays) == ("gen5 x16", "idle", 1)
    assert gpu.processes == () and gpu.recovery_action is None and "recovery_action" not in gpu.reasons


def test_time_limits_are_ns_since_the_driver_loaded(seen: Callable[[str], GpuReading]) -> None:
    """Fields 78 (idle) and 80 (base clocks) add up to the driver's uptime in ns, which the energy confirms."""
    fields = RECORDING["devices"][0]["fields"]
    uptime_s = (fields["78"] + fields["80"]) / 1e9
    assert uptime_s == pytest.approx(30, abs=0.1)
    assert seen("idle").gpus[0].energy_j == pytest.approx(uptime_s * 79.5, rel=0.1)
    limited = seen("idle").gpus[0].time_limited_ns
    assert limited is not None and set(limited.values()) == {0} and "HW thermal" in limited


def test_a_copy_kernel_is_bandwidth(seen: Callable[[str], GpuReading]) -> None:
    gpu = seen("copy").gpus[0]
    moved_gb_s = RECORDING["busy"]["copy"]["bytes_per_s"] / 1e9
    assert dram_gb_s(gpu) == pytest.approx(moved_gb_s, rel=0.002)
    assert gpu.memory_busy_percent == 100.0, "the share of time, which is not 88.8"
    assert limits(gpu) == "none"


def test_a_copy_from_the_host_is_not_a_busy_gpu(seen: Callable[[str], GpuReading]) -> None:
    gpu = seen("h2d").gpus[0]
    payload = RECORDING["busy"]["h2d"]["bytes_per_s"]
    assert gpu.utilization_percent == 100.0 and gpu.sm_active_percent == 0.0
    assert gpu.pcie_rx_bytes_s == pytest.approx(1.07 * payload, rel=0.002), "payload and packet headers"
    assert dram_gb_s(gpu) == pytest.approx(payload / 1e9, rel=0.002)


def test_a_matmul_meets_the_power_cap(seen: Callable[[str], GpuReading]) -> None:
    gpu = seen("matmul").gpus[0]
    assert limits(gpu) == "power cap" and gpu.sm_clock_mhz == 1515
    assert gpu.tensor_active_percent == pytest.approx(93.512) and gpu.power_w == pytest.approx(689.917)


@pytest.mark.parametrize("moment", ["idle", "copy", "h2d", "matmul"])
def test_the_words_fit_a_narrow_terminal(seen: Callable[[str], GpuReading], moment: str) -> None:
    said = lines(seen(moment))
    assert max(map(len, said)) <= 80
    assert "H200" in "\n".join(said) and "gen5 x16" in "\n".join(said)
