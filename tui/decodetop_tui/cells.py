"""Lines as terminal cells, and where two of them differ. Pure: knows nothing of Textual."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import get_character_cell_size

from decodetop_tui.paint import Line, Span


class Cell(NamedTuple):
    """`text` is empty for the second half of a wide character."""

    text: str
    style: str


BLANK = Cell(" ", "")
Cells = tuple[Cell, ...]


def raster(line: Line, width: int) -> Cells:
    """Exactly `width` cells. Control characters never reach the terminal; a wide one never sticks out."""
    cells: list[Cell] = []
    for text, style in line:
        if len(cells) >= width:
            break
        plain = _plain(text, style)
        if plain is None:
            _add(cells, text, style, width)
        else:
            cells.extend(plain)
    if len(cells) > width:
        cells = cells[:width]
    cells.extend([BLANK] * (width - len(cells)))
    return tuple(cells)


_cell = lru_cache(maxsize=4096)(Cell)
"""A cell that was seen before is found quicker than made, and quicker compared."""


@lru_cache(maxsize=4096)
def _plain(text: str, style: str) -> Cells | None:
    """Of a text whose characters take one cell each, None of any other. Most spans of a second are those of the second
    before."""
    one_each = text.isprintable() and (text.isascii() or all(get_character_cell_size(char) == 1 for char in text))
    return tuple(map(_cell, text, itertools.repeat(style))) if one_each else None


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


def changed(old: Cells, new: Cells) -> tuple[int, int] | None:
    """First column that differs and one after the last; None where nothing does."""
    if len(old) != len(new):
        return 0, max(len(old), len(new))
    differs = list(map(operator.ne, old, new))
    if True not in differs:
        return None
    first = differs.index(True)
    differs.reverse()
    return first, len(differs) - differs.index(True)


def spans(cells: Cells) -> list[Span]:
    """The cells as spans again, neighbours of one style joined."""
    return [
        Span("".join(cell.text for cell in group), style)
        for style, group in itertools.groupby(cells, key=lambda cell: cell.style)
    ]


def text_of(lines: Sequence[Line]) -> list[str]:
    """The lines without their styles."""
    return ["".join(span.text for span in line) for line in lines]


def width_of(line: Iterable[Span]) -> int:
    """Cells the line takes."""
    return sum(len(text) if text.isascii() else sum(get_character_cell_size(char) for char in text) for text, _ in line)
