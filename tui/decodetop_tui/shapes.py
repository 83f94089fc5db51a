"""Rules, blocks and braille as drawn areas: fonts disagree about them more than about letters. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_RULES = {"─": "lr", "│": "ud", "┬": "lrd", "┴": "lru", "┼": "lrud", "├": "udr", "┤": "udl"}
_SHADES = {"█": 1.0, "▓": 0.8, "▒": 0.6, "░": 0.4}
_SIDES = {"▌": (0.0, 0.5), "▏": (0.0, 0.125), "▕": (0.875, 0.125)}
_HEIGHTS = "▁▂▃▄▅▆▇"
_BRAILLE = range(0x2800, 0x2900)
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and row of the dots in the order of a braille character's bits (Unicode 3.0, chapter on symbols)."""

THIN = 1.0
DOT = 1.8


class Area(NamedTuple):
    """A rectangle from a cell's top left corner on."""

    x: float
    y: float
    width: float
    height: float


def is_shape(char: str) -> bool:
    return char in _RULES or char in _SHADES or char in _SIDES or char in _HEIGHTS or ord(char) in _BRAILLE


def opacity(char: str) -> float:
    """How solid its areas are."""
    return _SHADES.get(char, 1.0)


def areas(char: str, width: float, height: float, count: int = 1) -> Iterator[Area]:
    """What `count` cells of `char` cover; each cell is `width` x `height`."""
    if char in _RULES:
        yield from _rule(_RULES[char], width, height, count)
    elif char in _SHADES:
        yield Area(0, 0, width * count, height)
    elif char in _HEIGHTS:
        high = height * (_HEIGHTS.index(char) + 1) / 8
        yield Area(0, height - high, width * count, high)
    else:
        for at in range(count):
            for area in _one(char, width, height):
                yield area._replace(x=area.x + at * width)


def _one(char: str, width: float, height: float) -> Iterator[Area]:
    if char in _SIDES:
        left, share = _SIDES[char]
        yield Area(left * width, 0, share * width, height)
        return
    bits = ord(char) - _BRAILLE.start
    for bit, (column, row) in enumerate(_DOTS):
        if bits >> bit & 1:
            x, y = (column + 0.5) * width / 2, (row + 0.5) * height / 4
            yield Area(x - DOT / 2, y - DOT / 2, DOT, DOT)


def _rule(arms: str, width: float, height: float, count: int) -> Iterator[Area]:
    """Arms from the middle of the cell; a row of them is one line."""
    middle, centre = width / 2, height / 2
    if "l" in arms or "r" in arms:
        left = 0.0 if "l" in arms else middle
        right = width * count if "r" in arms else width * count - middle
        yield Area(left, centre - THIN / 2, right - left, THIN)
    if "u" in arms or "d" in arms:
        top = 0.0 if "u" in arms else centre
        bottom = height if "d" in arms else centre
        for at in range(count):
            yield Area(middle - THIN / 2 + at * width, top, THIN, bottom - top)
