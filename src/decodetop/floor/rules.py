"""The looks of the verdict: each sees one possible cause, its size in ms, and whether it explains the step. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from decodetop.core.words import percent, significant
from decodetop.floor.gap import idle_ms
from decodetop.floor.measured import Breakdown, Measurement
from decodetop.floor.reading import Confidence, FloorReport, VerdictId

COPY_SHARE = 0.15
IDLE_SHARE = 0.20
COMMUNICATION_SHARE = 0.20
ATTENTION_SHARE = 0.35
MEMORY_CLOCK_SHARE = 0.90
SM_CLOCK_SHARE = 0.80
PROFILED_IDLE_SHARE = 0.50
"""Of a step known from the profiler only: it stretches the idle time up to threefold."""
ESTIMATED_SHARE = 0.35
"""Of the step, for what is estimated and not traced."""
TOO_FAST = 0.05
"""Kernel times jitter by less than this."""
SPIN_BUSY_PERCENT = 99.0
SPIN_POWER_SHARE = 0.50
"""R3 of the reference notes: always busy at less than half of the power limit is waiting in a kernel, not work."""
CAST_RATE = 0.6
"""A cast of a whole pool was seen to reach this share of the bandwidth (RTX PRO 6000, GLM-5)."""

SLOWDOWN_BITS = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal (software)", 0x40: "thermal (hardware)",
    0x80: "power brake",
}  # fmt: skip
"""Bits of NVML's clock event reasons that mean less speed than asked for."""


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """Of the card under load, as NVML reports it: MHz, watts, share of the time a kernel ran; None = not known."""

    sm: int | None = None
    sm_max: int | None = None
    memory: int | None = None
    memory_max: int | None = None
    reasons: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    busy_percent: float | None = None


class Evidence(NamedTuple):
    report: FloorReport
    measured: Measurement
    step_ms: float
    clocks: Clocks | None

    @property
    def breakdown(self) -> Breakdown | None:
        return self.measured.breakdown

    @property
    def idle_ms(self) -> float:
        return 0.0 if self.breakdown is None else idle_ms(self.breakdown, self.measured)


class Look(NamedTuple):
    """`words` = what was seen, whether it applies or not."""

    id: VerdictId
    what: str
    applies: bool
    ms: float
    words: str
    sentence: str = ""
    because: Sequence[str] = ()
    confidence: Confidence = "high"
    capture: Sequence[str] = ()


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


def communication(seen: Evidence) -> Look | None:
    """Traced without waiting where that is known; else estimated from the table."""
    breakdown, report = seen.breakdown, seen.report
    if breakdown is None:
        return _estimated_communication(seen)
    ms = breakdown.kinds.get("communication", 0.0) - (breakdown.waiting or 0.0)
    if not ms and report.plan.tp == 1:
        return Look("communication_bound", "communication", False, 0.0, "one GPU: no communication")
    share = ms / seen.step_ms
    alone = breakdown.waiting is None
    words = f"communication {significant(ms)} ms, {percent(100 * share)} of the step"
    words += ", waiting for other ranks included" if alone else " (waiting left out)"
    if share < COMMUNICATION_SHARE:
        return Look("communication_bound", "communication", False, ms, words)
    return Look(
        "communication_bound",
        "communication",
        True,
        ms,
        words,
        f"Communication-bound: {percent(100 * share)} of the step is all-reduce or all-to-all.",
        _custom_allreduce(report, ms),
        "medium" if alone else "high",
        ("the traces of all ranks: only together they part transfer from waiting",) if alone else (),
    )


def _custom_allreduce(report: FloorReport, ms: float) -> list[str]:
    """R1 of the reference notes."""
    if not report.allreduces_per_step:
        return []
    each = 1e3 * ms / report.allreduces_per_step
    out = [f"{report.allreduces_per_step} collectives a step, {significant(each)} us each"]
    if report.plan.tp > 2 and report.hardware.link == "pcie" and each > 10:
        out.append("more than two GPUs without NVLink: engines switch their custom all-reduce off there")
    return out


def _estimated_communication(seen: Evidence) -> Look | None:
    report = seen.report
    ms = report.parts_ms.allreduce
    share = ms / seen.step_ms
    if report.plan.tp == 1:
        return Look("communication_bound", "communication", False, 0.0, "one GPU: no communication")
    if ms > seen.step_ms:
        words = f"{significant(ms)} ms of communication by the table, more than the step: the link is another"
        return Look("communication_bound", "communication", False, ms, words)
    words = f"communication about {significant(ms)} ms by the table, {percent(100 * share)} of the step"
    if share < ESTIMATED_SHARE:
        return Look("communication_bound", "communication", False, ms, words)
    return Look(
        "communication_bound",
        "communication",
        True,
        ms,
        words,
        f"Probably communication-bound: all-reduces should take {percent(100 * share)} of the step.",
        _custom_allreduce(report, ms),
        "low",
        ("a profiler trace of all ranks",),
    )


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
    because = [f"its cache is read at {read:,.0f} GB/s, {percent(100 * reached)} of the card"]
    return Look(
        "attention_bound", "attention", True, ms, words,
        f"Attention-bound: {percent(100 * share)} of the step; its cache is read at {percent(100 * reached)} of the "
        "bandwidth.", because,
    )  # fmt: skip


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


def spinning(seen: Evidence) -> Look | None:
    """R3 of the reference notes: kernels that wait for other GPUs look busy and draw little.

    Reading weights over several GPUs also draws little (41 % on 2 x H200), so it says something only where bytes and
    usual costs leave much unexplained, and nothing where a trace tells what ran.
    """
    found, report = seen.clocks, seen.report
    if found is None or report.plan.tp == 1 or not found.power_w or not found.power_limit_w:
        return None
    busy, share = found.busy_percent, found.power_w / found.power_limit_w
    if busy is None:
        return None
    words = f"a kernel runs {percent(busy)} of the time, at {percent(100 * share)} of the power limit"
    ms = max(0.0, seen.step_ms - report.t_prac_ms)
    unexplained = ms / seen.step_ms >= ESTIMATED_SHARE
    low = busy >= SPIN_BUSY_PERCENT and share < SPIN_POWER_SHARE
    if not (low and unexplained and seen.breakdown is None):
        return Look("communication_bound", "spinning in collectives", False, ms if low else 0.0, words)
    return Look(
        "communication_bound", "spinning in collectives", True, ms, words,
        f"Probably communication-bound: the GPUs are always busy at {percent(100 * share)} of their power, as kernels "
        "that wait for other GPUs are.",
        (f"{significant(ms)} ms of the step are explained neither by bytes nor by the usual fixed cost",), "low",
        ("a profiler trace of all ranks",),
    )  # fmt: skip


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


LOOKS: tuple[Callable[[Evidence], Look | None], ...] = (
    copies, host, communication, attention, clocks, spinning, matrices,
)  # fmt: skip
