"""Where a decode step's time goes: one stacked bar a rank, the real step beside the profiled one, kinds and kernels."""

from __future__ import annotations

from itertools import chain

from decodetop.core import words
from decodetop.core.clock import SECOND_NS
from decodetop.core.state import State
from decodetop.server.reading import ENGINE_NAMES
from decodetop.steps import text
from decodetop.steps.reading import Capture, Parsing, RankSteps, StepsReading, Taking
from decodetop_tui.cells import width_of
from decodetop_tui.paint import Filter, Picture, Span, View
from decodetop_tui.panes import _stepzoom
from decodetop_tui.panes._cells import cells, clean, clip_middle, pad, wrap
from decodetop_tui.panes._lines import progress
from decodetop_tui.panes._page import INDENT, Page, any_server, note_of, taped, trouble
from decodetop_tui.panes._stepbar import kind_parts
from decodetop_tui.panes._stepfloor import diagnosing, diagnosis_lines, floor_line, under_way_lines
from decodetop_tui.panes._steplines import (
    believable,
    coverage_lines,
    estimated_line,
    idle_lines,
    kernel_rows,
    parts_of,
    per_token,
    rank_bars,
    summary,
    totals_lines,
)
from decodetop_tui.panes._table import boxed

TITLE = "decode step"
KEY = "5"
SOURCES: tuple[str, ...] = ("steps", "diagnosis", "floor", "server")
MODES: tuple[str, ...] = ("kinds", "groups", "per token")
FILTER: Filter | None = Filter("kernels", zoomed=True)

LEGEND_CELLS = 29


