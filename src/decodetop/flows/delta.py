"""What a result says in one line, and what changed since the baseline. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from decodetop.bench.compare import Comparison, said
from decodetop.bench.reading import Quantiles, Run
from decodetop.bench.text import name, per_token, state, streams, worth
from decodetop.bench.verdict import THRESHOLD, Metric, unpaired, value
from decodetop.core.words import delta_percent, percent, rate, significant
from decodetop.steps.reading import Capture, RankSteps

_METRIC: Metric = "output_tok_s"
_PLAN = ("streams", "input_tokens", "output_tokens", "api", "request_rate_s", "prompts_file", "shared_prefix_tokens")
"""What two runs must have asked alike to be compared."""
_KINDS_NAMED = 3


def run_summary(run: Run, runs: Sequence[Run], baseline_id: int | None) -> str:
    """The run's figures; before and after where there is a baseline to compare with, and how far to trust it."""
    base = next((one for one in runs if one.id == baseline_id and one.id is not None), None)
    if base is None or base.id == run.id:
        return _figures(run)
    unlike = _asked_otherwise(base, run)
    if unlike:
        return f"{_figures(run)}; not comparable with baseline {name(base)}: {unlike}"
    if base.environment.model != run.environment.model:
        return f"{_figures(run)}; another model than baseline {name(base)}"
    doubtful = "".join(f"; {name(one)} is suspect" for one in (base, run) if worth(one) == "suspect")
    return f"{change(base, run)}, {verdict_words(base, run, runs)}, against {name(base)}{doubtful}"


def change(base: Run, run: Run) -> str:
    """TPOT 95.6 -> 74.1 ms (-22 %), tok/s 10.5 -> 13.5 (+29 %)."""
    parts = []
    before, after = base.metrics, run.metrics
    if before.tpot_ms is not None and after.tpot_ms is not None:
        parts.append(_moved("TPOT", before.tpot_ms, after.tpot_ms))
    elif before.icl_ms is not None and after.icl_ms is not None:
        parts.append(_moved("ICL", before.icl_ms, after.icl_ms))
    old, new = before.output_tok_s, after.output_tok_s
    if old is not None and new is not None:
        parts.append(f"tok/s {rate(old)} -> {rate(new)} ({delta_percent(old, new)})")
    return ", ".join(parts) or "nothing in both runs to compare"


def verdict_words(base: Run, run: Run, runs: Sequence[Run]) -> str:
    """`verdict faster as it looks (...)`: stored runs were not interleaved, so the word is the weaker one."""
    for one in (base, run):
        if one.partial or worth(one) == "invalid":
            return f"no verdict: {name(one)} {'was stopped' if one.partial else 'is invalid'}"
    before, after = (_of_setting(one, runs) for one in (base, run))
    if _setting(base) != _setting(run) and len(before) > 1 and len(after) > 1:
        found = unpaired(before, after, _METRIC)
        return f"verdict {said(found)} (unpaired, {len(before)} and {len(after)} runs)"
    old, new = value(base, _METRIC), value(run, _METRIC)
    if old is None or new is None:
        return "no verdict: tokens unknown"
    ratio = new / old
    word = "no difference seen" if abs(ratio - 1) <= THRESHOLD else f"{'faster' if ratio > 1 else 'slower'} as it looks"
    return f"verdict {word} (unpaired, one run each: no interval)"


def comparison_summary(found: Comparison) -> str:
    """The verdict of interleaved pairs, with its interval."""
    verdict = found.verdict
    return f"{found.b} against {found.a}: verdict {said(verdict)}, {verdict.metric} {verdict.detail} (interleaved)"


def capture_summary(capture: Capture, captures: Sequence[Capture]) -> str:
    """The step of the first rank in its largest parts, and its change since the capture before it."""
    rank = _first(capture)
    if rank is None or rank.period_us is None:
        return "no step to show"
    words = f"{significant(rank.period_us.representative / 1e3)} ms a step profiled"
    if capture.report.itl_ms is not None:
        words += f", {significant(capture.report.itl_ms)} ms real"
    words += f": {_largest(rank)}"
    older = next((one for one in captures if _is_older(one, capture)), None)
    before = _first(older) if older is not None else None
    if before is None or before.period_us is None:
        return words
    return f"{words}; the one before: {significant(before.period_us.representative / 1e3)} ms: {_largest(before)}"


def _figures(run: Run) -> str:
    metrics = run.metrics
    return f"{per_token(run)} ms, {rate(metrics.output_tok_s)} tok/s, {streams(run.plan.streams)}, {state(run)}"


def _moved(title: str, before: Quantiles, after: Quantiles) -> str:
    delta = delta_percent(before.mean, after.mean)
    return f"{title} {significant(before.mean)} -> {significant(after.mean)} ms ({delta})"


def _asked_otherwise(base: Run, run: Run) -> str:
    pairs = [(field, getattr(base.plan, field), getattr(run.plan, field)) for field in _PLAN]
    return ", ".join(f"{field.replace('_', ' ')} {old} -> {new}" for field, old, new in pairs if old != new)


def _setting(run: Run) -> tuple[object, ...]:
    """What the server was when it was measured."""
    environment = run.environment
    flags = tuple(sorted(environment.flags.items()))
    return (environment.engine_version, environment.model, environment.tp, environment.command, flags)


def _of_setting(run: Run, runs: Sequence[Run]) -> list[float]:
    """The figures of all good runs of this setting; of the run alone where the setting is not known."""
    told = run.environment.flags or run.environment.command
    same = [one for one in runs if _setting(one) == _setting(run)] if told else [run]
    alike = [one for one in same if not _asked_otherwise(one, run)]
    good = [value(one, _METRIC) for one in alike if not one.partial and worth(one) != "invalid"]
    return [one for one in good if one is not None]


def _first(capture: Capture) -> RankSteps | None:
    return capture.report.ranks[0] if capture.report.ranks else None


def _largest(rank: RankSteps) -> str:
    """copy 69 %, gemm 15 %, idle 5 %."""
    assert rank.period_us is not None
    whole = rank.period_us.representative or 1.0
    parts = sorted(rank.kinds_us.items(), key=lambda part: -part[1])[:_KINDS_NAMED]
    return ", ".join(f"{kind.replace('_', ' ')} {percent(100 * us / whole)}" for kind, us in parts if us > 0)


def _is_older(one: Capture, capture: Capture) -> bool:
    return one.id != capture.id and (one.made_wall_ns or 0) < (capture.made_wall_ns or 0)
