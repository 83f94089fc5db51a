"""GPU performance metrics (Hopper and later): what really moved between two samples, unlike the time shares of NVML.

A separate subsystem from the profiler's counters (NVIDIA, DCGM issue 62), so torch.profiler may run meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from decodetop.core.clock import SECOND_NS
from decodetop.gpu.asks import Unknown, believed
from decodetop.gpu.codes import GONE, NEVER, SESSION, NvmlError
from decodetop.gpu.library import Handle, Library

_INTERVAL_MIN_NS = SECOND_NS // 10
_MIB = float(2**20)


class _Metric(NamedTuple):
    field: str
    is_share: bool


# nvmlGpmMetricId_t; shares are percent, traffic is MiB/s
_METRICS = {
    2: _Metric("sm_active_percent", True),
    3: _Metric("sm_occupancy_percent", True),
    5: _Metric("tensor_active_percent", True),
    10: _Metric("dram_bandwidth_percent", True),
    20: _Metric("pcie_tx_bytes_s", False),
    21: _Metric("pcie_rx_bytes_s", False),
    60: _Metric("nvlink_rx_bytes_s", False),
    61: _Metric("nvlink_tx_bytes_s", False),
}
FIELDS = tuple(metric.field for metric in _METRICS.values())

_NEEDS_TWO = Unknown("first reading: needs two")
_NO_GPM = Unknown("needs GPM: Hopper or later")


class Gpm:
    """The two samples of one GPU, swapped each tick. Void after the session's shutdown; `close` frees them before it.

    `first` is shared by all GPUs: concurrent first samples crash the library, so only one thread takes one at a time.
    """

    def __init__(self, nvml: Library, gpu: Handle, first: threading.Lock, begin: Callable[[], None]) -> None:
        """`begin` is told of each call."""
        self._library = nvml
        self._told = begin
        self._gpu = gpu
        self._first = first
        self._samples: list[Handle] = []
        self._before_ns: int | None = None
        self._refused: Unknown | NvmlError | None = None

    def read(self, now_ns: int) -> dict[str, object]:
        """A value, an Unknown or an NvmlError for each of FIELDS; nothing when asked again too soon."""
        if self._refused is not None:
            return dict.fromkeys(FIELDS, self._refused)
        try:
            if not self._samples or self._before_ns is None:
                return dict.fromkeys(FIELDS, self._begin(now_ns))
            if now_ns - self._before_ns < _INTERVAL_MIN_NS:
                return {}
            return self._measure(now_ns)
        except NvmlError as error:
            if error.code in SESSION or error.code in GONE:
                raise
            if error.code in NEVER:
                self._refused = error
            self._before_ns = None
            return dict.fromkeys(FIELDS, error)

    @property
    def refused(self) -> bool:
        """This GPU has no GPM."""
        return self._refused is not None

    @property
    def _nvml(self) -> Library:
        """For one call."""
        self._told()
        return self._library

    def close(self) -> None:
        """Free the samples while the session still lives."""
        samples, self._samples = self._samples, []
        for sample in samples:
            self._nvml.gpm_free(sample)

    def _begin(self, now_ns: int) -> Unknown:
        if not self._samples:
            if not self._nvml.gpm_supported(self._gpu):
                self._refused = _NO_GPM
                return _NO_GPM
            self._samples = [self._nvml.gpm_sample(), self._nvml.gpm_sample()]
        if not self._first.acquire(blocking=False):
            return Unknown("waits for another GPU's first sample")
        try:
            self._nvml.gpm_take(self._gpu, self._samples[0])
        finally:
            self._first.release()
        self._before_ns = now_ns
        return _NEEDS_TWO

    def _measure(self, now_ns: int) -> dict[str, object]:
        before, after = self._samples
        self._nvml.gpm_take(self._gpu, after)
        seen = self._nvml.gpm_metrics(before, after, tuple(_METRICS))
        self._samples = [after, before]
        self._before_ns = now_ns
        return {metric.field: _value(metric, seen.get(number)) for number, metric in _METRICS.items()}


def _value(metric: _Metric, seen: float | None) -> object:
    if seen is None:
        return Unknown("this GPU has no such metric")
    value = believed(seen, 0, 101 if metric.is_share else 1e8)
    if isinstance(value, Unknown):
        return value
    return min(value, 100.0) if metric.is_share else value * _MIB
