"""The decode step over the whole screen: bars, a table of kinds, idle, coverage, kernels with full names, captures."""

from __future__ import annotations

from decodetop.core import words
from decodetop.steps import text
from decodetop.steps.reading import Capture, RankSteps, StepsReading, TopKernel
from decodetop_tui.paint import Span, View
from decodetop_tui.panes._cells import cells, clip_middle, wrap
from decodetop_tui.panes._page import INDENT, Page
from decodetop_tui.panes._stepbar import Part
from decodetop_tui.panes._stephistory import draw_captures, draw_kept_steps
from decodetop_tui.panes._steplines import (
    KERNELS,
    believable,
    coverage_lines,
    estimated_line,
    idle_lines,
    kernel_cells,
    parts_of,
    per_token,
    rank_bars,
    short_name,
    summary,
    tenths,
    totals_lines,
)
from decodetop_tui.panes._table import Column, Table

KIND = "kind:"
"""Begins the row of a kind, `kind:RANK:copy`, and the filter that Enter on it sets, `kind:copy`."""
_NAME_LINES = 6


def draw(page: Page, reading: StepsReading, capture: Capture, view: View, mode: str) -> None:
    """Everything known of `capture`, for the rank under the cursor (the first one otherwise); or two compared."""
    pair = reading.before_and_after
    if pair is not None:
        page.heading("compared", Span("  c  ends it", "dim"))
        found = text.compare(*(one.report for one in pair))
        page.extend([[Span(line)] for line in text.comparison_lines(found, page.width)])
        draw_captures(page, reading, view)
        return
    ranks = capture.report.ranks
    page.extend([[INDENT, Span("error", "bad"), Span(f": {error}")] for error in capture.report.errors])
    if not ranks:
        page.add(INDENT, Span("no rank of this capture could be read", "bad"))
        return
    number = (view.cursor or "").split(":")[1:2]
    rank = next((rank for rank in ranks if [str(rank.rank)] == number), ranks[0])
    page.extend(coverage_lines(ranks))
    page.extend(summary(rank, apart=True))
    for at, line in enumerate(wrap(_steps_words(rank, len(ranks)), page.width - 12, 3)):
        page.add(INDENT, Span("steps     " if at == 0 else " " * 10, "dim"), Span(line, "dim"))
    page.blank()
    estimated = estimated_line(rank, len(ranks), view.width)
    if estimated:
        page.add(*estimated)
    page.extend_rows(rank_bars(ranks, mode, view.width))
    if capture.report.straggler_rank is not None:
        page.add(INDENT, Span(f"rank {capture.report.straggler_rank} is the straggler", "warn"), Span(": others wait"))
    page.extend([[INDENT, Span("note", "dim"), Span(f": {one}")] for one in rank.coverage.problems if rank.coverage.ok])
    if not believable(rank):
        page.extend(totals_lines(rank))
    else:
        _kinds(page, rank, mode, capture.report.accept_length)
        page.extend(idle_lines(rank, page.width))
        _unknown(page, rank)
        draw_kept_steps(page, rank)
        _kernels(page, rank, view)
    draw_captures(page, reading, view)


def _steps_words(rank: RankSteps, ranks: int) -> str:
    """Which rank and steps the figures stand on: those of the rank in focus, the dashboard's are the first's."""
    parts = [text.steps_words(rank)]
    if rank.representative_step is not None:
        of = f"rank {rank.rank}, " if ranks > 1 else ""
        parts.append(f"figures of {of}step {rank.representative_step}")
    if rank.period_us is not None:
        period = rank.period_us
        parts.append(f"median {period.median:,.0f} us (p10 {period.p10:,.0f}, p90 {period.p90:,.0f})")
    if rank.steps.dropped:
        parts.append(f"left out: {text.dropped_words(rank)}")
    parts += [f"{count} {name}" for name, count in rank.steps.other.items() if count]
    if rank.kernels_per_step is not None:
        parts.append(f"{rank.kernels_per_step} kernels and {rank.graph_launches_per_step or 0} graph launches a step")
    if rank.unreadable_events:
        parts.append(f"{rank.unreadable_events} events unreadable")
    return " · ".join(parts)


