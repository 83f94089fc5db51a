"""Two captures beside each other, as figures and in words. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from decodetop.core.outside import escape, plain
from decodetop.core.words import UNKNOWN, number
from decodetop.steps.reading import KINDS, TOP_KERNELS, Comparison, Delta, RankSteps, StepsReport, TopKernel
from decodetop.steps.wording import brief, clip

KERNELS_SHOWN = 24
MARKDOWN_KERNELS = 10
CHANGED_US = 0.1


class _Side(NamedTuple):
    us: float | None = None
    calls: float | None = None
    share: float | None = None


def compare(before: StepsReport, after: StepsReport) -> Comparison:
    """What changed from `before` to `after`, of the first rank that has a step in both, else of the first of each."""
    both = {rank.rank for rank in _whole(before)} & {rank.rank for rank in _whole(after)}
    first, second = _shown(before, both), _shown(after, both)
    problems = _problems("before", before, first) + _problems("after", after, second)
    if first is not None and second is not None:
        problems += _unlike(first, second)
        if len(before.ranks) != len(after.ranks):
            count = (
                f"{len(before.ranks)} rank{'s' if len(before.ranks) > 1 else ''} before and {len(after.ranks)} after"
            )
            problems.append(f"{count}: each does another share of the work")
    return Comparison(
        before_files=tuple(rank.file for rank in before.ranks),
        after_files=tuple(rank.file for rank in after.ranks),
        period=_delta("period", "", _period(first), _period(second)),
        kinds=_kinds(first, second),
        kernels=_kernels(first, second),
        problems=tuple(problems),
        errors=(*before.errors, *after.errors),
    )


def _whole(report: StepsReport) -> list[RankSteps]:
    return [rank for rank in report.ranks if rank.period_us is not None]


def _shown(report: StepsReport, wanted: Collection[int]) -> RankSteps | None:
    whole = _whole(report)
    return next((rank for rank in whole if rank.rank in wanted), whole[0] if whole else None)


def _problems(side: str, report: StepsReport, shown: RankSteps | None) -> list[str]:
    if not report.ranks:
        return [f"{side}: nothing could be read"]
    return [f"{side}: {problem}" for problem in (shown or report.ranks[0]).coverage.problems]


def _unlike(first: RankSteps, second: RankSteps) -> list[str]:
    """What makes the two steps different things."""
    found = []
    before, after = (rank.batches[0].batch_size if rank.batches else None for rank in (first, second))
    if before != after:
        known = None not in (before, after)
        sizes = f"the batch sizes differ ({before} and {after})" if known else "the batch size of one is not known"
        found.append(f"{sizes}: the steps {'' if known else 'may '}do different work")
    if first.rank != second.rank:
        found.append(f"rank {first.rank} is compared with rank {second.rank}")
    return found


def _period(rank: RankSteps | None) -> _Side:
    return _Side() if rank is None or rank.period_us is None else _Side(rank.period_us.representative)


def _delta(name: str, kind: str, before: _Side, after: _Side) -> Delta:
    """`before` and `after` as (us, calls, share), None where unknown."""
    change = None if before.us is None or after.us is None else round(after.us - before.us, 3)
    return Delta(
        name=name,
        kind=kind,
        before_us=before.us,
        after_us=after.us,
        delta_us=change,
        percent=100 * change / before.us if change is not None and before.us else None,
        before_share=before.share,
        after_share=after.share,
        before_calls=before.calls,
        after_calls=after.calls,
    )


def _kinds(first: RankSteps | None, second: RankSteps | None) -> tuple[Delta, ...]:
    made = []
    for kind in KINDS:
        before, after = _side_of_kind(first, kind), _side_of_kind(second, kind)
        if before.us or after.us:
            made.append(_delta(kind, kind, before, after))
    return tuple(made)


def _side_of_kind(rank: RankSteps | None, kind: str) -> _Side:
    period_us = _period(rank).us
    if rank is None or not period_us:
        return _Side()
    us = rank.kinds_us.get(kind, 0.0)
    return _Side(us, rank.calls_per_step.get(kind), us / period_us)


def _kernels(first: RankSteps | None, second: RankSteps | None) -> tuple[Delta, ...]:
    mine, theirs = _by_name(first), _by_name(second)
    made = []
    for name in {**mine, **theirs}:
        kind = (theirs.get(name) or mine[name]).kind
        made.append(_delta(name, kind, _side_of_kernel(mine, name, first), _side_of_kernel(theirs, name, second)))
    return tuple(sorted(made, key=lambda one: -abs(one.delta_us or 0.0)))


def _by_name(rank: RankSteps | None) -> dict[str, TopKernel]:
    """One entry a name; of a name that is of two kinds by context, the larger part."""
    found: dict[str, TopKernel] = {}
    for kernel in rank.top_kernels if rank is not None else ():
        found.setdefault(kernel.name, kernel)
    return found


def _side_of_kernel(found: Mapping[str, TopKernel], name: str, rank: RankSteps | None) -> _Side:
    """0 for a kernel that the step doesn't have; unknown where the list was cut short."""
    if name in found:
        kernel = found[name]
        return _Side(kernel.us_per_step, kernel.calls_per_step, kernel.share)
    whole = rank is not None and rank.period_us is not None and len(rank.top_kernels) < TOP_KERNELS
    return _Side(0.0, 0.0, 0.0) if whole else _Side()


