"""A double of `gpu.library.Library` in Python: GPUs are plain values, faults and hangs are set by the test."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from decodetop.gpu.codes import NvmlError
from decodetop.gpu.library import Memory, MigSeen

GIB = 2**30


_SERVING = Memory(150754820096, 107308777472, 42801102848, 644939776)


@dataclass
class FakeGpu:
    """A busy H200 as recorded; `refused[method]` = the code that method answers. Values are in NVML's units."""

    uuid: str = "GPU-0"
    name: str = "NVIDIA H200"
    pci_bus_id: str = "00000000:00:06.0"
    bus_type: int = 2
    architecture: int = 9
    virtualization: int = 1
    memory_bus_bits: int = 6016
    clock_sm: int = 1755
    clock_mem: int = 3201
    max_clock_sm: int = 1980
    max_clock_mem: int = 3201
    application_clock_sm: int = 1980
    application_clock_mem: int = 3201
    event_reasons: int = 4
    performance_state: int = 0
    utilization: tuple[int, int] = (100, 79)
    memory: Memory = _SERVING
    power_mw: int = 474320
    power_limit_mw: int = 700000
    power_limit_default_mw: int = 700000
    energy_mj: int = 2503562
    temperature: int = 44
    temperature_threshold: int = 89
    temperature_left: int = 43
    fan: int = 30
    pcie_gen: int = 5
    pcie_width: int = 16
    pcie_gen_max: int = 5
    pcie_width_max: int = 16
    pcie_gen_device_max: int = 5
    pcie_kb_s: tuple[int, int] = (3516, 547)
    persistence: bool = True
    compute_mode: int = 0
    mig: bool = False
    mig_instances: list[MigSeen] = field(default_factory=list)
    fields: dict[int, float] = field(
        default_factory=lambda: {
            82: 38,
            94: 1,
            3: 0,
            4: 0,
            142: 0,
            143: 0,
            144: 0,
            145: 0,
            29: 0,
            30: 0,
            31: 0,
            230: 0,
            91: 18,
            164: 26562,
            165: 1,
            166: 6,
            74: 5_000_000,
            76: 0,
            77: 0,
            79: 0,
            269: 0,
            270: 0,
            271: 0,
        }
    )
    processes: list[tuple[int, int | None]] = field(default_factory=list)
    gpm_supported: bool = True
    gpm: dict[int, float] = field(
        default_factory=lambda: {2: 96.3, 3: 14.2, 5: 93.5, 10: 61.75, 20: 3369.4, 21: 56433.4, 60: 256.0, 61: 256.2}
    )
    refused: dict[str, int] = field(default_factory=dict)

    def but(self, **changes: Any) -> FakeGpu:
        return replace(self, **changes)


