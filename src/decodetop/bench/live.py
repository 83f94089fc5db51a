"""A run under way in figures: from the load processes' ticks to Progress. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from decodetop.bench.reading import Plan, Progress
from decodetop.bench.wire import Phase, Tick

PHASES: tuple[Phase, ...] = ("starting", "warmup", "measuring", "draining", "stopping")


def progress_of(plan: Plan, ticks: Sequence[Tick], step: int = 1, steps: int = 1) -> Progress:
    """`ticks`: the newest of each load process."""
    chunks, tokens = sum(tick.chunks for tick in ticks), sum(tick.tokens for tick in ticks)
    counted = sum(tick.counted_chunks for tick in ticks)
    gaps, firsts = sum(tick.gaps for tick in ticks), sum(tick.first_tokens for tick in ticks)
    elapsed_s = max((tick.elapsed_s for tick in ticks), default=0.0)
    lags = [tick.loop_lag_ms_p99 for tick in ticks if tick.loop_lag_ms_p99 is not None]
    phase = min((tick.phase for tick in ticks), key=PHASES.index, default=PHASES[0])
    under_load = phase in ("measuring", "draining")
    # chunks of requests that have not said their tokens yet carry as many as the others did
    seen = tokens * chunks / counted if counted else None
    return Progress(
        preset=plan.preset,
        endpoint=plan.endpoint,
        phase=phase,
        step=step,
        steps=steps,
        streams=plan.streams,
        requests_done=sum(tick.done for tick in ticks),
        requests_total=plan.requests if plan.duration_s is None else 0,
        duration_s=plan.duration_s,
        errors=sum(tick.failed for tick in ticks),
        elapsed_s=elapsed_s,
        eta_s=_eta_s(plan, seen or chunks, elapsed_s, steps - step) if under_load else None,
        output_tok_s=seen / elapsed_s if seen is not None and elapsed_s > 0 else None,
        ttft_ms_mean=sum(tick.ttft_sum_ns for tick in ticks) / firsts / 1e6 if firsts else None,
        icl_ms_mean=sum(tick.gap_sum_ns for tick in ticks) / gaps / 1e6 if gaps else None,
        loop_lag_ms_p99=max(lags, default=None),
    )


def _eta_s(plan: Plan, tokens: float, elapsed_s: float, steps_left: int) -> float | None:
    """Tokens still to come at the rate so far; the steps of a sweep that follow are taken to last as long."""
    if plan.duration_s is not None:
        return max(0.0, plan.duration_s - elapsed_s) + steps_left * plan.duration_s
    total = plan.requests * plan.output_tokens
    if tokens <= 0:
        return None
    whole_s = elapsed_s * total / min(tokens, total)
    return whole_s - elapsed_s + steps_left * whole_s
