"""The rule over a pane with its name and notes, and the ground under its cursor. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from decodetop.core import words
from decodetop.core.clock import SECOND_NS
from decodetop.core.state import State
from decodetop_tui.cells import width_of
from decodetop_tui.paint import Line, Picture, Span
from decodetop_tui.panes._cells import cells, clean, clip

RULE = "─"
NOTE_FRAME = 3
"""Cells around a note: a blank on each side and the rule after it."""
PART = " · "
"""Between the parts of one note, the most telling first."""
LEAST_NOTE = 8
"""A note cut shorter than this says nothing."""


def rule(width: int, key: str, title: str, right: Sequence[Span], *, focused: bool, simulated: bool) -> Line:
    """`─1 gpu──── note ─ note ─`. The last notes go (or are cut) first when it gets narrow; SIMULATED never does."""
    line_style = "rule.focus" if focused else "rule"
    left = [Span(RULE, line_style), Span(key, "key"), Span(f" {title} ", "title.focus" if focused else "title")]
    if simulated:
        left.append(Span("SIMULATED ", "warn"))
    room = width - width_of(left) - 2
    tail: list[Span] = []
    for text, style in right:
        free = room - width_of(tail) - NOTE_FRAME
        note = Span(_shortened(clean(text), free) if free >= LEAST_NOTE else text, style)
        if width_of([note]) > free:
            break
        tail += [Span(" "), note, Span(" "), Span(RULE, line_style)]
    fill = max(0, width - width_of(left) - width_of(tail))
    return (*left, Span(RULE * fill, line_style), *tail)


def _shortened(note: str, room: int) -> str:
    """Whole parts as long as there are several; the last one left is cut."""
    while cells(note) > room and PART in note:
        note = note.rpartition(PART)[0]
    return clip(note, room)


def faded(picture: Picture, state: State, sources: Sequence[str]) -> Picture:
    """The picture as it is; dim and with its age when the pipe has ended and none of it is true any more."""
    if state.lane("pipe").failure is None:
        return picture
    seen = [t_ns for t_ns in (state.lane(source).last_t_ns for source in sources) if t_ns is not None]
    note = f"{words.duration((state.now_ns - max(seen)) / SECOND_NS)} old" if seen else picture.note
    lines = tuple(tuple(Span(text, "dim") for text, _ in line) for line in picture.lines)
    return picture._replace(lines=lines, note=note, note_style="warn")


def joined(line: Line, x: int, mark: str) -> Line:
    """`mark` in cell `x`, if a rule is drawn there: where it meets the rule between the columns."""
    found: list[Span] = []
    at = 0
    for text, style in line:
        inside = x - at
        if 0 <= inside < len(text) and text == RULE * len(text):
            pieces = (Span(text[:inside], style), Span(mark, "rule"), Span(text[inside + 1 :], style))
            found += [piece for piece in pieces if piece.text]
        else:
            found.append(Span(text, style))
        at += width_of([Span(text)])
    return tuple(found)


def under_cursor(line: Line, width: int, column: tuple[int, int] | None = None) -> Line:
    """The line on the cursor's ground over the whole width, with a mark before it that needs no colour.

    `column` = the first cell and the width of the part of it that is meant.
    """
    if column is not None:
        start, size = column
        ends = list(accumulate(width_of((span,)) for span in line))
        before = tuple(span for span, end in zip(line, ends, strict=True) if end <= start)
        after = tuple(span for span, end in zip(line, ends, strict=True) if end > start + size)
        return (*before, *under_cursor(line[len(before) : len(line) - len(after)], size), *after)
    if line and line[0].text.startswith(" "):
        line = (Span("▌", "key"), Span(line[0].text[1:], line[0].style), *line[1:])
    marked = [Span(text, f"cursor:{style}") for text, style in line if text]
    return (*marked, Span(" " * max(0, width - width_of(line)), "cursor:"))