class FakeLibrary:
    """`gpus` may be changed between reads. A handle of an earlier session fails the test at once."""

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.init_code = 0
        self.sessions = 0
        self.open = False
        self.asked: Counter[tuple[str, int | None]] = Counter()
        self.xids: list[tuple[int, int]] = []
        self.xid_code = 0
        self.samples_alive = 0
        self._hangs: dict[tuple[str, int | None], tuple[threading.Event, threading.Event]] = {}
        self._lock = threading.Lock()

    @property
    def calls(self) -> int:
        return sum(self.asked.values())

    def hang(self, method: str, index: int | None = None) -> tuple[threading.Event, threading.Event]:
        """(set once a thread hangs in it, to be set to let it go on)."""
        self._hangs[(method, index)] = events = (threading.Event(), threading.Event())
        return events

    def init(self) -> None:
        self._enter("init", None)
        if self.init_code:
            raise NvmlError(self.init_code, "nvmlInit")
        assert not self.open, "one session at a time"
        self.open = True
        self.sessions += 1

    def shutdown(self) -> None:
        self._enter("shutdown", None)
        assert self.samples_alive == 0, "samples outlive their session"
        self.open = False

    def driver_version(self) -> str:
        return "580.159.04"

    def nvml_version(self) -> str:
        return "13.580.159.04"

    def cuda_version(self) -> int:
        return 13000

    def count(self) -> int:
        self._enter("count", None)
        return len(self.gpus)

    def handle(self, index: int) -> tuple[int, int]:
        self._enter("handle", index)
        return (self.sessions, index)

    def clock(self, gpu: tuple[int, int], which: str) -> int:
        return int(self._of(gpu, f"clock_{which}"))

    def max_clock(self, gpu: tuple[int, int], which: str) -> int:
        return int(self._of(gpu, f"max_clock_{which}"))

    def application_clock(self, gpu: tuple[int, int], which: str) -> int:
        return int(self._of(gpu, f"application_clock_{which}"))

    def temperature_threshold(self, gpu: tuple[int, int], which: int) -> int:
        return int(self._of(gpu, "temperature_threshold"))

    def pcie_kb_s(self, gpu: tuple[int, int], counter: int) -> int:
        return int(self._of(gpu, "pcie_kb_s")[counter])

    def fields(self, gpu: tuple[int, int], asked: Sequence[tuple[int, int]]) -> list[float | NvmlError]:
        assert asked, "NVML refuses an empty list"
        known = self._of(gpu, "fields")
        return [known.get(number, NvmlError(3, "nvmlDeviceGetFieldValues")) for number, _ in asked]

    def topology(self, one: tuple[int, int], other: tuple[int, int]) -> int:
        self._enter("topology", one[1])
        return 50

    def nvlink_between(self, one: tuple[int, int], other: tuple[int, int]) -> bool:
        self._enter("nvlink_between", one[1])
        return False

    def gpm_sample(self) -> list[int]:
        self._enter("gpm_sample", None)
        self.samples_alive += 1
        return []

    def gpm_free(self, sample: list[int]) -> None:
        self._enter("gpm_free", None)
        self.samples_alive -= 1

    def gpm_take(self, gpu: tuple[int, int], sample: list[int]) -> None:
        self._enter("gpm_take", self._index(gpu))
        sample[:] = [gpu[1]]

    def gpm_metrics(self, before: list[int], after: list[int], asked: Sequence[int]) -> dict[int, float]:
        assert before == after and before, "both samples are of one GPU"
        self._enter("gpm_metrics", None)
        gpm = self.gpus[after[0]].gpm
        return {metric: gpm[metric] for metric in asked if metric in gpm}

    def xid_watch(self, gpus: Sequence[tuple[int, int]]) -> str:
        self._enter("xid_watch", None)
        return "watch"

    def xid_next(self, watch: str) -> tuple[int, int] | None:
        self._enter("xid_next", None)
        if self.xid_code:
            raise NvmlError(self.xid_code, "nvmlEventSetWait_v2")
        return self.xids.pop(0) if self.xids else None

    def xid_close(self, watch: str) -> None:
        self._enter("xid_close", None)

    def __getattr__(self, method: str) -> Callable[[tuple[int, int]], Any]:
        if method not in FakeGpu.__dataclass_fields__:
            raise AttributeError(method)
        return lambda gpu: self._of(gpu, method)

    def _of(self, gpu: tuple[int, int], method: str) -> Any:
        index = self._index(gpu)
        self._enter(method, index)
        return getattr(self.gpus[index], method)

    def _index(self, gpu: tuple[int, int]) -> int:
        session, index = gpu
        assert self.open and session == self.sessions, "a handle of an earlier session"
        return index

    def _enter(self, method: str, index: int | None) -> None:
        with self._lock:
            self.asked[(method, index)] += 1
        events = self._hangs.get((method, index))
        if events is not None:
            events[0].set()
            events[1].wait()
        if index is not None:
            if index >= len(self.gpus):
                raise NvmlError(2, method)
            refused = self.gpus[index].refused
            code = refused.get(method, refused.get("*", 0))
            if code:
                raise NvmlError(code, method)