def comparison_lines(found: Comparison, width: int = 100) -> list[str]:
    """Before, after and delta per kind and per kernel."""
    out = [f"before  {plain(', '.join(found.before_files))}", f"after   {plain(', '.join(found.after_files))}"]
    out += [f"note: {plain(problem)}" for problem in found.problems]
    out += ["", f"{'before us':>11} {'after us':>11} {'delta us':>11} {'':>7}  kind", _delta_line(found.period, width)]
    out += [_delta_line(delta, width) for delta in found.kinds]
    changed = [delta for delta in found.kernels if delta.delta_us is None or abs(delta.delta_us) >= CHANGED_US]
    out += ["", f"{'before us':>11} {'after us':>11} {'delta us':>11} {'':>7}  kernel"]
    return out + [_delta_line(delta, width) for delta in changed[:KERNELS_SHOWN]]


def _delta_line(delta: Delta, width: int) -> str:
    change = UNKNOWN if delta.delta_us is None else f"{delta.delta_us:+,.1f}"
    share = "" if delta.percent is None else f"{delta.percent:+.1f} %"
    figures = f"{number(delta.before_us, 1):>11} {number(delta.after_us, 1):>11} {change:>11} {share:>8}"
    return clip(f"{figures}  {delta.name.replace('_', ' ') if delta.name in KINDS else plain(delta.name)}", width)


def markdown_comparison(found: Comparison) -> list[str]:
    """Before and after as tables: of the kinds, which sum to the period, and of the kernels that changed."""
    out = _markdown_table("kind", (found.period, *found.kinds))
    changed = [one for one in found.kernels if one.delta_us is None or abs(one.delta_us) >= CHANGED_US]
    out += ["", *_markdown_table("kernel", changed[:MARKDOWN_KERNELS])] if changed else []
    return [*out, *(["", *(f"- {escape(problem)}" for problem in found.problems)] if found.problems else [])]


def _markdown_table(title: str, deltas: Sequence[Delta]) -> list[str]:
    out = [f"| {title} | before us | after us | delta us | % |", "|---|--:|--:|--:|--:|"]
    for delta in deltas:
        change = UNKNOWN if delta.delta_us is None else f"{delta.delta_us:+,.1f}"
        share = UNKNOWN if delta.percent is None else f"{delta.percent:+.1f}"
        cells = (number(delta.before_us, 1), number(delta.after_us, 1), change, share)
        name = delta.name.replace("_", " ") if delta.kind in ("", delta.name) else brief(delta.name)
        out.append(f"| {escape(name)} | {' | '.join(cells)} |")
    return out
