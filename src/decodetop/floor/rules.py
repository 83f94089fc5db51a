"""The looks of the verdict: each sees one possible cause, its size in ms, and whether it explains the step. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from decodetop.core.words import percent, significant
from decodetop.floor.communication import communication, spinning
from decodetop.floor.evidence import Evidence, Look
from decodetop.floor.matrices import matrices
from decodetop.floor.measured import Breakdown

COPY_SHARE = 0.15
IDLE_SHARE = 0.20
ATTENTION_SHARE = 0.35
MEMORY_CLOCK_SHARE = 0.90
SM_CLOCK_SHARE = 0.80
PROFILED_IDLE_SHARE = 0.50
"""Of a step known from the profiler only: it stretches the idle time up to threefold."""
CAST_RATE = 0.6
"""A cast of a whole pool was seen to reach this share of the bandwidth (RTX PRO 6000, GLM-5)."""

SLOWDOWN_BITS = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal (software)", 0x40: "thermal (hardware)",
    0x80: "power brake",
}  # fmt: skip
"""Bits of NVML's clock event reasons that mean less speed than asked for."""


def copies(seen: Evidence) -> Look | None:
    if seen.breakdown is None:
        return None
    ms = seen.breakdown.kinds.get("copy", 0.0)
    share = ms / seen.step_ms
    words = f"copies and casts {significant(ms)} ms, {percent(100 * share)} of the step"
    if share < COPY_SHARE:
        return Look("copy_bound", "copies and casts", False, ms, words)
    floor_share = seen.report.t_phys_ms / seen.step_ms
    sentence = (
        f"Copy/cast-bound: {percent(100 * share)} of the step is {_kernel(seen.breakdown)}; not bandwidth bound: the "
        f"floor is {percent(100 * floor_share, 1)} of the measured step."
    )
    return Look("copy_bound", "copies and casts", True, ms, words, sentence, _copy_cause(seen, ms))


def _kernel(breakdown: Breakdown) -> str:
    """The kernel's own name without return type and template, and what it does where the template says so."""
    name = breakdown.copy_kernel
    if name is None:
        return "copies and casts"
    head = name.split("<")[0].split("(")[0].split()[-1:]
    work = re.search(r"\w*copy\w*", name[len(head[0]) :] if head else name)
    return f"{head[0] if head else name[:60]}{f' ({work[0]})' if work else ''}"


def _copy_cause(seen: Evidence, ms: float) -> list[str]:
    """R2 of the reference notes: copies that move more than the weights mean that a whole pool is cast."""
    breakdown, report = seen.breakdown, seen.report
    assert breakdown is not None
    out: list[str] = []
    moved = CAST_RATE * report.hardware.bandwidth_gb_s * 1e6 * ms
    times = moved / max(1.0, report.bytes_low.weights)
    layers = report.model.layers
    if times > 1:
        out.append(
            f"they move about {moved / 1e9:.0f} GB a step, {times:.0f} times all weights of the step: likely the whole "
            "KV pool is cast, where the active rows would do"
        )
    if layers and abs(breakdown.copy_calls / layers - round(breakdown.copy_calls / layers)) < 0.05:
        each = round(breakdown.copy_calls / layers)
        if each:
            out.append(f"{each} a layer: it belongs to attention or the KV cache, not to the sampler")
    if report.model.kv_dtype.startswith("fp8"):
        out.append("KV is FP8: an attention kernel that takes 16 bit only makes the engine cast it back")
    return out


def host(seen: Evidence) -> Look | None:
    breakdown = seen.breakdown
    if breakdown is None:
        return None
    share = seen.idle_ms / seen.step_ms
    limit = PROFILED_IDLE_SHARE if seen.measured.profiled else IDLE_SHARE
    if seen.measured.profiled and breakdown.graph_launches == 0 and breakdown.share("idle") >= IDLE_SHARE:
        limit = IDLE_SHARE
    if breakdown.verify:
        # drafting on the host shows without a stopwatch: the profiler adds little between two graphs
        limit = IDLE_SHARE
    profiled = " of the profiled step, which the profiler stretches" if seen.measured.profiled else ""
    words = f"no kernel runs for {significant(seen.idle_ms)} ms, {percent(100 * share)}{profiled}"
    if share < limit:
        return Look("host_bound", "host", False, seen.idle_ms, words)
    cause, because = _host_cause(breakdown)
    return Look(
        "host_bound",
        "host",
        True,
        seen.idle_ms,
        words,
        f"Host-bound: the GPU has nothing to do for {percent(100 * share)} of the step; {cause}.",
        because,
        "medium" if seen.measured.profiled else "high",
        ("the time per token without the profiler: --measured-ms",) if seen.measured.profiled else (),
    )


