"""A Prometheus scrape, reduced to the samples an adapter wants. Pure.

Only wanted lines go through the client library's parser, and each series once: a whole SGLang scrape costs 15-20 ms
there, its wanted lines two to three, and their values a third of one from the second scrape on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from decodetop.server.reading import Latency

REPLICA_LABELS = ("tp_rank", "pp_rank", "moe_ep_rank", "ep_rank", "attn_cp_rank", "moe_dp_rank")
"""Ranks that repeat the same figure (SGLang TP2 exports its KV capacity twice): one of them is taken.
Ranks that share the work (`dp_rank`, vLLM's `engine`) are added up."""

IMPOSSIBLE = 1e18
"""No count of tokens or requests, no size in bytes and no sum of seconds comes near."""
LINE_MAX = 2048
"""Characters of a sample's line; a longer one is not read (each series is kept)."""
SERIES_MAX = 16_384
"""Wanted lines of a scrape: 64 ranks have half as many. More would hold up everything else that is watched."""

HISTOGRAM_PARTS = ("_sum", "_count", "_bucket")


class Point(msgspec.Struct, frozen=True):
    """One sample of a scrape."""

    labels: Mapping[str, str]
    value: float


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. `buckets` are (upper bound, cumulative count), ascending, the last bound infinite."""

    sum_s: float
    count: float
    buckets: tuple[tuple[float, float], ...] = ()

    def since(self, earlier: Histogram | None) -> Histogram:
        """What was added after `earlier` (None: everything)."""
        if earlier is None:
            return self
        before = dict(earlier.buckets)
        buckets = tuple((bound, count - before.get(bound, 0.0)) for bound, count in self.buckets)
        return Histogram(sum_s=self.sum_s - earlier.sum_s, count=self.count - earlier.count, buckets=buckets)


EMPTY = Histogram(sum_s=0.0, count=0.0)


class Scrape:
    """Wanted samples by name. `unreadable` counts lines that were no samples."""

    def __init__(self, points: Mapping[str, tuple[Point, ...]], unreadable: int = 0) -> None:
        self._points = points
        self.unreadable = unreadable

    def has(self, name: str) -> bool:
        return name in self._points

    @property
    def empty(self) -> bool:
        return not self._points

    def points(self, name: str, **where: str) -> tuple[Point, ...]:
        """One sample per distinct thing measured: ranks that repeat each other and parts of a total left out."""
        points = self._points.get(name, ())
        matching = [p for p in points if all(p.labels.get(key) == value for key, value in where.items())]
        return tuple(_one_rank(_totals(matching)))

    def total(self, name: str, **where: str) -> float | None:
        """Sum over what shares the work; None if there is no sample or one can't be (`impossible`)."""
        points = self.points(name, **where)
        return math.fsum(point.value for point in points) if points and all(map(_possible, points)) else None

    def mean(self, name: str) -> float | None:
        """Mean over what shares the work, for shares of equal wholes (KV use per data-parallel engine)."""
        total = self.total(name)
        return None if total is None else total / len(self.points(name))

    def impossible(self, name: str) -> str | None:
        """The first value that no count, size or share has: negative, without end, NaN; None without."""
        odd = (point.value for point in self.points(name) if not _possible(point))
        return next(("NaN" if math.isnan(value) else f"{value:g}" for value in odd), None)

    def histogram(self, name: str) -> Histogram | None:
        """Added over label sets; None if the scrape has no such histogram."""
        count, total = self.total(f"{name}_count"), self.total(f"{name}_sum")
        if count is None or total is None:
            return None
        buckets: dict[float, float] = {}
        points = self.points(f"{name}_bucket")
        for point in points if all(map(_possible, points)) else ():  # quantiles over some of them would be others
            bound = _number(point.labels.get("le", ""))
            if bound is not None and not math.isnan(bound):
                buckets[bound] = buckets.get(bound, 0.0) + point.value
        return Histogram(sum_s=total, count=count, buckets=tuple(sorted(buckets.items())))


def wanted_names(metrics: Iterable[str], histograms: Iterable[str] = ()) -> frozenset[str]:
    """The sample names to let through for these metrics."""
    return frozenset(metrics) | {name + part for name in histograms for part in HISTOGRAM_PARTS}


def parse(text: str, wanted: frozenset[str]) -> Scrape:
    """Never raises: a line that can't be read is counted; more than `SERIES_MAX` are not read at all.

    A metric under another spelling of its name is taken where the scrape does not have it under its own (see
    `spellings`)."""
    points: dict[str, list[Point]] = {}
    other: dict[str, list[Point]] = {}
    unreadable = wanted_lines = 0
    known = spellings(wanted)
    for line in text.removeprefix("\ufeff").splitlines():
        typed = _name_of(line)
        name = known.get(typed)
        if name is None:
            continue
        wanted_lines += 1
        if wanted_lines > SERIES_MAX:
            return Scrape({}, wanted_lines)  # a sum over some of them would be a lie
        try:
            point = _read(line)
        except (ValueError, KeyError, IndexError):
            unreadable += 1
        else:
            (points if name == typed else other).setdefault(name, []).append(point)
    return Scrape({name: tuple(seen) for name, seen in (other | points).items()}, unreadable)


@lru_cache(maxsize=64)
def spellings(wanted: frozenset[str]) -> Mapping[str, str]:
    """Spelling -> name as wanted. OpenMetrics writes `sglang_x` for `sglang:x`, some relays drop the prefix, and
    exporters that are not Python's leave a counter's `_total` out."""
    known: dict[str, str] = {}
    for name in wanted:
        prefix, colon, bare = name.partition(":")
        forms = [f"{prefix}_{bare}", bare] if colon else []
        if name.endswith("_total"):
            forms += [form.removesuffix("_total") for form in (name, *forms)]
        known |= {form: name for form in forms if form not in wanted}
    return known | {name: name for name in wanted}


def latency(histogram: Histogram, over_s: float | None) -> Latency | None:
    """None if nothing was counted. See `reading.Latency` for what a quantile is."""
    if histogram.count < 1 or histogram.sum_s < 0:
        return None
    return Latency(
        mean_ms=histogram.sum_s / histogram.count * 1000,
        count=histogram.count,
        over_s=over_s,
        p50_ms=_quantile_ms(histogram, 0.5),
        p99_ms=_quantile_ms(histogram, 0.99),
    )


def _quantile_ms(histogram: Histogram, share: float) -> float | None:
    """The bucket's upper bound. The first bucket and the open one bound it on one side only: None."""
    for position, (bound, count) in enumerate(histogram.buckets):
        if count >= share * histogram.count:
            return bound * 1000 if position > 0 and math.isfinite(bound) else None
    return None


def _name_of(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0]


def _read(line: str) -> Point:
    """Raises ValueError, KeyError or IndexError. A time stamp after the value is left out."""
    if len(line) > LINE_MAX:
        raise ValueError(f"a line of {len(line)} characters")
    end = line.rfind("}") + 1 or line.find(" ")
    return Point(_series(line[:end]), float(line[end:].split()[0]))


@lru_cache(maxsize=SERIES_MAX)
def _series(text: str) -> Mapping[str, str]:
    """Labels of a line without its value: the same in every scrape, so each is parsed once."""
    for family in text_string_to_metric_families(f"{text} 0\n"):
        for sample in family.samples:
            return sample.labels
    raise ValueError(f"no sample: {text[:80]!r}")


def _possible(point: Point) -> bool:
    """What is counted or sized is neither negative nor without end."""
    return 0 <= point.value < IMPOSSIBLE


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _totals(points: list[Point]) -> list[Point]:
    """SGLang's `priority=""` is the total of the other priorities: the parts are not added to it."""
    whole = [point for point in points if not point.labels.get("priority")]
    return whole or points


def _one_rank(points: list[Point]) -> Iterator[Point]:
    chosen: dict[tuple[tuple[str, str], ...], tuple[tuple[float, ...], Point]] = {}
    for point in points:
        # a rank is a process: where both are told, the pid (of Python's multi-process mode) says nothing more
        same = (*REPLICA_LABELS, "pid") if any(label in point.labels for label in REPLICA_LABELS) else ()
        rest = tuple(sorted(item for item in point.labels.items() if item[0] not in same))
        rank = tuple(_number(point.labels.get(label, "0")) or 0.0 for label in REPLICA_LABELS)
        if rest not in chosen or rank < chosen[rest][0]:
            chosen[rest] = (rank, point)
    for _, point in chosen.values():
        yield point
