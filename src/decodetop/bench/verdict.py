"""Is B faster than A? The run is the unit, pairs are interleaved, and the answer may be that it isn't known. Pure.

Requests of one run are not independent: pooling them gave 22-28 % false verdicts in simulation, 70-77 % under drift
(reference notes, section 5). The effect is a ratio, so the arithmetic is on logarithms of run means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from decodetop.bench.reading import Run

LEVEL = 0.05
POWER = 0.80
THRESHOLD = 0.01
"""A difference smaller than this is no reason to change a flag."""
PAIRS = 6
"""The fewest pairs that a rank test could ever call significant at 5 % (2 / 2^6 = 0.031)."""
PAIRS_MAX = 200
SLICES = 80

Word = Literal["faster", "slower", "equivalent", "not_resolved"]
Metric = Literal["output_tok_s", "tpot_ms", "itl_ms", "ttft_ms", "e2e_ms"]
HIGHER_IS_FASTER: frozenset[str] = frozenset({"output_tok_s"})


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """B against A in the metric: `ratio` B/A with its 95 % interval. `sd` is of one log ratio. n = pairs or runs."""

    n: int
    ratio: float
    low: float
    high: float
    p: float
    sd: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`word` is about speed: `faster` = B is, whichever way the metric counts. `more` = pairs still needed, about.

    `paired` False: the runs were not interleaved, so a drift of the box would look like an effect.
    """

    word: Word
    metric: Metric
    threshold: float
    paired: bool
    effect: Effect | None
    detail: str
    more: int | None = None


def value(run: Run, metric: Metric) -> float | None:
    """The run's one figure in `metric`: the rate, or the mean."""
    found = getattr(run.metrics, metric)
    figure = found if isinstance(found, float) or found is None else found.mean
    return figure if figure is not None and figure > 0 else None


def paired(ratios: Sequence[float], metric: Metric, threshold: float = THRESHOLD) -> Verdict:
    """The verdict over interleaved pairs; `ratios` are B/A, one a pair (paired t on the logarithms)."""
    if len(ratios) < 2:
        detail = f"{len(ratios)} pair{'' if len(ratios) == 1 else 's'}: no interval"
        missing = PAIRS - len(ratios)
        return Verdict(
            word="not_resolved",
            metric=metric,
            threshold=threshold,
            paired=True,
            effect=None,
            detail=detail,
            more=missing,
        )
    logs = [math.log(ratio) for ratio in ratios]
    sd = _sd(logs)
    effect = _effect(len(logs), _mean(logs), sd / math.sqrt(len(logs)), len(logs) - 1, sd)
    word = judge(effect, metric, threshold)
    more = None
    if word == "not_resolved":
        aimed = max(abs(math.log(effect.ratio)), math.log1p(threshold))
        more = max(1, pairs_for(sd, math.expm1(aimed)) - len(logs))
    return Verdict(
        word=word,
        metric=metric,
        threshold=threshold,
        paired=True,
        effect=effect,
        detail=_detail(word, effect, more, "pairs"),
        more=more,
    )


def unpaired(a: Sequence[float], b: Sequence[float], metric: Metric, threshold: float = THRESHOLD) -> Verdict:
    """The weaker word over stored runs that were not interleaved (Welch's t on the logarithms)."""
    if len(a) < 2 or len(b) < 2:
        ratio = f"{_percent(_mean(b) / _mean(a))}, " if a and b else ""
        detail = f"{ratio}{len(a)} and {len(b)} runs: no interval; measure pairs (`bench compare URL URL`)"
        return Verdict(
            word="not_resolved", metric=metric, threshold=threshold, paired=False, effect=None, detail=detail
        )
    logs_a, logs_b = [math.log(one) for one in a], [math.log(one) for one in b]
    part_a, part_b = _sd(logs_a) ** 2 / len(a), _sd(logs_b) ** 2 / len(b)
    error = math.sqrt(part_a + part_b)
    freedom = (part_a + part_b) ** 2 / (part_a**2 / (len(a) - 1) + part_b**2 / (len(b) - 1)) if error else 1.0
    sd = math.sqrt((_sd(logs_a) ** 2 + _sd(logs_b) ** 2) / 2) * math.sqrt(2)
    effect = _effect(min(len(a), len(b)), _mean(logs_b) - _mean(logs_a), error, freedom, sd)
    word = judge(effect, metric, threshold)
    detail = f"{_detail(word, effect, None, 'runs each')}; not interleaved, so a drift of the box would look the same"
    return Verdict(word=word, metric=metric, threshold=threshold, paired=False, effect=effect, detail=detail)


