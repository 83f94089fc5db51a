"""The step that was measured: from the time per token, from a step breakdown, or both. Pure.

A step is not a token: with speculation it gives `accept length` tokens, and no trace knows how many.
"""

from __future__ import annotations

import msgspec

from decodetop.core.words import significant
from decodetop.floor.practice import Traced
from decodetop.floor.reading import Plan
from decodetop.steps.reading import RankSteps, StepsReport

NO_ACCEPT_LENGTH = "the server speculates: a step is the time per token times the accept length, which is not known"


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's representative step in ms. `waiting` for other ranks is None where it can't be told from transfer.

    `copy_kernel` = the heaviest kernel of kind `copy` with its calls a step.
    """

    rank: int
    kinds: dict[str, float]
    period: float
    busy: float
    waiting: float | None
    ranks: int
    kernels: int | None
    collectives: float
    graph_launches: int | None
    idle_split: dict[str, float]
    copy_kernel: str | None
    copy_calls: float
    batch: int | None
    verify: bool
    trusted: bool

    @property
    def working(self) -> float:
        """Kernels without waiting for other ranks."""
        return self.busy - (self.waiting or 0.0)

    def share(self, *kinds: str) -> float:
        return sum(self.kinds.get(kind, 0.0) for kind in kinds) / self.period


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """`step_ms` None = not known, and `words` says why. `profiled` = the profiler may have stretched it."""

    step_ms: float | None = None
    words: str = "nothing was measured"
    profiled: bool = False
    breakdown: Breakdown | None = None


def measure(
    plan: Plan, *, token_ms: float | None = None, step_ms: float | None = None, steps: StepsReport | None = None
) -> Measurement:
    """A step given goes before one made of the time per token, that before the trace's own."""
    seen = None if steps is None else breakdown_of(steps)
    found = _step(plan, token_ms, step_ms, steps, seen)
    return msgspec.structs.replace(found, breakdown=seen)


def _step(
    plan: Plan, token_ms: float | None, step_ms: float | None, steps: StepsReport | None, seen: Breakdown | None
) -> Measurement:
    if step_ms is not None:
        return Measurement(step_ms=step_ms, words=f"{significant(step_ms)} ms a step, as given")
    itl_ms = token_ms if token_ms is not None or steps is None else steps.itl_ms
    accepted = plan.accept_length or (steps.accept_length if steps is not None else None)
    speculates = plan.draft_steps > 0 or plan.verify_tokens > 1 or (seen is not None and seen.verify)
    if itl_ms is not None and not speculates:
        return Measurement(step_ms=itl_ms, words=f"{significant(itl_ms)} ms a token, one token a step")
    if itl_ms is not None and accepted is not None:
        words = f"{significant(itl_ms)} ms a token x accept length {significant(accepted)}"
        return Measurement(step_ms=itl_ms * accepted, words=words)
    if seen is not None:
        words = f"{significant(seen.period)} ms, the profiled step: the profiler stretches it"
        return Measurement(step_ms=seen.period, words=words, profiled=True)
    return Measurement(words=NO_ACCEPT_LENGTH) if itl_ms is not None else Measurement()


def breakdown_of(report: StepsReport) -> Breakdown | None:
    """The rank that works longest, waiting left out; None without a step to show."""
    found = [_breakdown(rank, len(report.ranks)) for rank in report.ranks if rank.period_us is not None]
    trusted = [one for one in found if one.trusted] or found
    return max(trusted, key=lambda one: one.working) if trusted else None


def _breakdown(rank: RankSteps, ranks: int) -> Breakdown:
    assert rank.period_us is not None
    kinds = {kind: us / 1e3 for kind, us in rank.kinds_us.items()}
    idle = (rank.idle_us or 0.0) / 1e3
    period = rank.period_us.representative / 1e3
    waiting = rank.communication_us.waiting
    copies = next((kernel for kernel in rank.top_kernels if kernel.kind == "copy"), None)
    label = rank.batches[0].label if rank.batches else ""
    return Breakdown(
        rank=rank.rank,
        kinds=kinds,
        period=period,
        busy=period - idle,
        waiting=None if waiting is None else waiting / 1e3,
        ranks=ranks,
        kernels=rank.kernels_per_step,
        collectives=rank.calls_per_step.get("communication", 0.0),
        graph_launches=rank.graph_launches_per_step,
        idle_split={kind: us / 1e3 for kind, us in rank.idle_split_us.items()},
        copy_kernel=copies.name if copies is not None else None,
        copy_calls=copies.calls_per_step if copies is not None else 0.0,
        batch=rank.batches[0].batch_size if rank.batches else None,
        verify="VERIFY" in label,
        trusted=rank.coverage.ok,
    )


def traced_of(seen: Breakdown | None) -> Traced | None:
    """Kernels that cost time of their own; copies are judged apart, so the count is taken as it is."""
    if seen is None or seen.kernels is None:
        return None
    return Traced(kernels=max(0, seen.kernels - round(seen.collectives)))
