"""What the steps pane and its zoomed form draw alike: the step in words, one bar a rank, what may not be believed."""

from __future__ import annotations

import re

from decodetop.core import words
from decodetop.steps import text
from decodetop.steps.reading import KINDS, LETTERS, RankSteps, TopKernel
from decodetop_tui.paint import Span
from decodetop_tui.panes._cells import cells, clean, clip_middle, join
from decodetop_tui.panes._page import INDENT
from decodetop_tui.panes._stepbar import Part, bar, group_parts, jitter, kind_parts, real_bar
from decodetop_tui.panes._table import Column, Table

KERNELS = (
    Column("letter", "", 1, 9),
    Column("us", "us/step", 9, 9),
    Column("share", "%", 5, 8),
    Column("calls", "calls", 7, 6),
    Column("name", "kernel", 20, 9, "<", grow=400),
)


def coverage_lines(ranks: tuple[RankSteps, ...]) -> list[list[Span]]:
    """Which ranks' figures may not be believed, and why; nothing when all may."""
    by_problem: dict[str, list[str]] = {}
    for rank in ranks:
        if not rank.coverage.ok:
            why = "; ".join(rank.coverage.problems) or "no reason given"
            by_problem.setdefault(why, []).append(str(rank.rank))
    lines = []
    for why, found in by_problem.items():
        where = "" if len(found) == len(ranks) else f"rank {', '.join(found)}: "
        lines.append([INDENT, Span("totals only", "warn"), Span(f": {where}{why}")])
    return lines


def summary(rank: RankSteps, apart: bool) -> list[list[Span]]:
    """The real step and the profiled one, both named; in one line or two."""
    if apart:
        return [[INDENT, *_real(rank, "  (estimated from {})")], [INDENT, *_profiled(rank, True)]]
    if rank.real is None:
        return [[INDENT, *_tight(_profiled(rank, False)), Span("  no ITL beside this capture", "dim")]]
    return [[INDENT, *join([_tight(_real(rank, " est.")), _tight(_profiled(rank, False))], "  ")]]


def _tight(line: list[Span]) -> list[Span]:
    """Without the blanks that align one line with another."""
    words_of = [Span(re.sub(r"\s+", " ", span.text.strip()), span.style) for span in line if span.text.strip()]
    return join([[span] for span in words_of], " ")


def _figure(label: str, ms: float | None, style: str) -> list[Span]:
    return [Span(f"{label:<8} ", "dim"), Span(f"{words.significant(ms):>5}", style), Span(" ms", "dim")]


def _real(rank: RankSteps, how: str) -> list[Span]:
    if rank.real is None:
        return [*_figure("real", None, ""), Span("  no ITL beside this capture", "dim")]
    line = _figure("real", rank.real.step_ms, "loud")
    if rank.real.problem is not None:
        return [*line, Span("  "), Span(rank.real.problem, "warn")]
    if rank.real.idle_share is None:
        return line
    idle = Span(f"{100 * rank.real.idle_share:3.0f} %")
    return [*line, Span("  idle ", "dim"), idle, Span(how.format(rank.real.source.upper()), "dim")]


def _profiled(rank: RankSteps, stretch: bool) -> list[Span]:
    if rank.period_us is None:
        return [*_figure("profiled", None, ""), Span("  no whole step in the trace", "dim")]
    period_ms = rank.period_us.representative / 1e3
    line = _figure("profiled", period_ms, "loud" if rank.real is None else "")
    if rank.idle_us is not None and period_ms > 0:
        line += [Span("  idle ", "dim"), Span(f"{0.1 * rank.idle_us / period_ms:3.0f} %")]
    if stretch and rank.real is not None and rank.real.step_ms > 0 and period_ms > 1.15 * rank.real.step_ms:
        line.append(Span(f"  stretched {period_ms / rank.real.step_ms:.1f}x", "dim"))
    return line


def parts_of(rank: RankSteps, mode: str) -> list[Part]:
    return group_parts(rank) if mode == "groups" else kind_parts(rank)


def rank_bars(ranks: tuple[RankSteps, ...], mode: str, width: int) -> list[tuple[list[Span], str]]:
    """One bar a rank on one scale, each with its row id."""
    room = bar_room(width, len(ranks))
    totals = [sum(part.us for part in kind_parts(rank)) for rank in ranks]
    longest = max(totals, default=0.0)
    lines = []
    for rank, total in zip(ranks, totals, strict=True):
        share = total / longest if longest > 0 else 1.0
        size = round(room * share) if words.known(share) else room
        line = [INDENT, Span(rank_label(f"rank {rank.rank}", len(ranks)), "dim")]
        line += bar(parts_of(rank, mode), size) if believable(rank) else [Span("totals only", "warn")]
        line += [Span(" " * (room - size + 1)), Span(jitter(rank, _jitter_room(width)), "dim")]
        lines.append((line, f"rank:{rank.rank}"))
    return lines


