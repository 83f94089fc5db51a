"""One rank's figures, from sums in ns to the reading in us."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import numpy as np

from decodetop.steps.choose import Choice, Window, stages
from decodetop.steps.kinds import UNKNOWN
from decodetop.steps.reading import (
    GROUPS,
    IDLE_KINDS,
    KINDS,
    TOP_KERNELS,
    Batch,
    Communication,
    Coverage,
    Period,
    RankSteps,
    Real,
    StepBar,
    StepCounts,
    TopKernel,
    Totals,
    group_of,
)
from decodetop.steps.rows import Trace
from decodetop.steps.segment import Labels
from decodetop.steps.split import Ints
from decodetop.steps.sweep import Sums

BARS_MAX = 128
"""Steps of which the parts are kept, for a capture is stored whole."""
SLOWED_MAX = 0.03
"""So much longer than the real step the profiled one may be busy: in recordings with graphs the profiler adds 2 to 4 %
to the period. The GPU then has no idle time to speak of."""

_OTHER, _IDLE = KINDS.index("other"), KINDS.index("idle")
_PARTS = re.compile(r"(?<![a-z])(?:dp|pp|ep)-?\d+", re.IGNORECASE)
_FILE_RANKS = (re.compile(r"-TP-(\d+)"), re.compile(r"(?:^|_)tp(\d+)(?:_|\.|$)"), re.compile(r"(?:^|[_.-])rank_?(\d+)"))


class Figures(msgspec.Struct):
    """All that is known of one rank before the ranks are compared."""

    trace: Trace
    labels: Labels
    windows: list[Window]
    sums: Sums
    choice: Choice
    representative: int | None
    coverage: Coverage
    rank: int
    device: str | None
    part: str = ""
    totals: Totals | None = None

    @property
    def shown(self) -> int | None:
        """The representative window, unless the coverage forbids a per-step figure."""
        return self.representative if self.coverage.ok else None


def rank_of(path: Path) -> int | None:
    """The TP rank an engine wrote into the file's name."""
    found = (pattern.search(path.name) for pattern in _FILE_RANKS)
    return next((int(match[1]) for match in found if match), None)


def part_of(path: Path) -> str:
    """Which replica, stage or group of experts the file's name says: several have one TP rank."""
    return " ".join(_PARTS.findall(path.name)).lower()


def rank_steps(figures: Figures, transfer_ns: int | None, step_ms: float | None, caution: str | None) -> RankSteps:
    """The reading. `step_ms` is the unprofiled step, `caution` why its idle share can't be given."""
    choice, trace = figures.choice, figures.trace
    base = RankSteps(
        rank=figures.rank,
        file=str(trace.path),
        batches=_batches(figures),
        steps=StepCounts(
            found=choice.found, used=len(choice.kept), dropped=choice.dropped, other=stages(figures.labels.found)
        ),
        coverage=figures.coverage,
        totals=figures.totals,
        events=trace.events,
        unreadable_events=trace.unreadable,
        device_name=figures.device,
    )
    number = figures.shown
    if number is None:
        return base
    period_ns = figures.windows[number].period
    kinds_us = kinds_of(figures.sums.kinds[number], period_ns)
    communication = _communication(kinds_us["communication"], transfer_ns)
    busy_ns = int(figures.sums.kinds[number].sum())
    tops, unknown, calls = _kernels(figures, number, period_ns)
    return msgspec.structs.replace(
        base,
        period_us=_period(figures, number),
        busy_us=busy_ns / 1000,
        idle_us=(period_ns - busy_ns) / 1000,
        representative_step=figures.windows[number].label,
        kinds_us=kinds_us,
        groups_us=groups_of(kinds_us),
        idle_split_us={kind: int(figures.sums.idle[number, at]) / 1000 for at, kind in enumerate(IDLE_KINDS)},
        communication_us=communication,
        real=None if step_ms is None else _real(busy_ns / 1000, communication.waiting, step_ms, caution),
        kernels_per_step=_usual(figures.sums.kernels[list(choice.kept)]),
        graph_launches_per_step=_usual(figures.sums.graphs[list(choice.kept)]),
        top_kernels=tops,
        calls_per_step=calls,
        unknown_share=int(figures.sums.kinds[number, UNKNOWN]) / period_ns,
        unknown_kernels=unknown,
        kept_steps=_bars(figures),
    )


def kinds_of(sums_ns: Ints, span_ns: int) -> dict[str, float]:
    """us by KINDS; they sum to the span, for all are whole ns."""
    known = sums_ns[:UNKNOWN].copy()
    known[_OTHER] += sums_ns[UNKNOWN]
    known[_IDLE] = span_ns - int(sums_ns.sum())
    return {kind: int(known[at]) / 1000 for at, kind in enumerate(KINDS)}


