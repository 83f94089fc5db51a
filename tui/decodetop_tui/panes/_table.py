"""Columns of fixed width, dropped by priority as the pane narrows, and pairs of label and value in a grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from decodetop_tui.paint import Span
from decodetop_tui.panes._cells import cells, exactly, pad

GAP = 2
INDENT = 2


class Column(NamedTuple):
    """`keep` decides who goes first when it gets narrow: the lowest; columns of equal `keep` go together.

    With a header the cell stands alone; without one it carries `before` and `after` (its unit).
    `grow` cells at most are added to `width` when room is left over.
    """

    id: str
    head: str
    width: int
    keep: int
    align: str = ">"
    before: str = ""
    after: str = ""
    grow: int = 0


class Table:
    """What fits of `columns` into `width` cells."""

    def __init__(self, columns: Sequence[Column], width: int, headed: bool) -> None:
        self.headed = headed
        kept = list(columns)
        while len(kept) > 1 and self._needs(kept) > width:
            lowest = min(column.keep for column in kept[1:])
            kept = [column for column in kept if column is kept[0] or column.keep > lowest]
        self.columns = tuple(kept)
        self.sizes = self._grown(width)

    def __contains__(self, id: str) -> bool:
        return any(column.id == id for column in self.columns)

    def size(self, id: str) -> int:
        """The cells given to a column; 0 when it was dropped."""
        return next((size for column, size in zip(self.columns, self.sizes, strict=True) if column.id == id), 0)

    def header(self) -> list[Span]:
        line: list[Span] = []
        for column, size in zip(self.columns, self.sizes, strict=True):
            line += [_before(line), Span(pad(column.head, size, column.align), "dim")]
        return line

    def row(self, values: dict[str, Span | str]) -> list[Span]:
        """`values` by column id; an absent one leaves its cells empty."""
        line: list[Span] = []
        for column, size in zip(self.columns, self.sizes, strict=True):
            line.append(_before(line))
            value = values.get(column.id, "")
            text, style = value if isinstance(value, Span) else (value, "")
            if self.headed or not text:
                line.append(Span(pad(text, size, column.align), style))
                continue
            room = size - cells(column.before) - cells(column.after)
            line += [Span(column.before, "dim"), Span(pad(text, room, column.align), style)]
            line.append(Span(column.after, "dim"))
        return line

    def _wide(self, column: Column) -> int:
        if self.headed:
            return max(column.width, cells(column.head))
        return column.width + cells(column.before) + cells(column.after)

    def _needs(self, columns: Sequence[Column]) -> int:
        return INDENT + sum(self._wide(column) for column in columns) + GAP * (len(columns) - 1)

    def _grown(self, width: int) -> tuple[int, ...]:
        free = max(0, width - self._needs(self.columns))
        sizes = []
        for column in self.columns:
            more = min(free, column.grow)
            free -= more
            sizes.append(self._wide(column) + more)
        return tuple(sizes)


def _before(line: list[Span]) -> Span:
    return Span(" " * (GAP if line else INDENT))


class Pair(NamedTuple):
    """A label and its value; `width` is the value's room, so that digits don't move what stands after them."""

    label: str
    value: Span
    unit: str = ""
    width: int = 0
    after: tuple[Span, ...] = ()


def pair(label: str, value: str, unit: str = "", width: int = 0, style: str = "", *after: Span) -> Pair:
    return Pair(label, Span(value, style), unit, width, after)


def spans_of(item: Pair, label_width: int = 0) -> list[Span]:
    """`label value unit`, the value right-aligned in its room."""
    label = Span(pad(item.label, max(label_width, cells(item.label))) + " ", "dim")
    text = item.value.text
    value = Span(pad(text, max(item.width, cells(text)), ">" if item.width else "<"), item.value.style)
    unit = Span(f" {item.unit}", "dim") if item.unit else Span("")
    return [label, value, unit, *item.after]


def grid(items: Sequence[Pair], width: int, least: int = 34) -> list[list[Span]]:
    """Pairs in as many columns of at least `least` cells as fit, filled downwards."""
    if not items:
        return []
    columns = max(1, min((width - INDENT) // least, 4))
    rows = -(-len(items) // columns)
    size = (width - INDENT) // columns
    label = min(max(cells(item.label) for item in items), max(size // 2, 1))
    lines = []
    for row in range(rows):
        line = [Span(" " * INDENT)]
        for item in items[row::rows]:
            line += _boxed_pair(item._replace(label=pad(item.label, label)), 0, size)
        lines.append(line)
    return lines


def flow(items: Sequence[Sequence[Span]], width: int, gap: int = 3) -> list[list[Span]]:
    """The items one after another, broken into lines of at most `width` cells."""
    lines: list[list[Span]] = []
    used = width
    for item in items:
        size = sum(cells(span.text) for span in item)
        if not lines or used + gap + size > width:
            lines.append([Span(" " * INDENT)])
            used = INDENT
        else:
            lines[-1].append(Span(" " * gap))
            used += gap
        lines[-1] += item
        used += size
    return lines


def columns(sections: Sequence[Sequence[Pair]], width: int, least: int = 36) -> list[list[Span]]:
    """Sections of pairs side by side, one column each, where they fit; else one grid of them all."""
    if (width - INDENT) // max(len(sections), 1) < least:
        return grid([item for section in sections for item in section], width)
    size = min((width - INDENT) // len(sections), 56)
    labels = [max((cells(item.label) for item in section), default=0) for section in sections]
    lines = []
    for row in range(max((len(section) for section in sections), default=0)):
        line = [Span(" " * INDENT)]
        for section, label in zip(sections, labels, strict=True):
            line += _boxed_pair(section[row], label, size) if row < len(section) else boxed([], size)
        lines.append(line)
    return lines


@lru_cache(maxsize=1024)
def _boxed_pair(item: Pair, label: int, room: int) -> tuple[Span, ...]:
    """Of a second's pairs most are those of the second before."""
    return tuple(boxed(spans_of(item, label), room))


def boxed(spans: Sequence[Span], room: int) -> list[Span]:
    """The spans in exactly `room` cells, the last of them kept off the next box."""
    return [*exactly(spans, max(room - GAP, 0)), Span(" " * min(GAP, room))]
