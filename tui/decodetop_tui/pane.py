"""The one pane widget: shows what a pane module draws, keeps its cursor by row id, scrolls to keep it in sight.

What a pane module gives (`PaneModule`): TITLE, KEY, SOURCES, MODES, FILTER, `draw`, `want`. It draws its content over
the whole `view.width`, title row not counted; this widget draws the title rule, paints the selected row and scrolls.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from textual import events
from textual.message import Message

from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Header
from decodetop.core.state import Lane, State
from decodetop_tui.layout import Place, Rect, Want
from decodetop_tui.paint import Filter, Line, Picture, Span, View
from decodetop_tui.painted import Painted, Styles
from decodetop_tui.scroll import Window
from decodetop_tui.titles import faded, joined, rule, under_cursor

log = logging.getLogger("decodetop.face")


class PaneModule(Protocol):
    """What a module in `panes/` gives. `want` returns (least, wanted) rows of content at a width."""

    @property
    def TITLE(self) -> str: ...

    @property
    def KEY(self) -> str: ...

    @property
    def SOURCES(self) -> tuple[str, ...]: ...

    @property
    def MODES(self) -> tuple[str, ...]: ...

    @property
    def FILTER(self) -> Filter | None: ...

    def draw(self, state: State, view: View) -> Picture: ...

    def want(self, state: State, width: int) -> tuple[int, int]: ...


class Moment(NamedTuple):
    """What a picture depends on: the lanes of its sources, and the session's second for the ages it tells."""

    header: Header
    second: int
    lanes: tuple[Lane, ...]

    @classmethod
    def of(cls, state: State, sources: Sequence[str]) -> Moment:
        return cls(state.header, state.now_ns // SECOND_NS, tuple(state.lane(source) for source in sources))

    def same(self, other: Moment) -> bool:
        """Lanes are frozen: the same object is the same lane, and comparing three minutes of readings is dear."""
        if self.second != other.second or self.header is not other.header or len(self.lanes) != len(other.lanes):
            return False
        return all(one is two for one, two in zip(self.lanes, other.lanes, strict=True))


class Pane(Painted):
    """`place` says where; `show` draws a state. What the operator chose (cursor, mode, filter, marks) lives here."""

    class Clicked(Message):
        """The mouse chose a row (None = the pane only)."""

        def __init__(self, pane: Pane, row: str | None) -> None:
            super().__init__()
            self.pane = pane
            self.row = row

    class Wheeled(Message):
        def __init__(self, pane: Pane, by: int) -> None:
            super().__init__()
            self.pane = pane
            self.by = by

    def __init__(self, name: str, module: PaneModule, styles: Styles) -> None:
        super().__init__(styles, id=name)
        self.pane_name = name
        self.module = module
        self.place = Place(Rect(0, 0, 0, 0))
        self.cursor: str | None = None
        self.mode = 0
        self.filter = ""
        self.marks: frozenset[str] = frozenset()
        self.scroll_top = 0
        self._picture = Picture(())
        self._at = 0
        self._left: tuple[str | None, Rect] | None = None
        """The cursor and place at which the picture was scrolled by hand: its row may be out of sight."""
        self._to_end = False
        self._known: frozenset[str] | None = None
        """The rows there were when something asked for one more."""
        self._stood: tuple[bool, Rect] | None = None
        self._drawn: tuple[Moment, View, Picture] | None = None
        self._wanted: dict[int, tuple[Moment, Want]] = {}

    # what it shows

    def show(self, state: State, *, focused: bool, zoomed: bool) -> None:
        """Draw `state`; only changed runs are sent."""
        view = self.looked_at(focused, zoomed)
        picture = self._draw(state, view)
        if self._settle_cursor(picture, focused):
            picture = self._draw(state, self.looked_at(focused, zoomed))
        self._picture = picture = faded(picture, state, self.module.SOURCES)
        self._start_at_the_top()
        if self._to_end:
            # the last row may have more to say than it had when it was gone to
            self._to_end, self.scroll_top = False, self._window.most
        body = self._body(picture, focused)
        title = self._title(picture, focused, state.header.simulated)
        self.paint([title, *body], self.place.rect.width)

    def want(self, state: State, width: int) -> Want:
        """The rows the module asks for; a module that fails gets a line to say so."""
        moment = Moment.of(state, self.module.SOURCES)
        known = self._wanted.get(width)
        if known is not None and known[0].same(moment):
            return known[1]
        try:
            want = Want(*self.module.want(state, width))
        except Exception:
            log.exception("pane %s: want failed", self.pane_name)
            want = Want(1, 1)
        self._wanted = {width: (moment, want)}
        return want

    @property
    def rows(self) -> list[str]:
        """Ids of the rows that can be selected, from above."""
        return list(dict.fromkeys(row for row in self._picture.rows if row is not None))

    def row_at(self, y: int) -> str | None:
        """The row on line `y` of the pane (0 = its title)."""
        head = self._picture.header_lines
        at = y - 1 if y - 1 < head else y - 1 + self.scroll_top
        rows = self._picture.rows
        return rows[at] if 0 <= at < len(rows) else None

    # what the operator does

    def move(self, by: int) -> None:
        """The cursor to the next row (`by` 1) or the one before (-1); where none is near, the picture by a line."""
        self._go(self._window.step(self.cursor, by))

    def page(self, by: int) -> None:
        """The picture by so many screenfuls; the cursor stays in sight where there is a row."""
        self._go(self._window.page(self.cursor, by))

    def end(self, by: int) -> None:
        """To the very first line (`by` -1) or the very last (1), the cursor on the first or last row."""
        self._go(self._window.end(by))
        self._to_end = by > 0

    def take_next(self) -> None:
        """The cursor goes to the next row that is new."""
        self._known = frozenset(self.rows)

    def toggle_mark(self) -> None:
        if self.cursor is not None:
            self.marks ^= {self.cursor}

    # the rest is how

    def looked_at(self, focused: bool, zoomed: bool) -> View:
        return View(
            width=self.place.content_width,
            height=self.place.content_height,
            focused=focused,
            zoomed=zoomed,
            cursor=self.cursor,
            mode=self.mode,
            filter=self.filter,
            marks=self.marks,
        )

    def _draw(self, state: State, view: View) -> Picture:
        if view.width < 1 or view.height < 1:
            return Picture(())
        moment = Moment.of(state, self.module.SOURCES)
        if self._drawn is not None and self._drawn[1] == view and self._drawn[0].same(moment):
            return self._drawn[2]
        picture = self._drawn_by_module(state, view)
        self._drawn = (moment, view, picture)
        return picture

    def _drawn_by_module(self, state: State, view: View) -> Picture:
        try:
            return self.module.draw(state, view)
        except Exception as error:
            log.exception("pane %s: draw failed", self.pane_name)
            word = f"  this pane failed: {type(error).__name__}: {error}"[:300]
            hint = "  a fault of decodetop; run with --log FILE and report it"
            return Picture(((Span(word, "bad"),), (Span(hint, "dim"),)), note="failed", note_style="bad")

    def _settle_cursor(self, picture: Picture, focused: bool) -> bool:
        """Keep the cursor on a row that exists: where its row went, the one that took its place."""
        rows = list(dict.fromkeys(row for row in picture.rows if row is not None))
        new = [] if self._known is None else [row for row in rows if row not in self._known]
        if new:
            self.cursor, self._known, self._at = new[-1], None, rows.index(new[-1])
            return True
        if self.cursor in rows:
            self._at = rows.index(self.cursor)
            return False
        before = self.cursor
        self._at = max(0, min(self._at, len(rows) - 1))
        self.cursor = rows[self._at] if rows and (focused or before is not None) else None
        return self.cursor != before

    @property
    def _window(self) -> Window:
        picture = self._picture
        return Window(
            picture.rows, len(picture.lines), picture.header_lines, self.place.content_height, self.scroll_top
        )

    def _go(self, to: tuple[str | None, int | None]) -> None:
        """`to`: the row, and the line the picture is scrolled to (None = wherever the row is in sight)."""
        self.cursor, top = to[0] or self.cursor, to[1]
        self._at = self.rows.index(self.cursor) if self.cursor in self.rows else self._at
        self._left = None
        if top is not None:
            self.scroll_top, self._left = top, (self.cursor, self.place.rect)

    def _start_at_the_top(self) -> None:
        """In a place it had not before, a cursor nobody has moved yet must not hide what stands above it."""
        place = (self.cursor is None, self.place.rect)
        if place != self._stood and self.cursor in (None, *self.rows[:1]):
            self.scroll_top, self._left = 0, (self.cursor, self.place.rect)
        self._stood = place

    def _scroll(self) -> int:
        """The first line shown below the header: the row of the cursor in sight, unless it was scrolled away from."""
        row = None if self._left == (self.cursor, self.place.rect) else self.cursor
        return self._window.top_for(row)

    def _body(self, picture: Picture, focused: bool) -> list[Line]:
        self.scroll_top = self._scroll()
        head = picture.header_lines
        shown = [*range(head), *range(head + self.scroll_top, len(picture.lines))][: self.place.content_height]
        edge = self.place.edge
        body: list[Line] = []
        for y in range(self.place.content_height):
            line: Line = ()
            if y < len(shown):
                line = picture.lines[shown[y]]
                row = picture.rows[shown[y]] if shown[y] < len(picture.rows) else None
                if focused and row is not None and row == self.cursor:
                    line = under_cursor(line, self.place.content_width, picture.column)
            body.append((Span(edge[y + 1], "rule"), *line) if edge else line)
        return body

    def _title(self, picture: Picture, focused: bool, simulated: bool) -> Line:
        module = self.module
        note = [Span(picture.note, picture.note_style)] if picture.note else []
        view = [Span(module.MODES[self.mode % len(module.MODES)], "key")] if self.mode % len(module.MODES) else []
        known = [*view, *note] if picture.note_style == "dim" else [*note, *view]
        found = [Span(f"/{self.filter}", "warn")] if self.filter else []
        hidden = self._window.hidden_words()
        right = [*found, *([Span(hidden, "key")] if hidden else []), *known]
        width = self.place.rect.width - bool(self.place.edge)
        title = f"{module.TITLE}: {picture.subject}" if picture.subject else module.TITLE
        line = rule(width, module.KEY, title, right, focused=focused, simulated=simulated)
        if self.place.edge:
            line = (Span(self.place.edge[0], "rule"), *line)
        for x, mark in self.place.joints:
            line = joined(line, x, mark)
        return line

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Clicked(self, self.row_at(event.y)))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.post_message(self.Wheeled(self, 1))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.post_message(self.Wheeled(self, -1))
