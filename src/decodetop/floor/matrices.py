"""The look at the kernels themselves: how fast matrices are read, how many there are, are they of this step. Pure."""

from __future__ import annotations

from decodetop.core.words import percent, significant
from decodetop.floor.evidence import Evidence, Look
from decodetop.floor.practice import KERNEL_US

KERNELS_A_LAYER = 37.0
"""Twice the most of the recordings of SGLang 0.5.15 and vLLM 0.24 on H200: 14.6 (dense) to 18.4 (MoE)."""
TOO_FAST = 0.05
"""Kernel times jitter by less than this."""


def matrices(seen: Evidence) -> Look | None:
    """Never a verdict by itself: dense matrices and experts, as what was looked at."""
    if seen.breakdown is None:
        return None
    return Look("memory_bound_near_limit", "GEMM and experts", False, matrices_ms(seen), bandwidth_words(seen))


def matrices_ms(seen: Evidence) -> float:
    kinds = {} if seen.breakdown is None else seen.breakdown.kinds
    return kinds.get("gemm", 0.0) + kinds.get("moe", 0.0)


def too_fast(seen: Evidence) -> bool:
    """The matrices take less than their bytes need at full speed: the trace is not of this model, or not this plan."""
    low = seen.report.bytes_low
    weights_ms = seen.report.t_memory_ms * (low.weights + low.draft) / low.total
    return seen.breakdown is not None and matrices_ms(seen) < (1 - TOO_FAST) * weights_ms


def kernels_beyond(seen: Evidence) -> bool:
    """The kernels of the trace take longer than the real step: they are not of that step."""
    breakdown = seen.breakdown
    return breakdown is not None and not seen.measured.profiled and breakdown.working > (1 + TOO_FAST) * seen.step_ms


def bandwidth_words(seen: Evidence) -> str:
    """How fast the matrices are read."""
    report, ms = seen.report, matrices_ms(seen)
    if ms <= 0:
        return "no GEMM in the step"
    rate = (report.bytes.weights + report.bytes.draft) / (ms * 1e6)
    share = rate / report.hardware.bandwidth_gb_s
    words = f"GEMMs and experts take {significant(ms)} ms, {percent(100 * ms / seen.step_ms)} of the step"
    if too_fast(seen):
        return f"{words}: less than their bytes need, so the trace is of another model, plan or number format"
    if share > 1 and not report.model.is_moe:
        return f"{words}, and read the weights at the full bandwidth of the card"
    if share > 1:
        return f"{words}: less than the expected bytes need, so fewer experts are read than with uniform routing"
    return f"{words}, and read the weights at {rate / 1e3:.2f} TB/s, {percent(100 * share)} of the card"


def kernels_a_layer(kernels: int | None, layers: int) -> float | None:
    """`kernels` of a step without collectives; None where one of the two is not known."""
    return kernels / layers if kernels is not None and layers else None


def many_words(seen: Evidence) -> str | None:
    """Where a layer has unusually many kernels: what is small and not fused costs its launch, whatever it moves."""
    breakdown, report = seen.breakdown, seen.report
    if breakdown is None or breakdown.kernels is None:
        return None
    kernels = max(0, breakdown.kernels - round(breakdown.collectives))
    each = kernels_a_layer(kernels, report.model.layers + report.draft_layers_per_step)
    if each is None or each < KERNELS_A_LAYER:
        return None
    return (
        f"{each:,.0f} kernels a layer ({kernels:,} a step, collectives left out), where SGLang and vLLM run 15 to 18: "
        f"small kernels that are not fused, each about {KERNEL_US:g} us beyond its work"
    )
