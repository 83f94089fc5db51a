"""The looks at what GPUs wait for: collectives, traced or by the table, and being busy at little power. Pure."""

from __future__ import annotations

from decodetop.core.words import percent, significant
from decodetop.floor.evidence import Evidence, Look
from decodetop.floor.reading import FloorReport

COMMUNICATION_SHARE = 0.20
ESTIMATED_SHARE = 0.35
"""Of the step, for what is estimated and not traced."""
SPIN_BUSY_PERCENT = 99.0
SPIN_POWER_SHARE = 0.50
"""R3 of the reference notes: always busy at less than half of the power limit is waiting in a kernel, not work."""


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
