"""Changed cells on their short way to the terminal.

What a widget refreshes Textual renders, filters, encodes and moves to its place, and `thrift` reads all that again: a
third of what watching costs. Where a place is drawn already and only its text changes, the cells go to `thrift` as they
are. Textual keeps no picture of the screen, so both ways may be taken in turn; `Ink` says when the short one may.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.color import ColorSystem
from rich.segment import Segment
from textual.app import App
from textual.strip import Strip
from textual.widget import Widget

from decodetop_tui.cells import Cells
from decodetop_tui.painted import Styles
from decodetop_tui.thrift import Cell

MOST_CODED = 1 << 14


class Sparing(Protocol):
    """What is needed of `terminal.Terminal`."""

    @property
    def sure(self) -> bool: ...

    def send(self, changes: Sequence[tuple[int, int, Sequence[Cell]]], *, at_once: bool) -> None: ...


class Ink:
    """`open`: the short way may be taken. `put` collects, `flush` sends what was collected as one frame."""

    def __init__(self, app: App[int], driver: Sparing, styles: Styles) -> None:
        self.open = False
        self._app = app
        self._driver = driver
        self._styles = styles
        self._codes: dict[str, str] = {}
        self._coded: dict[tuple[str, str], Cell] = {}
        """Cells by text and role: a table is quicker than a cell made anew."""
        self._changes: list[tuple[int, int, Sequence[Cell]]] = []

    def begin(self, *, still: bool) -> None:
        """A frame begins; `still`: every widget stands where it stood, in sight."""
        self.open = still and self._driver.sure

    def put(self, widget: Widget, x: int, y: int, cells: Cells) -> None:
        """`cells` of a widget from column `x` and line `y` of the screen on."""
        try:
            coded = list(map(self._coded.__getitem__, cells))
        except KeyError:
            self._learn(cells, widget)
            coded = list(map(self._coded.__getitem__, cells))
        self._changes.append((x, y, coded))

    def flush(self) -> None:
        if self._changes:
            changes, self._changes = self._changes, []
            self._driver.send(changes, at_once=self._app._sync_available)

    def forget(self) -> None:
        """Another theme is in use."""
        self._codes.clear()
        self._coded.clear()

    def _learn(self, cells: Cells, widget: Widget) -> None:
        if len(self._coded) > MOST_CODED:
            self._coded.clear()
        for text, role in set(cells):
            if role not in self._codes:
                self._codes[role] = self._code(role, widget)
            self._coded[text, role] = Cell(text, self._codes[role])

    def _code(self, role: str, widget: Widget) -> str:
        """What Textual would send for a role."""
        strip = Strip([Segment("x", self._styles(role))], 1)
        background = widget.background_colors[1]
        for line_filter in widget.get_line_filters():
            strip = strip.apply_filter(line_filter, background)
        style = next(iter(strip)).style
        system = self._app.console._color_system or ColorSystem.TRUECOLOR
        return "" if style is None else Strip.render_ansi(style, system)
