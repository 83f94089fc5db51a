"""`t_meas - t_phys` in named parts that sum to it. Pure."""

from __future__ import annotations

from decodetop.floor.measured import Breakdown, Measurement
from decodetop.floor.reading import FloorReport

PARTS = {
    "bandwidth_efficiency": "the matrices are read below the full bandwidth",
    "extra_bytes": "bytes beyond the hard bound: modules kept whole on every GPU, experts beyond the fewest",
    "attention": "attention beyond reading its cache",
    "per_layer": "small kernels of every layer: norms, rope, activation, KV write, sampling",
    "allreduce": "communication without waiting",
    "waiting": "waiting for other ranks",
    "copies": "copies and casts",
    "idle": "no kernel runs: the host is late, or launches take their time",
    "compute": "arithmetic beyond the bytes",
    "rest": "not explained",
}

SMALL = (
    "norm", "rope", "activation", "kv_write", "quantize", "elementwise", "other", "sampling",
)  # fmt: skip
"""Kinds whose cost is a fixed one a layer at decode sizes."""


def gap_of(report: FloorReport, measured: Measurement) -> dict[str, float] | None:
    """None without a measured step, and when it lies below the bound: then an input is wrong."""
    step = measured.step_ms
    if step is None or step < report.t_phys_ms:
        return None
    parts = _estimated(report) if measured.breakdown is None else _traced(report, measured.breakdown, measured)
    parts["rest"] = step - report.t_phys_ms - sum(parts.values())
    if abs(parts["rest"]) < 1e-9 * step:
        parts["rest"] = 0.0
    return parts


def _estimated(report: FloorReport) -> dict[str, float]:
    """By the constants of practice; a negative rest = they are too careful for this box."""
    parts = report.parts_ms
    bytes_ms = parts.weights + parts.kv + parts.state + parts.draft
    return {
        "bandwidth_efficiency": parts.efficiency,
        "extra_bytes": bytes_ms + parts.compute - report.t_phys_ms,
        "allreduce": parts.allreduce,
        "per_layer": parts.per_layer,
    }


def _traced(report: FloorReport, seen: Breakdown, measured: Measurement) -> dict[str, float]:
    """By the kernels of the trace: their times hold without the profiler too, only the idle time does not."""
    low, expected = report.bytes_low, report.bytes
    cache_share = 0.0 if report.bound == "compute" else (low.kv + low.state) / low.total
    matrices = seen.kinds.get("gemm", 0.0) + seen.kinds.get("moe", 0.0) - report.t_phys_ms * (1 - cache_share)
    attention = seen.kinds.get("attention", 0.0) + seen.kinds.get("linear_attention", 0.0)
    beyond = expected.weights + expected.draft - low.weights - low.draft
    extra = min(max(0.0, matrices), beyond / (report.hardware.bandwidth_gb_s * 1e6))
    waiting = seen.waiting or 0.0
    step = measured.step_ms or seen.period
    parts = {
        "bandwidth_efficiency": matrices - extra,
        "extra_bytes": extra,
        "attention": attention - report.t_phys_ms * cache_share,
        "per_layer": sum(seen.kinds.get(kind, 0.0) for kind in SMALL),
        "allreduce": seen.kinds.get("communication", 0.0) - waiting,
        "copies": seen.kinds.get("copy", 0.0),
    }
    if measured.profiled:
        parts["waiting"] = waiting
        parts["idle"] = seen.kinds.get("idle", 0.0)
    else:
        # waiting of the profiled step is the profiler's; what remains of the real step is idle or real waiting
        parts["idle"] = max(0.0, step - seen.working)
    return parts


def idle_ms(seen: Breakdown, measured: Measurement) -> float:
    """Of the real step where it is known, else of the profiled one."""
    if measured.profiled or measured.step_ms is None:
        return seen.period - seen.busy
    return max(0.0, measured.step_ms - seen.working)
