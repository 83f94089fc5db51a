"""Trace files in, `StepsReport` out: read, cut into steps, attribute, compare the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from decodetop.errors import TraceError
from decodetop.steps import choose, coverage, kinds, ranks, repeat, segment
from decodetop.steps.context import NameTable
from decodetop.steps.kinds import Kinds
from decodetop.steps.reading import RankSteps, StepsReport, Totals
from decodetop.steps.rows import Process, Trace
from decodetop.steps.split import Ints
from decodetop.steps.summary import Figures, kinds_of, part_of, rank_of, rank_steps
from decodetop.steps.sweep import sweep
from decodetop.steps.timeline import Timeline, main_track
from decodetop.steps.trace import Progress, read_trace

COMPARED_STEPS = 40
"""Steps over which the ranks' waiting is added up to name a straggler."""

ProgressOf = Callable[[Path, Progress], None]


def analyse(
    paths: Sequence[Path | str],
    *,
    itl_ms: float | None = None,
    accept_length: float | None = None,
    step_label: str | None = None,
    kind_table: Kinds | None = None,
    progress: ProgressOf | None = None,
) -> StepsReport:
    """The report of the files given, the ranks of one capture.

    `itl_ms` is the unprofiled time per token, `accept_length` tokens per step when speculating. What `progress` raises
    ends the reading. A file that can't be used stands in `errors`; without any usable one `ranks` is empty.
    Raises UsageError for a bad `step_label`.
    """
    grammar = segment.user_grammar(step_label) if step_label else None
    table = kind_table or kinds.shipped()
    found: list[Figures] = []
    errors: list[str] = []
    try:
        for path in map(Path, paths):
            try:
                found += _file(path, grammar, table, progress, errors)
                if len(paths) > 1 and found:
                    # what is kept of a rank is looked at once more, in the end: memory must not grow with their number
                    found[-1].trace.spill.flush()
            except TraceError as error:
                errors.append(str(error))
        _number(found, errors)
        return _report(found, errors, itl_ms, accept_length)
    finally:
        for figures in found:
            figures.trace.close()


def _file(
    path: Path, grammar: segment.Grammar | None, table: Kinds, progress: ProgressOf | None, errors: list[str]
) -> list[Figures]:
    wanted = partial(segment.may_label, own=grammar)
    trace = read_trace(path, wanted, partial(progress, path) if progress else None)
    with ExitStack() as unfinished:
        unfinished.callback(trace.close)
        found = [_rank(trace, process, grammar, table) for process in trace.processes if process.gpu.count]
        if found:
            unfinished.pop_all()
    if not found:
        damage = "".join(f"; {problem}" for problem in coverage.damage_of(trace))
        errors.append(f"{path}: no GPU events among {trace.events:,}: not a worker's trace, left out{damage}")
    return found


def _rank(trace: Trace, process: Process, grammar: segment.Grammar | None, table: Kinds) -> Figures:
    _, device = main_track(trace, process)
    names = NameTable(trace, table)
    timeline, labels = _cut(trace, process, names, grammar)
    windows = choose.windows_of(timeline.first_start)
    starts, ends = _times(windows, "start"), _times(windows, "end")
    sums = sweep(timeline, names, starts, ends, trace.spill)
    choice = choose.choose(labels.found, windows, sums, timeline.lost[1:])
    best = choose.representative(choice.kept, windows) if choice.kept else None
    seen = coverage.check(trace, timeline, labels, windows, sums, choice, best)
    totals = None if seen.ok else _totals(trace, timeline, names)
    timeline.free()
    rank = process.rank if process.rank is not None else rank_of(trace.path)
    return Figures(
        trace=trace,
        labels=labels,
        windows=windows,
        sums=sums,
        choice=choice,
        representative=best,
        coverage=seen,
        rank=trace.rank if rank is None and trace.rank is not None else -1 if rank is None else rank,
        device=trace.devices.get(device) if isinstance(device, int) else None,
        part=process.tag or part_of(trace.path),
        totals=totals,
    )


def _cut(
    trace: Trace, process: Process, names: NameTable, grammar: segment.Grammar | None
) -> tuple[Timeline, segment.Labels]:
    """Labels and the start of each step's GPU work: by the launches, by Kineto's copies, or by what repeats."""
    track, _ = main_track(trace, process)
    labels = segment.labels_of(process.notes, track, grammar, on_gpu=False)
    timeline = Timeline(trace, process, _times(labels.found, "start"), _times(labels.found, "end"))
    if labels.capturing or (timeline.first_start < np.iinfo(np.int64).max).any():
        return timeline, labels
    copies = segment.labels_of(process.notes, track, grammar, on_gpu=True)
    if copies.found:
        # Kineto starts the copy of a label on a stream 1 ns before the label's first event there
        timeline.restart(_times(copies.found, "start") + 1)
        return timeline, copies
    if labels.found or grammar is not None:
        return timeline, labels
    repeats = repeat.find(timeline, names)
    timeline.restart(repeats.first_start)
    vllm = trace.vllm or any("vllm::" in name for _, name in trace.names)
    return timeline, segment.Labels(repeats.labels, "vllm" if vllm else "unknown", False, False)


