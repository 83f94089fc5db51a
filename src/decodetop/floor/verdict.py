"""One sentence about the step, by rules in the open. Pure.

Each rule looks at one thing and says what it saw: `Look.ms` is what it could explain of the step. Of the looks that
apply the largest wins; every other one that saw something stands under what was ruled out, with its figure.
"""

from __future__ import annotations

import msgspec

from decodetop.core.words import percent, significant
from decodetop.floor.evidence import Clocks, Evidence, Look
from decodetop.floor.gap import gap_of
from decodetop.floor.matrices import bandwidth_words, kernels_beyond, many_words, too_fast
from decodetop.floor.measured import Breakdown, Measurement
from decodetop.floor.reading import Capacity, Confidence, FloorReport, RuledOut, Verdict
from decodetop.floor.rules import IDLE_SHARE, LOOKS
from decodetop.floor.text import capacity_words

HARDWARE_SHARE = 0.80
"""The hard bound is so much of the step that no flag can win much."""
PRACTICE_SHARE = 0.80
"""What practice allows is so much of the step that this stack has little left."""
NOISE = 0.069
"""Runs of the same thing differ by up to this share (reference notes, section 2.10)."""
COMPUTE_SHARE = 0.4
"""Arithmetic bounds the step and is this share of it."""


def judge(report: FloorReport, measured: Measurement, clocks: Clocks | None = None) -> Verdict:
    """`report` with its gap. Never a percentage from a measurement that lies below the bound."""
    if measured.step_ms is None:
        return _unmeasured(measured)
    if measured.step_ms < report.t_phys_ms:
        return _below(report, measured.step_ms)
    if report.capacity is not None and report.capacity.fits is False:
        return _no_room(report, report.capacity, measured)
    seen = Evidence(report, measured, measured.step_ms, clocks)
    if kernels_beyond(seen):
        return _of_two_steps(seen)
    looks = [look for rule in LOOKS if (look := rule(seen)) is not None]
    applying = sorted((look for look in looks if look.applies), key=lambda look: -look.ms)
    verdict = _hardware(seen) or (_of_look(applying[0], seen) if applying else None)
    verdict = verdict or _compute(seen) or _near_limit(seen) or _open(seen)
    ruled_out = tuple(
        RuledOut(what=look.what, because=look.words) for look in looks if look.id != verdict.id or not look.applies
    )
    return Verdict(
        id=verdict.id,
        confidence=verdict.confidence,
        sentence=verdict.sentence,
        because=(*verdict.because, *_common(seen)),
        ruled_out=ruled_out,
        capture=verdict.capture,
    )


def judged(report: FloorReport, measured: Measurement, clocks: Clocks | None = None) -> FloorReport:
    """`report` with what was measured: the step, the gap in parts, the verdict."""
    launches = None if measured.breakdown is None else measured.breakdown.graph_launches
    with_gap = msgspec.structs.replace(
        report,
        t_meas_ms=measured.step_ms,
        t_meas_profiled=measured.profiled,
        gap_ms=gap_of(report, measured),
        graph_launches_per_step=launches,
    )
    return msgspec.structs.replace(with_gap, verdict=judge(with_gap, measured, clocks))


def _unmeasured(measured: Measurement) -> Verdict:
    capture = ("give the measured time per token: --measured-ms (decodetop bench run one-stream)",)
    if "accept length" in measured.words:
        capture = ("read the accept length from the server's metrics: --accept-length",)
    return Verdict(
        id="not_enough_evidence",
        confidence="high",
        sentence=f"Not enough evidence: {measured.words}.",
        because=(measured.words,),
        capture=capture,
    )


def _below(report: FloorReport, step_ms: float) -> Verdict:
    why = (
        f"measured {significant(step_ms)} ms a step, and the hardware can't do it under "
        f"{significant(report.t_phys_ms)} ms",
        "candidates: the weights' dtype, the accept length, a TPOT that counts prompt tokens, the number of GPUs, "
        "the card",
    )
    return Verdict(
        id="not_enough_evidence",
        confidence="high",
        sentence="Not enough evidence: the measured step lies below the hard bound, so an input is wrong.",
        because=why,
        capture=("check the assumptions one by one (--explain)",),
    )


