"""Lines as terminal cells, and which runs of them changed. Pure: knows nothing of Textual.

Textual sends every cell of what is refreshed, changed or not; a widget that knows its changed runs sends only those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import get_character_cell_size

from decodetop_tui.paint import Line, Span

GAP_CELLS = 7
"""Two runs nearer than this are sent as one: moving the cursor costs as many bytes."""

GAP_SAME_STYLE_CELLS = 36
"""The same where nothing between changes style: a second run would send its colours again."""


class Cell(NamedTuple):
    """`text` is empty for the second half of a wide character."""

    text: str
    style: str


class Run(NamedTuple):
    """Cells `start` up to `end` of a line."""

    start: int
    end: int


BLANK = Cell(" ", "")
Cells = tuple[Cell, ...]


def raster(line: Line, width: int) -> Cells:
    """Exactly `width` cells. Control characters never reach the terminal; a wide one never sticks out."""
    cells: list[Cell] = []
    for text, style in line:
        if len(cells) >= width:
            break
        if text.isascii() and text.isprintable():
            cells.extend([Cell(char, style) for char in text])
        else:
            _add(cells, text, style, width)
    if len(cells) > width:
        cells = cells[:width]
    cells.extend([BLANK] * (width - len(cells)))
    return tuple(cells)


def _add(cells: list[Cell], text: str, style: str, width: int) -> None:
    for char in text:
        size = get_character_cell_size(char)
        if not char.isprintable():
            # an escape sequence in a model's name must not drive the terminal
            cells.append(Cell(" " if char.isspace() else "·", style))
        elif size == 0:
            if cells and cells[-1].text:
                cells[-1] = Cell(cells[-1].text + char, cells[-1].style)
        elif size == 1:
            cells.append(Cell(char, style))
        elif len(cells) + size <= width:
            cells.extend([Cell(char, style), Cell("", style)])
        else:
            cells.append(Cell(" ", style))


def changed(old: Cells, new: Cells) -> list[Run]:
    """The runs of `new` that differ from `old`, near ones joined; all of it when the lengths differ."""
    if len(old) != len(new):
        return [Run(0, len(new))] if new else []
    runs: list[Run] = []
    for start, end in _differing(old, new):
        if runs and _joins(new, runs[-1], start):
            runs[-1] = Run(runs[-1].start, end)
        else:
            runs.append(Run(start, end))
    return runs


def _differing(old: Cells, new: Cells) -> Iterator[Run]:
    start: int | None = None
    for at, (before, after) in enumerate(zip(old, new, strict=True)):
        if before != after:
            if start is None:
                start = at
        elif start is not None:
            yield _whole(old, new, start, at)
            start = None
    if start is not None:
        yield Run(start, len(new))


def _whole(old: Cells, new: Cells, start: int, end: int) -> Run:
    """Widened to whole characters, so that half of a wide one is never sent alone."""
    while start > 0 and not (new[start].text and old[start].text):
        start -= 1
    while end < len(new) and not (new[end].text and old[end].text):
        end += 1
    return Run(start, end)


def _joins(cells: Cells, run: Run, start: int) -> bool:
    gap = start - run.end
    if gap <= GAP_CELLS:
        return True
    if gap > GAP_SAME_STYLE_CELLS:
        return False
    return len({cell.style for cell in cells[run.end - 1 : start + 1]}) == 1


def spans(cells: Cells, cuts: Iterable[int] = ()) -> list[Span]:
    """The cells as spans again: neighbours of one style joined, but for `cuts`, where a span ends in any case."""
    ends = set(cuts)
    found: list[Span] = []
    texts: list[str] = []
    for at, cell in enumerate(cells):
        if texts and (cell.style != cells[at - 1].style or at in ends):
            found.append(Span("".join(texts), cells[at - 1].style))
            texts = []
        texts.append(cell.text)
    if texts:
        found.append(Span("".join(texts), cells[-1].style))
    return found


def text_of(lines: Sequence[Line]) -> list[str]:
    """The lines without their styles."""
    return ["".join(span.text for span in line) for line in lines]


def width_of(line: Iterable[Span]) -> int:
    """Cells the line takes."""
    return sum(len(text) if text.isascii() else sum(get_character_cell_size(char) for char in text) for text, _ in line)