def groups_of(kinds_us: dict[str, float]) -> dict[str, float]:
    """The same in four groups; added in ns so that no place is lost."""
    groups = dict.fromkeys(GROUPS, 0)
    for kind, us in kinds_us.items():
        groups[group_of(kind)] += round(us * 1000)
    return {group: ns / 1000 for group, ns in groups.items()}


def _usual(counts: Ints) -> int:
    """What most kept steps have: the median, one that occurs."""
    return int(np.sort(counts)[(len(counts) - 1) // 2])


def _batches(figures: Figures) -> tuple[Batch, ...]:
    made = []
    for size, numbers in figures.choice.batches:
        texts = {figures.labels.found[figures.windows[number].label].text for number in numbers}
        text = min(texts)
        made.append(Batch(batch_size=size, label=text if len(texts) == 1 else _pattern(text), steps_used=len(numbers)))
    return tuple(made)


def _pattern(label: str) -> str:
    """Labels that count up, `decode_step_3`, as one: `decode_step_*`."""
    return re.sub(r"\d+(?=\D*$)", "*", label)


def _period(figures: Figures, number: int) -> Period:
    periods = np.array([figures.windows[kept].period for kept in figures.choice.kept])
    p10, median, p90 = np.percentile(periods, (10, 50, 90))
    return Period(
        representative=figures.windows[number].period / 1000,
        median=float(median) / 1000,
        p10=float(p10) / 1000,
        p90=float(p90) / 1000,
    )


def _communication(owned_us: float, transfer_ns: int | None) -> Communication:
    """What of the time owned by collectives is transfer; the two sum to the kind."""
    if transfer_ns is None:
        return Communication()
    transfer = min(transfer_ns / 1000, owned_us)
    return Communication(transfer=transfer, waiting=round(owned_us - transfer, 3))


def _real(busy_us: float, waiting_us: float | None, step_ms: float, caution: str | None) -> Real:
    working_ms = (busy_us - (waiting_us or 0.0)) / 1000
    if caution is None and working_ms > step_ms * (1 + SLOWED_MAX):
        caution = (
            f"the GPU was busy {working_ms:.2f} ms in the profiled step, longer than the real one: "
            "another load, or the profiler slowed the kernels"
        )
    share = None if caution else max(0.0, 1 - working_ms / step_ms)
    return Real(step_ms=step_ms, idle_share=share, problem=caution)


def _kernels(
    figures: Figures, number: int, period_ns: int
) -> tuple[tuple[TopKernel, ...], tuple[TopKernel, ...], dict[str, float]]:
    """Top kernels, those of unknown kind, and calls by kind, of one window."""
    rows = figures.sums.names_of(number)
    keys, inverse = np.unique(rows[["name", "code"]], return_inverse=True)
    ns, calls = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    np.add.at(ns, inverse.reshape(-1), rows["ns"])
    np.add.at(calls, inverse.reshape(-1), rows["calls"])
    per_kind = dict.fromkeys(KINDS[:-1], 0.0)
    all_kernels: list[tuple[int, TopKernel]] = []
    for at in np.argsort(-ns, kind="stable").tolist():
        code = int(keys["code"][at])
        kind = KINDS[min(code, UNKNOWN) if code != UNKNOWN else _OTHER]
        per_kind[kind] += float(calls[at])
        kernel = TopKernel(
            name=figures.trace.names[int(keys["name"][at])][1],
            kind=kind,
            us_per_step=int(ns[at]) / 1000,
            calls_per_step=float(calls[at]),
            share=int(ns[at]) / period_ns,
        )
        all_kernels.append((code, kernel))
    unknown = tuple(kernel for code, kernel in all_kernels if code == UNKNOWN)
    return tuple(kernel for _, kernel in all_kernels[:TOP_KERNELS]), unknown[:TOP_KERNELS], per_kind


def _bars(figures: Figures) -> tuple[StepBar, ...]:
    every = -(-len(figures.choice.kept) // BARS_MAX)
    bars = []
    for at, kept in enumerate(figures.choice.kept):
        window = figures.windows[kept]
        kinds_us = kinds_of(figures.sums.kinds[kept], window.period)
        parts = {kind: us for kind, us in kinds_us.items() if us} if at % every == 0 else {}
        bar = StepBar(index=window.label, period_us=window.period / 1000, idle_us=kinds_us["idle"], kinds_us=parts)
        bars.append(bar)
    return tuple(bars)
