"""Small profiler traces for tests, in the layout that Kineto writes. Times in us."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320}],
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
}
ZERO_US = 5_166_514_835_000.0
"""Where the recordings' times are: 2**42 us, where a float64 is just good for a ns."""
PID, THREAD = 3080, 3080


class Trace:
    """Events in the order they are added; `zero_us` is added to every time."""

    def __init__(self, zero_us: float = ZERO_US, pid: int | str = PID, device: int | str = 0) -> None:
        self.events: list[dict[str, Any]] = []
        self.zero_us, self.pid, self.device = zero_us, pid, device
        self.header: dict[str, Any] = dict(HEADER)
        self.footer: dict[str, Any] = {"traceName": "/tmp/tmp0.json"}
        self._correlation = 0

    def add(self, category: str, name: str, start: float, duration: float, tid: int | str, **args: Any) -> None:
        pid = self.device if category in ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation") else self.pid
        ts = round(self.zero_us + start, 3)
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": round(duration, 3)}
        self.events.append({**event, "args": args} if args else event)

    def label(self, name: str, start: float, duration: float) -> None:
        self.add("user_annotation", name, start, duration, THREAD)

    def call(self, name: str, start: float, duration: float, correlation: int, tid: int = THREAD) -> None:
        category = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
        self.add(category, name, start, duration, tid, cbid=211, correlation=correlation)

    def gpu(
        self, name: str, start: float, duration: float, correlation: int, stream: int = 7, category: str = "kernel"
    ) -> None:
        self.add(category, name, start, duration, stream, queued=0, device=0, stream=stream, correlation=correlation)

    def launch(
        self,
        called: float,
        kernels: Sequence[tuple[str, float, float]],
        *,
        call_us: float = 5.0,
        stream: int = 7,
        api: str = "cuda",
    ) -> None:
        """One call and the kernels (name, start, duration) it starts; several make it a graph."""
        self._correlation += 1
        name = f"{api}GraphLaunch" if len(kernels) > 1 else f"{api}LaunchKernel"
        self.call(name, called, call_us, self._correlation)
        for kernel, start, duration in kernels:
            self.gpu(kernel, start, duration, self._correlation, stream)

    def value(self) -> dict[str, Any]:
        return {**self.header, "traceEvents": self.events, **self.footer}

    def text(self) -> str:
        """One event a few lines, as the profiler writes them."""
        events = ",\n  ".join(_event(event) for event in self.events)
        head = json.dumps(self.header)[:-1]
        tail = json.dumps(self.footer)[1:]
        return f'\n  {head},\n  "traceEvents": [\n  {events}\n  ],\n  {tail}'

    def write(self, path: Path) -> Path:
        data = self.text().encode()
        path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
        return path


def _event(event: dict[str, Any]) -> str:
    fields = {key: f"{value:.3f}" if key in ("ts", "dur") else json.dumps(value) for key, value in event.items()}
    return "{\n    " + ", ".join(f'"{key}": {value}' for key, value in fields.items()) + "\n  }"


STEP_KERNELS = (
    ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", 200.0),
    ("_fwd_grouped_kernel_stage1", 100.0),
    ("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", 50.0),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>()", 10.0),
)
STEP_US = 400.0


def decode(
    steps: int = 6, label: str = "step[DECODE bs=2]", *, trace: Trace | None = None, first_us: float = 0.0
) -> Trace:
    """`steps` like ones of 400 us: four kernels of 360 us with 5 us between them, and 25 us idle at the end."""
    trace = trace or Trace()
    for step in range(steps):
        start = first_us + step * STEP_US
        trace.label(label, start - 50, 40)
        now = start
        kernels = []
        for name, duration in STEP_KERNELS:
            kernels.append((name, now, duration))
            now += duration + 5
        trace.launch(start - 45, kernels)
    return trace


class Phase(NamedTuple):
    """One forward: its label, its kernels (name, us), and in how many graphs they are launched; 0 = one by one."""

    label: str | None
    kernels: list[tuple[str, float]]
    graphs: int = 1


def serve(phases: Sequence[Phase], api: str = "cuda") -> Trace:
    """The phases one after the other, a us between kernels and 30 us between phases; calls come before the work."""
    trace = Trace()
    now = 1000.0
    for phase in phases:
        begun = now - 200
        if phase.label is not None:
            trace.label(phase.label, begun, 150)
        kernels = []
        for name, us in phase.kernels:
            kernels.append((name, now, us))
            now += us + 1
        size = -(-len(kernels) // phase.graphs) if phase.graphs else 1
        for number, at in enumerate(range(0, len(kernels), size)):
            trace.launch(begun + 5 + number, kernels[at : at + size], call_us=0.5, api=api)
        now += 30
    return trace


def layered(
    label: str,
    layers: int,
    layer: Sequence[tuple[str, float]],
    gap_us: float,
    steps: int = 6,
    made: Trace | None = None,
) -> Trace:
    """Decode steps, each one graph of `layers` times the kernels of `layer` (name, us) with a gap behind each."""
    made = Trace() if made is None else made
    step_us = layers * (sum(us for _, us in layer) + gap_us * len(layer))
    for step in range(steps):
        now = start = step * step_us
        made.label(label, start - 50, 40)
        kernels = []
        for _ in range(layers):
            for name, us in layer:
                kernels.append((name, now, us))
                now += us + gap_us
        made.launch(start - 45, kernels)
    return made
