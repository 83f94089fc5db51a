"""The widget under everything the face draws: given lines, it refreshes only the runs that changed.

Textual renders and sends whatever is refreshed, changed or not; what it sends too much, `thrift` holds back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from decodetop_tui.cells import BLANK, Cells, changed, raster, spans
from decodetop_tui.paint import Line


class Pen(Protocol):
    """What is needed of `ink.Ink`."""

    @property
    def open(self) -> bool: ...

    def put(self, widget: Widget, x: int, y: int, cells: Cells) -> None: ...


Styles = Callable[[str], Style]
"""A role of the theme as what the terminal is told."""


class Painted(Widget):
    """`paint` is the only way to change it. `styles` is asked at every render, so a new theme needs `repaint` only."""

    def __init__(self, styles: Styles, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.ink: Pen | None = None
        self._role = styles
        self._lines: tuple[Line, ...] = ()
        self._grid: list[Cells] = []

    @property
    def lines(self) -> tuple[Line, ...]:
        """What was painted last."""
        return self._lines

    @property
    def grid(self) -> Sequence[Cells]:
        """The same as cells."""
        return self._grid

    def paint(self, lines: Sequence[Line], width: int) -> int:
        """Show `lines`, each cut or filled to `width` cells; returns how many cells were refreshed."""
        grid = [
            self._grid[y] if self._unchanged(y, line, width) else raster(line, width) for y, line in enumerate(lines)
        ]
        old, self._grid, self._lines = self._grid, grid, tuple(lines)
        if len(old) != len(grid) or (old and grid and len(old[0]) != len(grid[0])):
            self.repaint()
            return sum(map(len, grid))
        runs: list[tuple[int, int, int]] = []
        for y, (before, after) in enumerate(zip(old, grid, strict=True)):
            run = None if before is after else changed(before, after)
            if run is not None:
                runs.append((y, *run))
        self._send(runs)
        return sum(end - start for _, start, end in runs)

    def repaint(self) -> None:
        """Send all of it again: the theme changed, or the size."""
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        cells = self._grid[y] if y < len(self._grid) else ()
        if len(cells) != width:
            cells = (*cells[:width], *[BLANK] * (width - len(cells)))
        segments = [Segment(text, self._role(style)) for text, style in spans(cells)]
        return Strip(segments, width)

    def _send(self, runs: Sequence[tuple[int, int, int]]) -> None:
        """Line, first column and the one after the last of what changed."""
        if not runs:
            return
        at = self.region
        if self.ink is not None and self.ink.open and at.size == (len(self._grid[0]), len(self._grid)):
            for y, start, end in runs:
                self.ink.put(self, at.x + start, at.y + y, self._grid[y][start:end])
            self._styles_cache.clear()  # what Textual has rendered is no longer what stands there
        else:
            self.refresh(*(Region(start, y, end - start, 1) for y, start, end in runs))

    def _unchanged(self, y: int, line: Line, width: int) -> bool:
        return y < len(self._lines) and self._lines[y] == line and len(self._grid[y]) == width
