"""Writes the passes of a simulated server as Kineto traces, in the layout of the recordings of 2026-11-30."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
from isal import igzip

from decodetop.sim.batch import Pass
from decodetop.sim.gpus import MEMORY_TOTAL, NAME
from decodetop.sim.steptime import MAIN, NEXT, TOKEN, Launch, StepTime, step_time, template

BASE_NS = 1_790_857_026_000_000_000
"""`baseTimeNanoseconds`: Kineto floors the clock to three months."""
STREAMS = {MAIN: 13, TOKEN: 37, NEXT: 33}
CALL_IDS = {
    "cudaGraphLaunch": 311,
    "cudaLaunchKernel": 211,
    "cuLaunchKernelEx": 652,
    "cudaMemsetAsync": 51,
    "cudaMemcpyAsync": 41,
}


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written. `epoch_ns` turns CLOCK_MONOTONIC into epoch ns; `cpu` = labels and host calls too."""

    passes: tuple[Pass, ...]
    tp: int
    pid: int
    epoch_ns: int
    profile_id: str
    cpu: bool = True


def write(capture: Capture, folder: Path) -> list[Path]:
    """One file per rank, each complete when it appears. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank in range(capture.tp):
        path = folder / f"{capture.profile_id}-TP-{rank}.trace.json.gz"
        part = path.with_name(f".{path.name}.tmp")
        part.write_bytes(igzip.compress(render(capture, rank).encode()))
        part.replace(path)
        paths.append(path)
    return paths


def render(capture: Capture, rank: int) -> str:
    """The trace of one rank as JSON text."""
    body = _Body(capture, rank)
    events = ",\n  ".join(body.events())
    properties = f'"id": {rank}, "name": "{NAME}", "totalGlobalMem": {MEMORY_TOTAL},\n      "computeMajor": 9, '
    ranks = json.dumps({"backend": "nccl", "rank": rank, "world_size": capture.tp, "nccl_version": "2.28.9"})
    return f"""
  {{
    "schemaVersion": 1,
    "deviceProperties": [
    {{
      {properties}"computeMinor": 0,
      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
      "regsPerBlock": 65536, "warpSize": 32, "sharedMemPerBlock": 49152, "numSms": 132
    }}
    ],
      "trace_id": "{capture.profile_id}",
      "distributedInfo": {ranks},
      "cuda_driver_version": 13000,
      "cuda_runtime_version": 13000,
      "cupti_version": 130001,
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": {BASE_NS},
  "traceEvents": [
  {events}
  ],
  "traceName": "simulated"
}}
"""


class _Body:
    """The events of one rank."""

    def __init__(self, capture: Capture, rank: int) -> None:
        self._capture = capture
        self._rank = rank
        self._pid = capture.pid + rank
        self._correlation = 20
        self._external = 0
        self._names = {short: json.dumps(name) for short, name in template()["names"].items()}

    def events(self) -> Iterator[str]:
        end_ns = 0
        before: Pass | None = None
        for one in self._capture.passes:
            follows = before is not None and not before.new_tokens
            seen = step_time(one, self._capture.tp, self._rank, follows_decode=follows)
            origin_ns = one.start_ns + self._capture.epoch_ns - BASE_NS
            if self._capture.cpu:
                yield from self._annotations(seen, origin_ns)
            for launch in seen.launches:
                yield from self._launch(launch, origin_ns)
            end_ns = one.end_ns + self._capture.epoch_ns - BASE_NS
            before = one
        yield from self._tracks(end_ns)

    def _annotations(self, seen: StepTime, origin_ns: int) -> Iterator[str]:
        around = (
            ("scheduler.recv_requests", -420.0, 150.0),
            ("scheduler.process_input_requests", -250.0, 30.0),
            ("scheduler.get_next_batch_to_run", -200.0, 150.0),
            ("scheduler.run_batch", -40.0, seen.label_us + 500.0),
            (seen.label, 0.0, seen.label_us),
            ("copy_result_to_cpu", seen.label_us + 300.0, 120.0),
            ("scheduler.process_batch_result", seen.label_us + 520.0, 200.0),
        )
        for name, after_us, duration_us in around:
            self._external += 1
            ids = f'"External id": {self._external},"Record function id": 0, "Ev Idx": {self._external - 1}'
            at_ns = origin_ns + int((seen.label_at_us + after_us) * 1000)
            yield self._event("user_annotation", f'"{name}"', self._pid, self._pid, at_ns, duration_us, ids)
            if name == seen.label:
                yield self._on_gpu(seen, origin_ns)

    def _on_gpu(self, seen: StepTime, origin_ns: int) -> str:
        """Kineto's copy of the label on the GPU's track: 1 ns before its first kernel to its last one."""
        inside = [
            kernel
            for launch in seen.launches
            if launch.at_us < seen.label_at_us + seen.label_us
            for kernel in launch.kernels
            if kernel[1] == MAIN
        ]
        start_ns = origin_ns + int(inside[0][2] * 1000) - 1
        span_us = inside[-1][2] + inside[-1][3] - inside[0][2] + 0.002
        ids = f'"External id": {self._external}'
        return self._event("gpu_user_annotation", f'"{seen.label}"', self._rank, STREAMS[MAIN], start_ns, span_us, ids)

    def _launch(self, launch: Launch, origin_ns: int) -> Iterator[str]:
        self._correlation += 8
        single = len(launch.kernels) == 1
        external = ""
        if single:
            self._external += 1
            external = f'"External id": {self._external},      '
        at_ns = origin_ns + int(launch.at_us * 1000)
        ids = f'{external}"cbid": {CALL_IDS[launch.call]}, "correlation": {self._correlation}'
        kind = "cuda_driver" if launch.call.startswith("cu") and launch.call[2].isupper() else "cuda_runtime"
        yield self._event(kind, f'"{launch.call}"', self._pid, self._pid, at_ns, launch.duration_us, ids)
        flow = f'"id": {self._correlation}, "pid": {self._pid}, "tid": {self._pid}, "ts": {_us(at_ns)}'
        yield f'{{\n    "ph": "s", {flow},\n    "cat": "ac2g", "name": "ac2g"\n  }}'
        for short, stream, start_us, duration_us in launch.kernels:
            yield from self._kernel(short, STREAMS[stream], origin_ns + int(start_us * 1000), duration_us, external)

    def _kernel(self, short: str, stream: int, at_ns: int, duration_us: float, external: str) -> Iterator[str]:
        where = f'{external}"device": {self._rank}, "context": 1, "stream": {stream}, '
        ids = f'{where}"correlation": {self._correlation}'
        if short.startswith("mem"):
            kind = "gpu_memset" if short == "memset" else "gpu_memcpy"
            ids += ', "bytes": 8, "memory bandwidth (GB/s)": 0.01'
        else:
            kind = "kernel"
            ids += ', "registers per thread": 128, "shared memory": 0, "grid": [132, 1, 1], "block": [384, 1, 1]'
        yield self._event(kind, self._names[short], self._rank, stream, at_ns, duration_us, ids)
        flow = f'"id": {self._correlation}, "pid": {self._rank}, "tid": {stream}, "ts": {_us(at_ns)}'
        yield f'{{\n    "ph": "f", {flow},\n    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }}'

    def _event(self, cat: str, name: str, pid: int, tid: int, at_ns: int, duration_us: float, args: str) -> str:
        where = f'"pid": {pid}, "tid": {tid},\n    "ts": {_us(at_ns)}, "dur": {max(duration_us, 0.001):.3f}'
        return (
            f'{{\n    "ph": "X", "cat": "{cat}", "name": {name}, {where},\n    "args": {{\n      {args}\n    }}\n  }}'
        )

    def _tracks(self, end_ns: int) -> Iterator[str]:
        for pid, label in ((self._pid, "CPU"), (self._rank, f"GPU {self._rank}")):
            head = f'"ph": "M", "ts": {_us(end_ns)}, "pid": {pid}, "tid": 0'
            yield f'{{\n    "name": "process_name", {head},\n    "args": {{ "name": "sglang::scheduler" }}\n  }}'
            yield f'{{\n    "name": "process_labels", {head},\n    "args": {{ "labels": "{label}" }}\n  }}'
        where = f'"pid": "", "tid": "", "ts": {_us(end_ns)}'
        yield f'{{\n    "name": "Record Window End", "ph": "i", "s": "g",\n    {where}\n  }}'


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"
