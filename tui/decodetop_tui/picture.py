"""The dashboard as SVG: every word at its own place, so that no viewer's font can move it; nothing fetched. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from rich.color import Color
from rich.style import Style
from rich.terminal_theme import TerminalTheme

from decodetop_tui.cells import Cells
from decodetop_tui.painted import Styles
from decodetop_tui.shapes import areas, is_shape, opacity

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE, MARGIN = 8.4, 18, 14, 10
FONTS = "ui-monospace, 'Cascadia Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"

DIM = 0.6
FOREGROUND, BACKGROUND = "#d0d0d0", "#121212"
"""For themes that leave both to the terminal."""


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


SIXTEEN = TerminalTheme(
    _rgb(BACKGROUND),
    _rgb(FOREGROUND),
    [_rgb(c) for c in ["#000000", "#c4302b", "#5faf5f", "#d7af5f", "#2f6fcf", "#a04fa0", "#5fafaf", "#bcbcbc"]],
    [_rgb(c) for c in ["#7f7f7f", "#ff6b6b", "#87d787", "#ffff87", "#87afff", "#ff87ff", "#87d7d7", "#ffffff"]],
)
"""The terminal's own colours, which a picture can't ask for: such that every word of `ansi` can be read."""

_SECOND_HALF = "\0"
"""Stands for the second cell of a wide character."""


class Look(NamedTuple):
    """A style as SVG tells it; `ground` None = the picture's own, `strength` is less where it is dim."""

    colour: str
    ground: str | None
    attributes: str
    strength: float = 1.0


class Piece(NamedTuple):
    """Cells of one style in one row, from column `x` on; `size` cells wide."""

    x: int
    text: str
    size: int
    role: str


def svg(rows: Sequence[Cells], styles: Styles, title: str) -> str:
    """The rows of the screen as a picture of them."""
    columns = max((len(row) for row in rows), default=0)
    width, height = columns * CELL_WIDTH + 2 * MARGIN, len(rows) * CELL_HEIGHT + 2 * MARGIN
    base = styles("")
    ground = _hex(base.bgcolor, BACKGROUND)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family={quoteattr(FONTS)} font-size="{FONT_SIZE}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="6" fill="{ground}"/>',
    ]
    for y, row in enumerate(rows):
        for piece in pieces(row):
            look = look_of(styles(piece.role), ground)
            parts += _ground(piece, y, look)
            parts += _words(piece, y, look)
    return "\n".join([*parts, "</svg>", ""])


def pieces(row: Cells) -> Iterator[Piece]:
    x = 0
    for role, group in itertools.groupby(row, key=lambda cell: cell.style):
        cells = list(group)
        yield Piece(x, "".join(cell.text or _SECOND_HALF for cell in cells), len(cells), role)
        x += len(cells)


def look_of(style: Style, ground: str) -> Look:
    colour, back = _hex(style.color, FOREGROUND), _hex(style.bgcolor, ground)
    if style.reverse:
        colour, back = back, colour
    attributes = ' font-weight="bold"' if style.bold else ""
    if style.underline:
        attributes += ' text-decoration="underline"'
    strength = DIM if style.dim else 1.0
    if style.dim:
        attributes += f' fill-opacity="{DIM}"'
    return Look(colour, None if back == ground else back, attributes, strength)


def _ground(piece: Piece, y: int, look: Look) -> list[str]:
    if look.ground is None:
        return []
    x, top = MARGIN + piece.x * CELL_WIDTH, MARGIN + y * CELL_HEIGHT
    size = f'width="{piece.size * CELL_WIDTH:g}" height="{CELL_HEIGHT}"'
    return [f'<rect x="{x:g}" y="{top:g}" {size} fill="{look.ground}"/>']


def _words(piece: Piece, y: int, look: Look) -> list[str]:
    """One element a word, beginning and ending where it should in a font of any width; shapes are drawn."""
    found = []
    for kind, group in itertools.groupby(enumerate(piece.text, piece.x), key=lambda one: _kind(one[1])):
        cells = list(group)
        if kind == "word":
            found.append(_word("".join(char for _, char in cells), cells[0][0], y, look))
        elif kind != "blank":
            found.append(_shape(kind, cells[0][0], y, len(cells), look))
    return found


def _kind(char: str) -> str:
    return "blank" if char == " " else char if is_shape(char) else "word"


def _word(text: str, column: int, y: int, look: Look) -> str:
    x, length = MARGIN + column * CELL_WIDTH, len(text) * CELL_WIDTH
    bottom = MARGIN + (y + 0.75) * CELL_HEIGHT
    place = f'x="{x:g}" y="{bottom:g}" textLength="{length:g}" lengthAdjust="spacingAndGlyphs"'
    return f'<text {place} fill="{look.colour}"{look.attributes}>{escape(text.replace(_SECOND_HALF, ""))}</text>'


def _shape(char: str, column: int, y: int, count: int, look: Look) -> str:
    left, top = MARGIN + column * CELL_WIDTH, MARGIN + y * CELL_HEIGHT
    path = "".join(
        f"M{left + area.x:g} {top + area.y:g}h{area.width:g}v{area.height:g}h{-area.width:g}z"
        for area in areas(char, CELL_WIDTH, CELL_HEIGHT, count)
    )
    return f'<path d="{path}" fill="{look.colour}" fill-opacity="{opacity(char) * look.strength:g}"/>'


def _hex(colour: Color | None, default: str, palette: TerminalTheme = SIXTEEN) -> str:
    if colour is None or colour.is_default:
        return default
    return str(colour.get_truecolor(palette).hex)
