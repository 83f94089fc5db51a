"""The thin layer over nvidia-ml-py: plain values out, one error type, calls counted. Blocks; run it on a thread."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from decodetop.gpu.calls import Calls
from decodetop.gpu.codes import (
    GONE,
    NOT_SUPPORTED,
    NOT_YET,
    OTHER_FORM,
    SESSION,
    TIMEOUT,
    UNKNOWN,
    NvmlError,
)
from decodetop.gpu.library import Clock, Handle, Memory, MigSeen

_CLOCKS: dict[Clock, int] = {"sm": 1, "mem": 2}
_NVLINK_CAPABILITY = 2
_MEMORY_FORMS = OTHER_FORM | {UNKNOWN}
_XID = 0x8
_MIG_PLACES = 64
"""Of a GPU at most, 7 on those of today: a count that was only filled would keep us busy for an hour."""
_raw = object.__getattribute__
"""nvidia-ml-py's structures turn each field they are asked for into text where it can be: dear for numbers."""


class _Watch(NamedTuple):
    """An event set, and which handle stands at which place of the list it was made for."""

    events: Any
    places: dict[int | None, int]


class Nvml(Calls):
    """`Library` over nvidia-ml-py. May be called from several threads."""

    def init(self) -> None:
        self._ask("nvmlInit")

    def shutdown(self) -> None:
        self._ask("nvmlShutdown")

    def driver_version(self) -> str:
        return str(self._ask("nvmlSystemGetDriverVersion"))

    def nvml_version(self) -> str:
        return str(self._ask("nvmlSystemGetNVMLVersion"))

    def cuda_version(self) -> int:
        return int(self._ask("nvmlSystemGetCudaDriverVersion_v2"))

    def count(self) -> int:
        return int(self._ask("nvmlDeviceGetCount"))

    def handle(self, index: int) -> Handle:
        return self._ask("nvmlDeviceGetHandleByIndex", index)

    def name(self, gpu: Handle) -> str:
        return str(self._ask("nvmlDeviceGetName", gpu))

    def uuid(self, gpu: Handle) -> str:
        return str(self._ask("nvmlDeviceGetUUID", gpu))

    def pci_bus_id(self, gpu: Handle) -> str:
        bus_id = self._ask("nvmlDeviceGetPciInfo_v3", gpu).busId
        return bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else str(bus_id)

    def bus_type(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetBusType", gpu))

    def architecture(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetArchitecture", gpu))

    def virtualization(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetVirtualizationMode", gpu))

    def memory_bus_bits(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetMemoryBusWidth", gpu))

    def clock(self, gpu: Handle, which: Clock) -> int:
        return int(self._ask("nvmlDeviceGetClockInfo", gpu, _CLOCKS[which]))

    def max_clock(self, gpu: Handle, which: Clock) -> int:
        return int(self._ask("nvmlDeviceGetMaxClockInfo", gpu, _CLOCKS[which]))

    def application_clock(self, gpu: Handle, which: Clock) -> int:
        """What was set with `nvidia-smi -ac`, else the default. Newer drivers answer that they no longer have it."""
        return int(self._ask("nvmlDeviceGetApplicationsClock", gpu, _CLOCKS[which]))

    def event_reasons(self, gpu: Handle) -> int:
        """The older name is gone from newer drivers and the newer from older ones."""
        new, old = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        return int(self._ask_either((new, gpu), (old, gpu)))

    def performance_state(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetPerformanceState", gpu))

    def utilization(self, gpu: Handle) -> tuple[int, int]:
        """Percent of time that a kernel ran, and that memory was read or written."""
        rates = self._ask("nvmlDeviceGetUtilizationRates", gpu)
        return int(rates.gpu), int(rates.memory)

    def memory(self, gpu: Handle) -> Memory:
        """The v2 struct, whose version is its size with the number: a plain 2 is refused. WSL answers it with 999."""
        try:
            seen = self._ask("nvmlDeviceGetMemoryInfo", gpu, self._module.nvmlMemory_v2)
            return Memory(int(seen.total), int(seen.used), int(seen.free), int(seen.reserved))
        except NvmlError as error:
            if error.code not in _MEMORY_FORMS:
                raise
        seen = self._ask("nvmlDeviceGetMemoryInfo", gpu)
        return Memory(int(seen.total), int(seen.used), int(seen.free), None)

    def power_mw(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetPowerUsage", gpu))

    def power_limit_mw(self, gpu: Handle) -> int:
        """Enforced limit: 1 us a call, where nvmlDeviceGetPowerManagementLimit takes 150."""
        return int(self._ask("nvmlDeviceGetEnforcedPowerLimit", gpu))

    def power_limit_default_mw(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetPowerManagementDefaultLimit", gpu))

    def energy_mj(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetTotalEnergyConsumption", gpu))

    def temperature(self, gpu: Handle) -> int:
        new, old = "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"
        return int(self._ask_either((new, gpu, 0), (old, gpu, 0)))

    def temperature_threshold(self, gpu: Handle, which: int) -> int:
        return int(self._ask("nvmlDeviceGetTemperatureThreshold", gpu, which))

    def temperature_left(self, gpu: Handle) -> int:
        """Degrees to the nearest slowdown (T.Limit): on an H200 that of the software, at 87, not 89. Ada and later."""
        return int(self._ask("nvmlDeviceGetMarginTemperature", gpu))

    def fan(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetFanSpeed", gpu))

    def pcie_gen(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetCurrPcieLinkGeneration", gpu))

    def pcie_width(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetCurrPcieLinkWidth", gpu))

    def pcie_gen_max(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetMaxPcieLinkGeneration", gpu))

    def pcie_width_max(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetMaxPcieLinkWidth", gpu))

    def pcie_gen_device_max(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetGpuMaxPcieLinkGeneration", gpu))

    def pcie_kb_s(self, gpu: Handle, counter: int) -> int:
        """0 sent by the GPU, 1 received; watches the link for 20 ms."""
        return int(self._ask("nvmlDeviceGetPcieThroughput", gpu, counter))

    def persistence(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetPersistenceMode", gpu))

    def compute_mode(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetComputeMode", gpu))

    def mig(self, gpu: Handle) -> int:
        return int(self._ask("nvmlDeviceGetMigMode", gpu)[0])

    def mig_instances(self, gpu: Handle) -> list[MigSeen]:
        """The instances that exist; their places may have gaps."""
        found = []
        for place in range(min(int(self._ask("nvmlDeviceGetMaxMigDeviceCount", gpu)), _MIG_PLACES)):
            try:
                one = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu, place)
                uuid = self.uuid(one)
            except NvmlError as error:
                if error.code in GONE or error.code in SESSION:
                    raise
                continue
            number = self._unless_refused(self._gpu_instance, one)
            found.append(
                MigSeen(uuid, number, self._unless_refused(self.name, one), self._unless_refused(self.memory, one))
            )
        return found

    def _gpu_instance(self, instance: Handle) -> int:
        return int(self._ask("nvmlDeviceGetGpuInstanceId", instance))

    def ecc(self, gpu: Handle, uncorrected: bool) -> int:
        """Errors since the driver was loaded."""
        return int(self._ask("nvmlDeviceGetTotalEccErrors", gpu, int(uncorrected), 0))

    def fields(self, gpu: Handle, asked: Sequence[tuple[int, int]]) -> list[float | NvmlError]:
        """One call for many (field id, scope); each answers for itself."""
        seen = self._ask("nvmlDeviceGetFieldValues", gpu, list(asked))
        return [self._field(value) for value in seen]

    def processes(self, gpu: Handle) -> list[tuple[int, int | None]]:
        """(pid, bytes or None) of everything that holds this GPU; pids are the host's."""
        found: dict[int, int | None] = {}
        for kind in ("Compute", "Graphics"):
            name = f"nvmlDeviceGet{kind}RunningProcesses"
            for one in self._ask_either((f"{name}_v3", gpu), (f"{name}_v2", gpu)):
                found.setdefault(int(one.pid), None if one.usedGpuMemory is None else int(one.usedGpuMemory))
        return list(found.items())

    def topology(self, one: Handle, other: Handle) -> int:
        return int(self._ask("nvmlDeviceGetTopologyCommonAncestor", one, other))

    def nvlink_between(self, one: Handle, other: Handle) -> bool:
        return int(self._ask("nvmlDeviceGetP2PStatus", one, other, _NVLINK_CAPABILITY)) == 0

    def gpm_supported(self, gpu: Handle) -> bool:
        return bool(self._ask("nvmlGpmQueryDeviceSupport", gpu).isSupportedDevice)

    def gpm_sample(self) -> Handle:
        return self._ask("nvmlGpmSampleAlloc")

    def gpm_free(self, sample: Handle) -> None:
        self._ask("nvmlGpmSampleFree", sample)

    def gpm_take(self, gpu: Handle, sample: Handle) -> None:
        self._ask("nvmlGpmSampleGet", gpu, sample)

    def gpm_metrics(self, before: Handle, after: Handle, asked: Sequence[int]) -> dict[int, float]:
        """The metrics that exist. Ids the driver lacks answer SUCCESS with no name and 0.0, so the name decides."""
        request = self._module.c_nvmlGpmMetricsGet_t()
        request.version = self._module.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(asked)
        request.sample1, request.sample2 = before, after
        metrics = request.metrics
        for at, metric in enumerate(asked):
            metrics[at].metricId = metric
        self._ask("nvmlGpmMetricsGet", request)
        found = {}
        for at, metric in enumerate(asked):
            one = metrics[at]
            if _raw(one, "nvmlReturn") == 0 and _raw(_raw(one, "metricInfo"), "shortName"):
                value = float(_raw(one, "value"))
                if math.isfinite(value):
                    found[int(metric)] = value
        return found

    def xid_watch(self, gpus: Sequence[Handle]) -> _Watch:
        """An event set that hears the Xids of `gpus`; those that can't be watched are left out."""
        watch = _Watch(self._ask("nvmlEventSetCreate"), {})
        for at, gpu in enumerate(gpus):
            try:
                self._ask("nvmlDeviceRegisterEvents", gpu, _XID, watch.events)
            except NvmlError:
                continue
            watch.places[_address(gpu)] = at
        if not watch.places:
            self.xid_close(watch)
            raise NvmlError(NOT_SUPPORTED, "nvmlDeviceRegisterEvents")
        return watch

    def xid_next(self, watch: _Watch) -> tuple[int, int] | None:
        """(place in `gpus`, Xid) of the next one, or None; waits 1 ms at most."""
        try:
            event = self._ask("nvmlEventSetWait_v2", watch.events, 1)
        except NvmlError as error:
            if error.code == TIMEOUT or error.code in NOT_YET:
                return None
            raise
        at = watch.places.get(_address(event.device))
        return None if at is None else (at, int(event.eventData))

    def xid_close(self, watch: _Watch) -> None:
        self._ask("nvmlEventSetFree", watch.events)

    def _field(self, value: Any) -> float | NvmlError:
        code = int(value.nvmlReturn)
        if code:
            return NvmlError(code, "nvmlDeviceGetFieldValues")
        members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        kind = int(value.valueType)
        if not 0 <= kind < len(members):
            return NvmlError(UNKNOWN, "nvmlDeviceGetFieldValues")
        seen = getattr(value.value, members[kind])
        return float(seen) if kind == 0 else int(seen)


def _address(handle: Handle) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