def _no_room(report: FloorReport, held: Capacity, measured: Measurement) -> Verdict:
    """What was measured ran somehow, so not with these bytes at this bandwidth."""
    return Verdict(
        id="not_enough_evidence",
        confidence="high",
        sentence="Not enough evidence: what one GPU must hold does not fit the GPU's memory, so an input is wrong or "
        "weights are offloaded.",
        because=(
            capacity_words(held, report.plan),
            f"the step: {measured.words}",
            "candidates: the number of GPUs, the card, the weights' or the KV's dtype, batch and context; offloaded "
            "weights are read over PCIe, which is not in the bound",
        ),
        capture=("the plan as it is served: --tp, --batch, --context, --kv-dtype",),
    )


def _of_two_steps(seen: Evidence) -> Verdict:
    """Shares of one step by the kernels of another would be above 100 %."""
    assert seen.breakdown is not None
    working, step = significant(seen.breakdown.working), significant(seen.step_ms)
    return Verdict(
        id="not_enough_evidence",
        confidence="high",
        sentence="Not enough evidence: the trace's kernels take longer than the measured step, so they are not of the "
        "same step.",
        because=(
            f"the kernels of the trace take {working} ms a step, and {step} ms were measured ({seen.measured.words})",
            "candidates: another batch or context, the accept length, a measurement of another server or setting",
        ),
        capture=("the trace and the time per token of one load: decodetop diagnose",),
    )


def _hardware(seen: Evidence) -> Verdict | None:
    share = seen.report.t_phys_ms / seen.step_ms
    if share < HARDWARE_SHARE:
        return None
    what = "reading weights" if seen.report.weights_share_of_bytes >= 0.5 else "reading KV and state"
    if seen.report.bound == "compute":
        what = "arithmetic"
    noise = "; the rest is within the noise of a run" if share > 1 - NOISE else ""
    return Verdict(
        id="hardware_bound",
        confidence=_confidence(seen, share - HARDWARE_SHARE),
        sentence=f"At the hardware's limit: {percent(100 * share)} of the step is {what} at full speed{noise}. "
        "Stop tuning flags.",
        because=(
            f"hard bound {significant(seen.report.t_phys_ms)} ms of {significant(seen.step_ms)} ms measured",
            "what would change it: fewer bytes a weight (quantise), more tokens a step (speculate, batch), more GPUs",
        ),
    )


def _of_look(look: Look, seen: Evidence) -> Verdict:
    confidence: Confidence = look.confidence
    if confidence == "high" and seen.measured.profiled:
        confidence = "medium"
    if too_fast(seen):
        confidence = "low"
    because = (look.words, *look.because)
    return Verdict(
        id=look.id, confidence=confidence, sentence=look.sentence, because=because, capture=tuple(look.capture)
    )


def _compute(seen: Evidence) -> Verdict | None:
    report = seen.report
    if report.bound != "compute" or report.t_phys_ms / seen.step_ms < COMPUTE_SHARE:
        return None
    return Verdict(
        id="compute_bound",
        confidence="medium",
        sentence=f"Compute-bound: at a batch of {report.plan.batch} arithmetic takes longer than reading the bytes.",
        because=(
            f"arithmetic {significant(report.t_compute_ms)} ms, bytes {significant(report.t_memory_ms)} ms, measured "
            f"{significant(seen.step_ms)} ms",
        ),
    )