def _kinds(page: Page, rank: RankSteps, mode: str, accept_length: float | None) -> None:
    tokens = per_token(mode, rank, accept_length)
    unit = "us/token" if mode == "per token" else "us/step"
    table = Table(
        (
            Column("letter", "", 1, 9),
            Column("us", unit, 9, 9),
            Column("share", "%", 5, 8),
            Column("calls", "calls", 7, 6),
            Column("kind", "kind", 24, 9, "<"),
            Column("kernel", "kernel (top of kind)", 20, 3, "<", grow=400),
        ),
        page.width,
        headed=True,
    )
    page.blank()
    page.add(*table.header())
    if tokens is None:
        page.add(INDENT, Span("accept length unknown: us per token can't be told", "warn"))
    loudest = max((part.us for part in parts_of(rank, mode)), default=0.0)
    for part in sorted(parts_of(rank, mode), key=lambda part: (part.letter == "░", -part.us)):
        page.add(
            *table.row(_kind_cells(rank, part, tokens, part.us == loudest, table)),
            row=None if part.kind is None else f"{KIND}{part.kind}",
        )
    if rank.period_us is not None:
        total = words.UNKNOWN if tokens is None else f"{rank.period_us.representative / tokens:,.0f}"
        page.add(*table.row({"us": total, "share": "100.0", "kind": Span("all = profiled step", "dim")}))


def _kind_cells(rank: RankSteps, part: Part, tokens: float | None, loud: bool, table: Table) -> dict[str, Span | str]:
    waits = part.letter == text.WAITING
    top = None if waits else next((kernel for kernel in rank.top_kernels if kernel.kind == part.kind), None)
    us = words.UNKNOWN if tokens is None else f"{part.us / tokens:,.0f}"
    return {
        "letter": Span(part.letter, part.style),
        "us": Span(us, "loud" if loud else ""),
        "share": tenths(part.share),
        "calls": "" if part.kind is None or waits else words.number(part.calls),
        "kind": part.name,
        "kernel": "" if top is None else Span(clip_middle(short_name(top.name), max(table.size("kernel"), 1)), "dim"),
    }


def _unknown(page: Page, rank: RankSteps) -> None:
    if rank.unknown_share > text.UNKNOWN_SHOWN:
        names = ", ".join(kernel.name for kernel in rank.unknown_kernels[:3])
        page.add(INDENT, Span(f"{100 * rank.unknown_share:.1f} % of the step has no kind", "warn"), Span(f": {names}"))


def _kernels(page: Page, rank: RankSteps, view: View) -> None:
    wanted = view.filter.lower()
    found = [(at, kernel) for at, kernel in enumerate(rank.top_kernels) if _matches(kernel, wanted)]
    if not rank.top_kernels:
        return
    count = f"  {len(found)} of {len(rank.top_kernels)} match /{view.filter}" if wanted else ""
    page.heading(f"kernels of rank {rank.rank}", Span(count, "dim"))
    table = Table(KERNELS, page.width, headed=True)
    page.add(*table.header())
    for at, kernel in found:
        row = f"kernel:{rank.rank}:{at}"
        _kernel(page, table, kernel, row, open=view.cursor == row)


def _matches(kernel: TopKernel, wanted: str) -> bool:
    """A word anywhere in the name or kind, or `kind:copy` for all of that kind."""
    if wanted.startswith(KIND):
        return kernel.kind == wanted.removeprefix(KIND)
    return wanted in f"{kernel.name} {kernel.kind}".lower()


def _kernel(page: Page, table: Table, kernel: TopKernel, row: str, *, open: bool) -> None:
    """One line; the one under the cursor shows its whole name."""
    page.add(*table.row(kernel_cells(table, kernel)), row=row)
    if open and (short_name(kernel.name) != kernel.name or cells(kernel.name) > table.size("name")):
        for line in wrap(kernel.name, max(page.width - 6, 1), _NAME_LINES):
            page.add(Span("      "), Span(line, "dim"), row=row)