def judge(effect: Effect, metric: Metric, threshold: float) -> Word:
    """By the interval: away from 1 and larger than the threshold, or wholly within it, or neither."""
    low, high = math.log(effect.low), math.log(effect.high)
    bound = math.log1p(threshold)
    if -bound <= low and high <= bound:
        return "equivalent"
    if (low > 0 or high < 0) and abs(math.log(effect.ratio)) > bound:
        more = low > 0
        return "faster" if more == (metric in HIGHER_IS_FASTER) else "slower"
    return "not_resolved"


def pairs_for(sd: float, effect: float, least: int = PAIRS) -> int:
    """Pairs that find `effect` (0.03 = 3 %) with power 0.8 at level 0.05, when one log ratio has `sd`."""
    low, high = least - 1, PAIRS_MAX
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(sd, effect, middle) >= POWER else (middle, high)
    return high


def power(sd: float, effect: float, pairs: int) -> float:
    """The chance that a two-sided paired t finds `effect`.

    The statistic is (Z + shift) / S with S^2 a chi-square over its degrees of freedom: the normal tails beyond
    limit x S, averaged over S (Simpson's rule).
    """
    from scipy.special import stdtrit

    if sd <= 0:
        return 1.0
    freedom = pairs - 1
    shift = math.log1p(effect) / sd * math.sqrt(pairs)
    limit = float(stdtrit(freedom, 1 - LEVEL / 2))
    scale = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    step = (1 + 8 / math.sqrt(freedom)) / SLICES
    total = 0.0
    for number in range(1, SLICES):
        s = number * step
        density = math.exp(scale + (freedom - 1) * math.log(s) - freedom * s * s / 2)
        total += (4 if number % 2 else 2) * density * (_normal(shift - limit * s) + _normal(-shift - limit * s))
    return total * step / 3


def detectable(sd: float, pairs: int) -> float:
    """The smallest effect that `pairs` find with power 0.8: the minimal detectable effect, as a share."""
    low, high = 0.0, 1.0
    while power(sd, high, pairs) < POWER:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if power(sd, middle, pairs) >= POWER else (middle, high)
    return high


def pair_sd(runs: Sequence[float]) -> float | None:
    """The sd of one log ratio of two runs, from runs of one and the same setting; None of fewer than three."""
    return _sd([math.log(one) for one in runs]) * math.sqrt(2) if len(runs) >= 3 else None


def _effect(n: int, mean: float, error: float, freedom: float, sd: float) -> Effect:
    from scipy.special import stdtr, stdtrit

    reach = float(stdtrit(freedom, 1 - LEVEL / 2)) * error
    p = float(2 * stdtr(freedom, -abs(mean) / error)) if error > 0 else float(mean == 0)
    return Effect(n=n, ratio=math.exp(mean), low=math.exp(mean - reach), high=math.exp(mean + reach), p=p, sd=sd)


def _normal(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _sd(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(sum((one - mean) ** 2 for one in values) / (len(values) - 1))


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _detail(word: Word, effect: Effect, more: int | None, unit: str) -> str:
    interval = f"{_percent(effect.low)} to {_percent(effect.high)}"
    found = f"{_percent(effect.ratio)}, 95 % interval {interval}, {effect.n} {unit}"
    return f"{found}; about {more} more {unit} needed" if word == "not_resolved" and more is not None else found