def _near_limit(seen: Evidence) -> Verdict | None:
    report = seen.report
    share = report.t_prac_ms / seen.step_ms
    if share < PRACTICE_SHARE:
        return None
    bound = report.t_phys_ms / seen.step_ms
    memory = bound >= 0.5 or report.plan.tp == 1
    words = "Memory-bound, near what this stack reaches" if memory else "Near what this stack reaches"
    rest = f"what is left is {_largest(seen)}{'' if memory else ', not bandwidth'}"
    return Verdict(
        id="memory_bound_near_limit",
        confidence=_confidence(seen, share - PRACTICE_SHARE),
        sentence=f"{words}: practice allows {significant(report.t_prac_ms)} ms, measured {significant(seen.step_ms)} "
        f"ms; {rest}.",
        because=(
            f"hard bound {significant(report.t_phys_ms)} ms = {percent(100 * bound)} of the step, practice "
            f"{percent(100 * min(share, 1.0))}",
        ),
    )


def _open(seen: Evidence) -> Verdict:
    missing = 1 - seen.report.t_prac_ms / seen.step_ms
    if seen.breakdown is None:
        return Verdict(
            id="not_enough_evidence",
            confidence="high",
            sentence=f"Not enough evidence: {percent(100 * missing)} of the step is explained neither by bytes nor by "
            "the usual fixed cost. Capture a decode step.",
            capture=("a profiler trace of decode steps: decodetop floor --steps TRACE",),
        )
    capture = "the same step with another kernel backend, compared: decodetop steps compare"
    if seen.measured.profiled and seen.idle_ms / seen.step_ms >= IDLE_SHARE:
        capture = "the time per token without the profiler, which stretches the idle time: --measured-ms"
    return Verdict(
        id="not_enough_evidence",
        confidence="medium",
        sentence=f"No single cause: what is left is {_largest(seen)}.",
        capture=(capture,),
    )


def _common(seen: Evidence) -> tuple[str, ...]:
    out = [f"the step: {seen.measured.words}"]
    if seen.breakdown is not None and not seen.measured.profiled:
        out = [f"{out[0]}; shares are of it, the step breakdown's are of the profiled step"]
    if seen.breakdown is not None:
        out += [bandwidth_words(seen), _shares(seen.breakdown, seen)]
    many = many_words(seen)
    out += [many] if many is not None else []
    plan = seen.report.plan
    if plan.accept_length is not None and (plan.draft_steps or plan.verify_tokens > 1):
        token_ms = seen.step_ms / plan.accept_length
        out.append(f"a step gives {significant(plan.accept_length)} tokens: {significant(token_ms)} ms a token")
    return tuple(out)


def _shares(breakdown: Breakdown, seen: Evidence) -> str:
    small = breakdown.share("norm", "rope", "activation")
    words = f"attention {percent(100 * breakdown.share('attention', 'linear_attention'))}, norm/rope/activation "
    words += f"{percent(100 * small)}, idle {percent(100 * breakdown.share('idle'))} of the profiled step"
    if not seen.measured.profiled:
        words += f"; idle about {percent(100 * seen.idle_ms / seen.step_ms)} of the real one"
    return words


def _largest(seen: Evidence) -> str:
    """The parts of the gap that weigh, largest first."""
    names = {
        "bandwidth_efficiency": "the efficiency of the matrix kernels",
        "extra_bytes": "bytes beyond the bound",
        "attention": "attention",
        "per_layer": "fixed cost per layer",
        "allreduce": "all-reduce",
        "waiting": "waiting for other ranks",
        "copies": "copies",
        "idle": "idle time",
        "rest": "unexplained",
    }
    gap = seen.report.gap_ms or {}
    total = sum(gap.values())
    parts = sorted(((ms, name) for name, ms in gap.items() if ms > 0.05 * total), reverse=True)
    return ", ".join(f"{names.get(name, name)} {significant(ms)} ms" for ms, name in parts[:4]) or "nothing"


def _confidence(seen: Evidence, margin: float) -> Confidence:
    if seen.measured.profiled or margin < 0.02:
        return "low" if seen.breakdown is None else "medium"
    return "high" if seen.breakdown is not None and seen.breakdown.trusted else "medium"