def rank_label(text: str, ranks: int) -> str:
    return f"{text:<8}" if ranks > 1 else ""


def _jitter_room(width: int) -> int:
    return 0 if width < 50 else min(30, width // 8)


def bar_room(width: int, ranks: int) -> int:
    return max(3, min(160, width - 4 - (8 if ranks > 1 else 0) - _jitter_room(width) - 1))


def per_token(mode: str, rank: RankSteps, accept_length: float | None) -> float | None:
    """What to divide the step's figures by: tokens a step and stream; None when speculation hides it."""
    if mode != "per token":
        return 1.0
    if accept_length is not None and accept_length > 0:
        return accept_length
    speculative = bool(rank.batches) and "VERIFY" in rank.batches[0].label.upper()
    return None if speculative else 1.0


def estimated_line(rank: RankSteps, ranks: int, width: int) -> list[Span]:
    """The real step on the scale of the profiled bars; empty when its idle share is not known."""
    drawn = real_bar(rank, bar_room(width, ranks)) if believable(rank) else []
    return [INDENT, Span(rank_label("real", ranks), "dim"), *drawn, Span(" estimated", "dim")] if drawn else []


_BETWEEN = " · "


def idle_lines(rank: RankSteps, width: int) -> list[list[Span]]:
    """What the GPU waited for while idle, in us a step, no reason parted from its figure; nothing when not known."""
    said = text.idle_words(rank)
    lines = [""]
    for part in said.split(_BETWEEN):
        longer = f"{lines[-1]}{_BETWEEN}{part}" if lines[-1] else part
        lines = [*lines[:-1], longer] if cells(longer) <= width - 13 or not lines[-1] else [*lines, part]
    head = [Span("░", "kind.idle"), Span(" idle us  ", "dim")]
    return [[INDENT, *(head if at == 0 else [Span(" " * 11)]), Span(line)] for at, line in enumerate(lines) if said]


def totals_lines(rank: RankSteps) -> list[list[Span]]:
    """The whole trace by kinds: what may be said when no step can be shown."""
    totals = rank.totals
    if totals is None or not words.known(totals.span_us) or totals.span_us <= 0:
        return []
    found = sorted(((us, kind) for kind, us in totals.kinds_us.items() if words.known(us) and us > 0), reverse=True)
    line = [INDENT, Span("whole trace ", "dim"), Span(words.significant(totals.span_us / 1e3)), Span(" ms", "dim")]
    for us, kind in found:
        letter, style = (LETTERS[kind], f"kind.{kind}") if kind in KINDS else ("?", "kind.other")
        name = kind.replace("_", " ")
        line += [Span("  "), Span(letter, style), Span(f" {name} {100 * us / totals.span_us:.0f} %")]
    return [line]


def believable(rank: RankSteps) -> bool:
    """Whether there is a step that may be drawn."""
    return rank.coverage.ok and rank.period_us is not None


_NAME_NOISE = re.compile(r"^void |\(anonymous namespace\)::|at::native::")


def short_name(name: str) -> str:
    """A kernel's name without what nearly all of them share, so that what tells them apart is not cut off."""
    return _NAME_NOISE.sub("", clean(name))


def tenths(share: float) -> str:
    """A share in % to a tenth; what took time never reads 0.0."""
    return "<0.1" if 0 < share < 0.0005 else words.number(100 * share, 1)


def kernel_cells(table: Table, kernel: TopKernel) -> dict[str, Span | str]:
    """A kernel's line; of a long name both ends show."""
    kind = kernel.kind if kernel.kind in KINDS else "other"
    return {
        "letter": Span(LETTERS[kind], f"kind.{kind}"),
        "us": words.number(kernel.us_per_step, 1),
        "share": tenths(kernel.share),
        "calls": words.number(kernel.calls_per_step),
        "name": clip_middle(short_name(kernel.name), max(table.size("name"), 1)),
    }


def kernel_rows(width: int, rank: RankSteps, most: int) -> list[tuple[list[Span], str | None]]:
    """The kernels that take most, under a header, where the pane has rows to spare."""
    if not rank.top_kernels:
        return []
    table = Table(KERNELS, width, headed=True)
    rows: list[tuple[list[Span], str | None]] = [([], None), (table.header(), None)]
    for at, kernel in enumerate(rank.top_kernels[:most]):
        rows.append((table.row(kernel_cells(table, kernel)), f"kernel:{rank.rank}:{at}"))
    return rows
