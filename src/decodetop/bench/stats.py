"""The arithmetic of a run: quantiles as every tool prints them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from decodetop.bench.reading import Quantiles


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted values, linear between neighbours (numpy's default, Hyndman-Fan type 7)."""
    at = (len(ordered) - 1) * q
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def quantiles(values: Iterable[float]) -> Quantiles | None:
    """Mean and quantiles; None of no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    p50, p90, p99 = (quantile(ordered, q) for q in (0.5, 0.9, 0.99))
    return Quantiles(n=len(ordered), mean=sum(ordered) / len(ordered), p50=p50, p90=p90, p99=p99)
