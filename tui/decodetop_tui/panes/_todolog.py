"""The log as the todo pane shows it: newest first, a heading a day."""

from __future__ import annotations

from decodetop.core.state import State
from decodetop.log import text
from decodetop.log.reading import Entry, LogReading
from decodetop_tui.paint import Span, View
from decodetop_tui.panes._cells import wrap
from decodetop_tui.panes._page import INDENT, Page

_STYLES = {"finding": "warn", "cleared": "good", "note": "loud", "attempt": "", "server": "key"}
TAIL_LEAST = 2
"""Entries below which the end of the log is not worth a heading."""
_LEAD = 2 + 5 + 2 + 2
"""Cells before the words: indent, clock, mark."""


def draw_log(page: Page, state: State, view: View) -> None:
    """What happened, the last thing on top; rows can be walked. Says when entries are only in memory."""
    reading = state.last("log", LogReading)
    if reading is None:
        page.add(INDENT, Span("no log has been read yet", "dim"))
        return
    page.extend(_problems(reading))
    wanted = view.filter.lower()
    entries = [one for one in reversed(reading.entries) if wanted in f"{one.kind} {one.text}".lower()]
    if not entries:
        words = f"no entry matches /{view.filter}" if reading.entries else "nothing happened yet"
        page.add(INDENT, Span(words, "dim"), Span("   n", "key"), Span(" writes a note", "dim"))
    for day, entry in text.by_day(entries):
        if day is not None and view.zoomed:
            page.heading(day)
        _entry(page, entry, view)
    left = reading.total - len(reading.entries)
    if left > 0 and view.zoomed and not wanted:
        page.add(INDENT, Span(f"{left:,} older: decodetop log", "dim"))


def draw_tail(page: Page, state: State, view: View) -> None:
    """The newest entries in the rows a list leaves free; they can't be walked, the log itself is a key away."""
    reading = state.last("log", LogReading)
    room = view.height - len(page.lines) - 2
    if reading is None or not reading.entries or room < TAIL_LEAST:
        return
    page.heading("log", Span("   L", "key"), Span(" all of it", "dim"))
    for entry in list(reversed(reading.entries))[:room]:
        _entry(page, entry, view, walked=False)


def _entry(page: Page, entry: Entry, view: View, *, walked: bool = True) -> None:
    style = _STYLES.get(entry.kind, "dim")
    row = f"log:{entry.wall_ns}:{entry.key or entry.text}" if walked else None
    lines = wrap(entry.text, max(1, view.width - _LEAD), 6 if view.zoomed else 1) or [""]
    for at, line in enumerate(lines):
        lead = f"{text.clock(entry.wall_ns)}  {text.MARKS.get(entry.kind, '·')} " if at == 0 else " " * (_LEAD - 2)
        page.add(INDENT, Span(lead, "dim"), Span(line, style), row=row)


def _problems(reading: LogReading) -> list[list[Span]]:
    lines = []
    if reading.unsaved is not None:
        lines.append([INDENT, Span("not saved", "bad"), Span(f", kept in memory: {reading.unsaved}")])
    if reading.problem is not None:
        lines.append([INDENT, Span("log", "bad"), Span(f": {reading.problem}")])
    return lines