def _times(spans: Sequence[segment.Label | choose.Window], side: str) -> Ints:
    return np.array([getattr(span, side) for span in spans], np.int64)


def _totals(trace: Trace, timeline: Timeline, names: NameTable) -> Totals:
    """Over the whole trace, where no step can be shown."""
    span = np.array([timeline.start]), np.array([timeline.end])
    sums = sweep(timeline, names, *span, trace.spill)
    kinds_us = kinds_of(sums.kinds[0], timeline.end - timeline.start)
    return Totals(span_us=(timeline.end - timeline.start) / 1000, kinds_us=kinds_us, kernels=int(sums.kernels[0]))


def _number(found: list[Figures], errors: list[str]) -> None:
    """TP ranks as named; in the order given where a name is missing or said twice, as by replicas and stages."""
    named = [figures.rank for figures in found]
    if len(set(named)) == len(named) and -1 not in named:
        found.sort(key=lambda figures: figures.rank)
        return
    parts = [(figures.rank, figures.part) for figures in found]
    twice = sorted({rank for rank, part in parts if parts.count((rank, part)) > 1})
    if twice and -1 not in named:
        errors.append(
            f"several files say they are rank {', '.join(map(str, twice))}; numbered in the order given "
            "(two captures are compared with `decodetop steps compare A.. --to B..`)"
        )
    for number, figures in enumerate(found):
        figures.rank = number


def _report(found: list[Figures], errors: list[str], itl_ms: float | None, accept_length: float | None) -> StepsReport:
    step_ms = None if itl_ms is None else itl_ms * (accept_length or 1.0)
    reports: list[RankSteps] = []
    for figures in found:
        speculative = figures.labels.speculative and accept_length is None
        caution = "the server speculates: the ITL is per token, so give --accept-length too" if speculative else None
        reports.append(rank_steps(figures, _transfer_ns(found, figures), step_ms, caution))
    engines = [figures.labels.engine for figures in found if figures.labels.engine != "unknown"]
    return StepsReport(
        engine=engines[0] if engines else "unknown",
        itl_ms=itl_ms,
        accept_length=accept_length,
        ranks=tuple(reports),
        straggler_rank=_straggler(found),
        errors=tuple(errors),
    )


def _transfer_ns(found: Sequence[Figures], figures: Figures) -> int | None:
    if figures.shown is None:
        return None
    step = _same_step(found, figures, figures.shown)
    return None if step is None else ranks.transfer_ns(step)


def _same_step(found: Sequence[Figures], figures: Figures, window: int) -> list[ranks.Collectives] | None:
    """The collectives of one step on every rank, in the order of `found`."""
    collected = []
    for other in found:
        number = window if other is figures else _matching(figures, other, window)
        if number is None:
            return None
        rows = other.sums.collectives_of(number)
        names = [other.trace.names[name][1] for name in rows["name"].tolist()]
        collected.append(ranks.number(names, rows["ns"]))
    return collected


def _matching(figures: Figures, other: Figures, window: int) -> int | None:
    """The same step's window: by time on the GPU, where ranks keep in step; without a common clock by its number."""
    mine = figures.windows[window]
    numbered = next((number for number, one in enumerate(other.windows) if one.label == mine.label), None)
    base, their_base = figures.trace.base_ns, other.trace.base_ns
    if (base is None) != (their_base is None):
        return numbered
    start = mine.start + (base or 0) - (their_base or 0)
    alike = numbered if len(figures.labels.found) == len(other.labels.found) else None
    return ranks.same_step(start, mine.period, _times(other.windows, "start"), alike)


def _straggler(found: Sequence[Figures]) -> int | None:
    """The rank the others wait for, over the kept steps."""
    if len(found) < 2 or any(figures.shown is None for figures in found):
        return None
    first = found[0]
    every = max(1, len(first.choice.kept) // COMPARED_STEPS)
    waiting = np.zeros(len(found))
    steps = 0
    for window in first.choice.kept[::every]:
        step = _same_step(found, first, window)
        shortest = None if step is None else ranks.transfer_ns(step)
        if step is not None and shortest is not None:
            waiting += [sum(rank.values()) - shortest for rank in step]
            steps += 1
    if not steps:
        return None
    period_ns = first.windows[first.choice.kept[0]].period
    place = ranks.straggler((waiting / steps).tolist(), period_ns)
    return None if place is None else found[place].rank
