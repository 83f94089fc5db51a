"""The thin layer over nvidia-ml-py: plain values out, one error type, calls counted. Blocks; run it on a thread."""

from __future__ import annotations

import ctypes
import importlib
import math
import threading
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from decodetop.errors import ProbeError
from decodetop.gpu.codes import FUNCTION_NOT_FOUND, NOT_SUPPORTED, NOT_YET, OTHER_FORM, TIMEOUT, UNKNOWN, NvmlError
from decodetop.gpu.library import Clock, Handle, Memory

_CLOCKS: dict[Clock, int] = {"sm": 1, "mem": 2}
_NVLINK_CAPABILITY = 2
_MEMORY_FORMS = OTHER_FORM | {UNKNOWN}
_OTHER_CALL = OTHER_FORM | {NOT_SUPPORTED, 2}
_XID = 0x8


def load() -> ModuleType:
    """The module `pynvml` if it is nvidia-ml-py; other distributions install their own under that name.

    Raises ProbeError. Warnings of its import are dropped: they would land on the screen.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = importlib.import_module("pynvml")
        except ImportError as error:
            raise ProbeError("broken", f"can't import pynvml: {error}", "pip install nvidia-ml-py") from error
    wanted = ("_nvmlGetFunctionPointer", "nvmlMemory_v2", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlGpmSampleGet")
    if not all(hasattr(module, name) for name in wanted):
        raise ProbeError(
            "broken",
            f"the module pynvml in {module.__file__} is not (a recent) nvidia-ml-py",
            "pip uninstall pynvml nvidia-ml-py3, then pip install --force-reinstall nvidia-ml-py",
        )
    return module


class _Watch(NamedTuple):
    """An event set, and which handle stands at which place of the list it was made for."""

    events: Any
    places: dict[int | None, int]


class Nvml:
    """`Library` over nvidia-ml-py. May be called from several threads."""

    def __init__(self, module: ModuleType | None = None) -> None:
        self._module: Any = load() if module is None else module
        self._absent: set[str] = set()
        self._lock = threading.Lock()
        self._calls = 0

    @property
    def calls(self) -> int:
        return self._calls

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

    def persistence(self, gpu: Handle) -> bool:
        return bool(self._ask("nvmlDeviceGetPersistenceMode", gpu))

    def mig(self, gpu: Handle) -> bool:
        return bool(self._ask("nvmlDeviceGetMigMode", gpu)[0])

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
        for at, metric in enumerate(asked):
            request.metrics[at].metricId = metric
        self._ask("nvmlGpmMetricsGet", request)
        seen = (request.metrics[at] for at in range(len(asked)))
        return {
            int(one.metricId): float(one.value)
            for one in seen
            if one.nvmlReturn == 0 and one.metricInfo.shortName and math.isfinite(one.value)
        }

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

    def _ask_either(self, new: tuple[Any, ...], old: tuple[Any, ...]) -> Any:
        """The newer call, or the older where the driver has no such call or answers only the older form."""
        if new[0] in self._absent:
            return self._ask(*old)
        try:
            return self._ask(*new)
        except NvmlError as error:
            if error.code not in _OTHER_CALL:
                raise
        answer = self._ask(*old)
        self._absent.add(new[0])
        return answer

    def _ask(self, name: str, *arguments: Any) -> Any:
        """One call. pynvml's errors can be neither hashed nor compared, so only their number goes on.

        A symbol the driver lacks raises FunctionNotFound or, for the unversioned process lists, an unrelated class.
        """
        function = getattr(self._module, name, None)
        if function is None:
            raise NvmlError(FUNCTION_NOT_FOUND, name)
        with self._lock:
            self._calls += 1
        try:
            return function(*arguments)
        except self._module.NVMLError as error:
            code = int(error.value) or UNKNOWN
        except self._module.NVMLLibraryMismatchError:
            code = FUNCTION_NOT_FOUND
        except UnicodeDecodeError:
            code = UNKNOWN
        raise NvmlError(code, name)


def _address(handle: Handle) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