def want(state: State, width: int) -> tuple[int, int]:
    """Summary, bar and a legend line at least; wanted: real and profiled apart, all bars and kinds."""
    reading = state.last("steps", StepsReading)
    if reading is None or not reading.captures:
        return 1, 3
    ranks = reading.shown.report.ranks if reading.shown is not None else ()
    kinds = max((len(kind_parts(rank)) for rank in ranks), default=1)
    legend = -(-kinds // _legend_columns(width))
    busy = (reading.parsing is not None) + (reading.taking != Taking() or diagnosing(state))
    floor = state.lane("floor").last is not None
    return 3 + floor, 4 + len(ranks) + legend + busy + floor


def draw(state: State, view: View) -> Picture:
    page = Page(view)
    page.extend(trouble(state, "steps", view) if state.lane("steps").failure else [])
    reading = state.last("steps", StepsReading) or StepsReading()
    # a pane that holds little else may say it whole
    most = 1 if reading.captures and not view.zoomed else 3
    page.extend(diagnosis_lines(state, view.width, most))
    if not diagnosing(state):
        page.extend(taking_lines(reading.taking, state.now_ns, view.width, most))
    if reading.parsing is not None:
        page.extend(parsing_lines(reading.parsing, view.width))
    if reading.last_error is not None:
        page.add(INDENT, Span("not read", "bad"), Span(f": {reading.last_error}"))
    if not reading.captures:
        if reading.parsing is None and reading.taking.progress is None:
            page.extend(_empty(reading, any_server(state), taped(state)))
        page.extend(filter(None, [floor_line(state, view.width)]))
        return page.picture(note_of(state, "steps", view.width))
    capture = reading.shown
    assert capture is not None
    mode = MODES[view.mode % len(MODES)]
    head = 0
    if view.zoomed:
        page.extend(filter(None, [floor_line(state, view.width)]))
        _stepzoom.draw(page, reading, capture, view, mode)
    else:
        head = _compact(page, capture, view, mode, floor_line(state, view.width))
    return page.picture(note_of(state, "steps", view.width, *_note(capture)), head)


def _empty(reading: StepsReading, served: bool, on_tape: bool) -> list[list[Span]]:
    first = [INDENT, Span("no trace yet")] if reading.last_error is None else [INDENT, Span("nothing to show", "dim")]
    if on_tape:
        return [[INDENT, Span("no trace at this point of the tape")]]
    profiles = [Span("p", "key"), Span(" profiles the server  ")] if served else []
    opens = [Span("o", "key"), Span(" opens a trace (torch.profiler; several files = ranks)")]
    return [first, [INDENT, *profiles, *opens]]


def taking_lines(taking: Taking, now_ns: int, width: int, most: int = 1) -> list[list[Span]]:
    """The live server being profiled, or why that brought nothing, or what a dead capture left behind."""
    seen = taking.progress
    if seen is not None:
        spent = words.remaining((now_ns - seen.since_ns) / SECOND_NS)
        return under_way_lines("capturing", text.capture_words(seen), spent, width, most)
    if taking.left is not None:
        left = f": {clean(taking.left.endpoint)}, by a capture that died"
        return [[INDENT, Span("still profiled?", "warn"), Span(left), Span("  p", "key"), Span(" stops it")]]
    if taking.error is not None:
        lines = wrap(f"not captured: {taking.error}", width - 4, 2)
        return [
            [INDENT, Span(lines[0][:12], "bad"), Span(lines[0][12:])],
            *([INDENT, Span(line)] for line in lines[1:]),
        ]
    return []


def parsing_lines(parsing: Parsing, width: int) -> list[list[Span]]:
    """The trace being read: how far, how fast, how long still."""
    share = parsing.done_bytes / parsing.total_bytes if parsing.total_bytes > 0 else 0.0
    name = parsing.files[0].rsplit("/", 1)[-1] if parsing.files else "trace"
    what = name if len(parsing.files) <= 1 else f"{len(parsing.files)} files"
    speed = f"{words.number_plain(parsing.mb_s):>4} MB/s"
    tail = f" {100 * share:3.0f} %  {speed}  {words.remaining(parsing.eta_s):>5} left"
    what = clip_middle(clean(what), 30)
    room = max(4, min(40, width - len(tail) - cells(what) - 12))
    return [[INDENT, Span("reading ", "title"), Span(f"{what} "), Span(progress(share, room)), Span(tail)]]


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


def _compact(page: Page, capture: Capture, view: View, mode: str, floor: list[Span]) -> int:
    """Returns how many lines stay when the rest scrolls: down to the real and the profiled step."""
    ranks = capture.report.ranks
    if not ranks:
        page.add(INDENT, Span("nothing could be read", "bad"), Span(": " + "; ".join(capture.report.errors)))
        return 0
    first = ranks[0]
    room = view.height - len(page.lines)
    problems = coverage_lines(ranks)
    page.extend(problems[: max(1, room - 1)])
    legend = _legend(first, mode, view.width, capture.report.accept_length) if believable(first) else []
    full = 2 + len(problems) + len(ranks) + len(legend) + bool(floor)
    said = summary(first, apart=room >= full)
    if room < full and floor:
        # no row of its own: its figure beside the others, as far as there is one
        beside = [Span("  "), *floor[1:4]] if len(floor) > 4 else []
        said[0] += beside if width_of([*said[0], *beside]) <= view.width else []
        floor = []
    page.extend(said)
    head = max(0, min(len(page.lines), view.height - 1))
    if not believable(first):
        page.extend(totals_lines(first))
        return head
    estimated = estimated_line(first, len(ranks), view.width)
    if estimated and room > full:
        page.add(*estimated)
    # a small pane keeps a row for the legend: letters alone say little
    page.extend_rows(rank_bars(ranks, mode, view.width)[: max(1, view.height - len(page.lines) - 1)])
    page.extend(legend[: max(1, view.height - len(page.lines) - bool(floor))] if floor else legend)
    page.extend([floor] if floor else [])
    page.extend(idle_lines(first, view.width)[: max(0, view.height - len(page.lines))])
    spare = view.height - len(page.lines) - 2
    if spare > 0:
        page.extend_rows(kernel_rows(page.width, first, spare))
    return head


def _share(share: float) -> str:
    """What took time never reads 0 %."""
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def _legend_columns(width: int) -> int:
    return max(1, (width - 2) // LEGEND_CELLS)


def _legend(rank: RankSteps, mode: str, width: int, accept_length: float | None) -> list[list[Span]]:
    parts = sorted(parts_of(rank, mode), key=lambda part: -part.us)
    tokens = per_token(mode, rank, accept_length)
    columns = _legend_columns(width)
    size = (width - 2) // columns
    figures = [words.UNKNOWN if tokens is None else f"{part.us / tokens:,.0f}" for part in parts]
    us_room = max(map(len, figures), default=0)
    shares = [_share(part.share) for part in parts]
    share_room = max(map(len, shares), default=0)
    name_room = max(1, size - us_room - share_room - 9)
    boxes: list[list[Span]] = []
    for part, us, share in zip(parts, figures, shares, strict=True):
        name = Span(f" {pad(part.name if cells(part.name) <= name_room else part.short, name_room)} ")
        line = [Span(part.letter, part.style), name, Span(f"{us:>{us_room}}"), Span(" us ", "dim")]
        boxes.append(boxed([*line, Span(f"{share:>{share_room}}", "" if boxes else "loud")], size))
    return [[INDENT, *chain(*boxes[at : at + columns])] for at in range(0, len(boxes), columns)]
