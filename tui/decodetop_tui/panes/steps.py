"""Where a decode step's time goes: one stacked bar a rank, the real step beside the profiled one, kinds and kernels."""

from __future__ import annotations

import re
from itertools import chain

from decodetop.core import words
from decodetop.core.state import State
from decodetop.server.reading import ENGINE_NAMES
from decodetop.steps.reading import Capture, Parsing, RankSteps, StepsReading
from decodetop_tui.paint import Picture, Span, View
from decodetop_tui.panes import _stepzoom
from decodetop_tui.panes._cells import clip_middle, join, pad
from decodetop_tui.panes._lines import progress
from decodetop_tui.panes._page import INDENT, Page, note_of, trouble
from decodetop_tui.panes._stepbar import Part, bar, group_parts, jitter, kind_parts, real_bar
from decodetop_tui.panes._table import boxed

TITLE = "decode step"
KEY = "5"
SOURCES: tuple[str, ...] = ("steps",)
MODES: tuple[str, ...] = ("kinds", "groups", "per token")

LEGEND_CELLS = 29


def want(state: State, width: int) -> tuple[int, int]:
    """Summary, bar and a legend line at least; wanted: real and profiled apart, all bars and kinds."""
    reading = state.last("steps", StepsReading)
    if reading is None or not reading.captures:
        return 1, 3
    ranks = reading.captures[0].report.ranks
    kinds = max((len(kind_parts(rank)) for rank in ranks), default=1)
    legend = -(-kinds // _legend_columns(width))
    return 3, 3 + len(ranks) + legend + (reading.parsing is not None)


def draw(state: State, view: View) -> Picture:
    page = Page(view)
    page.extend(trouble(state, "steps") if state.lane("steps").failure else [])
    reading = state.last("steps", StepsReading) or StepsReading()
    if reading.parsing is not None:
        page.extend(parsing_lines(reading.parsing, view.width))
    if reading.last_error is not None:
        page.add(INDENT, Span("not read", "bad"), Span(f": {reading.last_error}"))
    if not reading.captures:
        if reading.parsing is None:
            page.extend(_empty(reading))
        return page.picture(note_of(state, "steps", view.width))
    capture = reading.captures[0]
    mode = MODES[view.mode % len(MODES)]
    if view.zoomed:
        _stepzoom.draw(page, reading, view, mode)
    else:
        _compact(page, capture, view, mode)
    return page.picture(note_of(state, "steps", view.width, *_note(capture)))


def _empty(reading: StepsReading) -> list[list[Span]]:
    first = [INDENT, Span("no trace yet")] if reading.last_error is None else [INDENT, Span("nothing to show", "dim")]
    return [
        first,
        [INDENT, Span("o", "key"), Span(" opens a trace (torch.profiler, .json or .json.gz; several files = ranks)")],
    ]


def parsing_lines(parsing: Parsing, width: int) -> list[list[Span]]:
    """The trace being read: how far, how fast, how long still."""
    share = parsing.done_bytes / parsing.total_bytes if parsing.total_bytes > 0 else 0.0
    name = parsing.files[0].rsplit("/", 1)[-1] if parsing.files else "trace"
    what = name if len(parsing.files) <= 1 else f"{len(parsing.files)} files"
    speed = f"{words.number_plain(parsing.mb_s):>4} MB/s"
    tail = f" {100 * share:3.0f} %  {speed}  {words.duration(parsing.eta_s):>5} left"
    room = max(4, min(40, width - len(tail) - 30))
    name_room = max(8, width - room - len(tail) - 15)
    return [
        [
            INDENT,
            Span("reading ", "title"),
            Span(clip_middle(what, name_room) + " "),
            Span(progress(share, room)),
            Span(tail),
        ]
    ]


def _note(capture: Capture) -> list[str]:
    """Most telling first; narrow titles drop the rest."""
    report = capture.report
    made = "" if capture.made_wall_ns is None else f"capture {words.clock_time(capture.made_wall_ns)[:5]}"
    rank = report.ranks[0] if report.ranks else None
    batch = rank.batches[0].batch_size if rank is not None and rank.batches else None
    return [
        made,
        f"bs {batch}" if batch is not None else "",
        f"{len(report.ranks)} ranks" if len(report.ranks) > 1 else "",
        f"{rank.steps.used} of {rank.steps.found} steps" if rank is not None else "",
        ENGINE_NAMES[report.engine] if report.engine != "unknown" else "",
    ]


def _compact(page: Page, capture: Capture, view: View, mode: str) -> None:
    ranks = capture.report.ranks
    if not ranks:
        page.add(INDENT, Span("nothing could be read", "bad"), Span(": " + "; ".join(capture.report.errors)))
        return
    first = ranks[0]
    room = view.height - len(page.lines)
    page.extend(coverage_lines(ranks)[: max(1, room - 1)])
    legend = _legend(first, mode, view.width, capture.report.accept_length)
    split = room >= 3 + len(ranks) + len(legend)
    page.extend(summary(first, apart=split))
    if not first.coverage.ok:
        return
    spare = room - 2 * split - len(ranks) - len(legend)
    estimated = real_bar(first, bar_room(view.width, len(ranks)))
    if estimated and spare > 0 and split:
        page.add(INDENT, Span(rank_label("real", len(ranks)), "dim"), *estimated, Span(" estimated", "dim"))
    page.extend_rows(rank_bars(ranks, mode, view.width))
    page.extend(legend)


def coverage_lines(ranks: tuple[RankSteps, ...]) -> list[list[Span]]:
    """Which rank's figures may not be believed, and why; nothing when all may."""
    lines = []
    for rank in ranks:
        if not rank.coverage.ok:
            why = "; ".join(rank.coverage.problems) or "no reason given"
            where = f"rank {rank.rank}: " if len(ranks) > 1 else ""
            lines.append([INDENT, Span("totals only", "warn"), Span(f": {where}{why}")])
    return lines


def summary(rank: RankSteps, apart: bool) -> list[list[Span]]:
    """The real step and the profiled one, both named; in one line or two."""
    if apart:
        return [[INDENT, *_real(rank, "  (estimated from {})")], [INDENT, *_profiled(rank, True)]]
    return [[INDENT, *_tight(join([_real(rank, " est."), _profiled(rank, False)]))]]


def _tight(line: list[Span]) -> list[Span]:
    """Without the blanks that align one line with another."""
    return [Span(re.sub(" {2,}", " ", span.text) if span.text.strip() else span.text, span.style) for span in line]


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
        line.append(Span(f"  stretched {period_ms / rank.real.step_ms:.1f}x by the profiler", "dim"))
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
        size = round(room * total / longest) if longest > 0 else room
        line = [INDENT, Span(rank_label(f"rank {rank.rank}", len(ranks)), "dim")]
        line += bar(parts_of(rank, mode), size) if rank.coverage.ok else [Span("totals only", "warn")]
        line += [Span(" " * (room - size + 1)), Span(jitter(rank, _jitter_room(width)), "dim")]
        lines.append((line, f"rank:{rank.rank}"))
    return lines


def rank_label(text: str, ranks: int) -> str:
    return f"{text:<8}" if ranks > 1 else ""


def _jitter_room(width: int) -> int:
    return 0 if width < 50 else min(30, width // 8)


def bar_room(width: int, ranks: int) -> int:
    return max(3, min(160, width - 4 - (8 if ranks > 1 else 0) - _jitter_room(width) - 1))


def _legend_columns(width: int) -> int:
    return max(1, (width - 2) // LEGEND_CELLS)


def per_token(mode: str, rank: RankSteps, accept_length: float | None) -> float | None:
    """What to divide the step's figures by: tokens a step and stream; None when speculation hides it."""
    if mode != "per token":
        return 1.0
    if accept_length is not None and accept_length > 0:
        return accept_length
    speculative = bool(rank.batches) and "VERIFY" in rank.batches[0].label.upper()
    return None if speculative else 1.0


def _legend(rank: RankSteps, mode: str, width: int, accept_length: float | None) -> list[list[Span]]:
    parts = sorted(parts_of(rank, mode), key=lambda part: -part.us)
    tokens = per_token(mode, rank, accept_length)
    columns = _legend_columns(width)
    size = (width - 2) // columns
    figures = [words.UNKNOWN if tokens is None else f"{part.us / tokens:,.0f}" for part in parts]
    us_room = max(map(len, figures), default=0)
    name_room = max(1, size - us_room - 14)
    boxes = []
    for part, us in zip(parts, figures, strict=True):
        name = Span(f" {pad(part.name, name_room)} ")
        share = Span(f"{100 * part.share:3.0f} %")
        boxes.append(
            boxed([Span(part.letter, part.style), name, Span(f"{us:>{us_room}}"), Span(" us ", "dim"), share], size)
        )
    return [[INDENT, *chain(*boxes[at : at + columns])] for at in range(0, len(boxes), columns)]
