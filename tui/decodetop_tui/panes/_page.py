"""A picture put together line by line; what all panes say of their source the same way."""

from __future__ import annotations

from collections.abc import Iterable

from decodetop.core import words
from decodetop.core.clock import SECOND_NS
from decodetop.core.state import Lane, State
from decodetop.server.reading import ServerReading
from decodetop_tui.paint import Line, Picture, Span, View
from decodetop_tui.panes._cells import cells, exactly, fit

FAILURE_WORDS = {
    "absent": "not available",
    "denied": "no access",
    "lost": "lost",
    "stalled": "stalled",
    "broken": "failed",
}
INDENT = Span("  ")
_TITLE_CELLS = 26
"""Kept free for the title and the marks at its right."""


class Page:
    """Collects lines with the ids of the rows they belong to; every line is cleaned and clipped to the width."""

    def __init__(self, view: View) -> None:
        self.width = view.width
        self.lines: list[Line] = []
        self.rows: list[str | None] = []
        self.dim = False

    def add(self, *spans: Span, row: str | None = None) -> None:
        """One line. While `dim` is set every style becomes dim: the figures are old."""
        styled = (Span(span.text, "dim") for span in spans) if self.dim else spans
        self.lines.append(fit(styled, self.width))
        self.rows.append(row)

    def extend(self, lines: Iterable[Iterable[Span]], row: str | None = None) -> None:
        for line in lines:
            self.add(*line, row=row)

    def extend_rows(self, lines: Iterable[tuple[Iterable[Span], str | None]]) -> None:
        for line, row in lines:
            self.add(*line, row=row)

    def blank(self) -> None:
        if self.lines and self.lines[-1]:
            self.add()

    def heading(self, text: str, *rest: Span) -> None:
        """A title within a zoomed pane, after an empty line."""
        self.blank()
        self.add(INDENT, Span(text, "title"), *rest)

    def picture(self, note: tuple[str, str] = ("", "dim"), header_lines: int = 0) -> Picture:
        return Picture(tuple(self.lines), tuple(self.rows), note[0], note[1], header_lines)


def beside(page: Page, left: Page, right: Page, *, rows_of: Page) -> tuple[int, int]:
    """Two pages side by side on `page`, a rule between; the rows are those of one of them. Its first cell and width."""
    for at in range(max(len(left.lines), len(right.lines))):
        one, other = (side.lines[at] if at < len(side.lines) else () for side in (left, right))
        row = rows_of.rows[at] if at < len(rows_of.rows) else None
        page.add(*exactly(one, left.width), Span("│", "rule"), *exactly(other, right.width), row=row)
    return (0, left.width) if rows_of is left else (left.width + 1, right.width)


def trouble(state: State, source: str, view: View) -> list[list[Span]]:
    """What is wrong with the source, in words; nothing when it reads.

    One line on the dashboard while old figures stand below: they need the rows, and the title tells their age.
    """
    lane = state.lane(source)
    if lane.failure is None:
        return [] if lane.last is not None else [[INDENT, Span("waiting for the first reading", "dim")]]
    failure = lane.failure
    style = "dim" if failure.kind == "absent" else "bad"
    first = [INDENT, Span(FAILURE_WORDS[failure.kind], style), Span(f": {failure.message}")]
    hint = [Span(failure.hint, "dim")] if failure.hint else []
    if lane.last_t_ns is None or view.zoomed:
        age = [] if lane.last_t_ns is None else [_old(state, lane.last_t_ns)]
        return [first, *([[INDENT, *hint]] if hint else []), *age]
    return [[*first, *([Span("  "), *hint] if hint else [])]]


def any_server(state: State) -> bool:
    """False once a search found none: then no key that needs one is offered."""
    reading = state.last("server", ServerReading)
    return reading is None or bool(reading.servers)


def taped(state: State) -> bool:
    """What is shown is a tape: nothing can be started or asked for."""
    return state.lane("replay").last is not None


def _old(state: State, t_ns: int) -> list[Span]:
    age = words.duration((state.now_ns - t_ns) / SECOND_NS)
    return [INDENT, Span(f"below: the last good reading, {age} old", "dim")]


def note_of(state: State, source: str, width: int, *usual: str, paced: bool = False) -> tuple[str, str]:
    """The words at the right of the title: trouble and age first, else as many of `usual` as fit, the first kept.

    `paced` = the source reads at a steady pace, so that silence means something.
    """
    lane = state.lane(source)
    if lane.failure is not None:
        word = FAILURE_WORDS[lane.failure.kind]
        age = state.age_s(source)
        style = "dim" if lane.failure.kind == "absent" else "bad"
        return (word if age is None else f"{word}, last reading {words.duration(age)} old"), style
    age = state.age_s(source)
    if paced and age is not None and age > _stale_after_s(lane):
        return f"stale: {words.duration(age)} old", "warn"
    return _joined(usual, width - _TITLE_CELLS), "dim"


def _joined(parts: Iterable[str], room: int) -> str:
    note = ""
    for part in parts:
        longer = " · ".join(word for word in (note, part) if word)
        if cells(longer) <= room:
            note = longer
    return note


def _stale_after_s(lane: Lane) -> float:
    """Three of the source's own periods, as seen in its history."""
    if len(lane.history) < 3:
        return float("inf")
    gap_ns = lane.history[-1].t_ns - lane.history[-2].t_ns
    return max(5.0, 3 * gap_ns / SECOND_NS)