def _host_cause(breakdown: Breakdown) -> tuple[str, list[str]]:
    split = sorted(((ms, kind) for kind, ms in breakdown.idle_split.items() if ms > 0), reverse=True)
    because = (
        [f"idle of the profiled step by reason: {', '.join(f'{kind} {significant(ms)} ms' for ms, kind in split[:3])}"]
        if split
        else []
    )
    if breakdown.graph_launches == 0:
        because.append(f"{breakdown.kernels} kernels a step are launched one by one")
        return "CUDA graphs are off", because
    if breakdown.verify:
        return "it waits for the host between verify steps: drafting and its copies are on the CPU", because
    return "the host does not keep up between graph launches", because


def attention(seen: Evidence) -> Look | None:
    breakdown = seen.breakdown
    if breakdown is None:
        return None
    ms = breakdown.kinds.get("attention", 0.0) + breakdown.kinds.get("linear_attention", 0.0)
    share = ms / seen.step_ms
    words = f"attention {significant(ms)} ms, {percent(100 * share)} of the step"
    if share < ATTENTION_SHARE:
        return Look("attention_bound", "attention", False, ms, words)
    read = (seen.report.bytes.kv + seen.report.bytes.state) / (ms * 1e6)
    reached = read / seen.report.hardware.bandwidth_gb_s
    if reached > 1:
        because = "it takes less than its cache needs, so the trace is of fewer sequences or a shorter context"
        sentence = f"Attention-bound: {percent(100 * share)} of the step, of another load than the plan."
        return Look("attention_bound", "attention", True, ms, words, sentence, (because,), "low")
    because = f"its cache is read at {read:,.0f} GB/s, {percent(100 * reached)} of the card"
    sentence = (
        f"Attention-bound: {percent(100 * share)} of the step; its cache is read at {percent(100 * reached)} of the "
        "bandwidth."
    )
    return Look("attention_bound", "attention", True, ms, words, sentence, (because,))


def clocks(seen: Evidence) -> Look | None:
    """R6 of the reference notes; an idle card's clocks must not come here."""
    found = seen.clocks
    if found is None:
        return None
    memory = found.memory / found.memory_max if found.memory and found.memory_max else None
    sm = found.sm / found.sm_max if found.sm and found.sm_max else None
    reasons = [word for bit, word in SLOWDOWN_BITS.items() if (found.reasons or 0) & bit]
    words = ", ".join([
        *([f"memory clock {found.memory} of {found.memory_max} MHz"] if memory is not None else []),
        *([f"SM clock {found.sm} of {found.sm_max} MHz"] if sm is not None else []),
        *reasons,
    ])  # fmt: skip
    if not words:
        return None
    slow_memory = memory is not None and memory < MEMORY_CLOCK_SHARE
    slow_sm = sm is not None and sm < SM_CLOCK_SHARE and bool(reasons)
    lost = max(1 - memory if slow_memory and memory is not None else 0.0, 1 - sm if slow_sm and sm is not None else 0.0)
    if not lost:
        return Look("clock_limited", "clocks", False, 0.0, words)
    return Look(
        "clock_limited", "clocks", True, lost * seen.step_ms, words,
        f"Clock-limited: the card runs at {percent(100 * (1 - lost))} of its clock ({', '.join(reasons) or words}).",
        [], "medium",
    )  # fmt: skip


LOOKS: tuple[Callable[[Evidence], Look | None], ...] = (
    copies, host, communication, attention, clocks, spinning, matrices,
)  # fmt: skip
