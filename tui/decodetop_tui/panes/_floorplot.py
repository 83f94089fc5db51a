"""Time of a step over the batch as a braille plot, both axes in powers of two. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from decodetop.core import words
from decodetop.floor.reading import BatchPoint
from decodetop_tui.paint import Span

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of a braille cell by row and column of the dot."""
LABEL_CELLS = 9


class Mark(NamedTuple):
    """What was measured, drawn over the curves."""

    batch: int
    ms: float


def plot(points: Sequence[BatchPoint], mark: Mark | None, width: int, rows: int) -> list[list[Span]]:
    """`rows` lines of curves (the bound dim, practice above it), an axis and its labels; empty without room."""
    room = width - LABEL_CELLS - 2
    points = _drawable(points)
    if len(points) < 2 or room < 20 or rows < 3:
        return []
    usable = mark is not None and words.known(mark.ms) and mark.ms > 0 and mark.batch > 0
    seen = [value for one in points for value in (one.t_phys_ms, one.t_prac_ms)] + (
        [mark.ms] if usable and mark is not None else []
    )
    low, high = math.log2(min(seen)), math.log2(max(seen))
    high = min(max(high, low + 0.5), 1023.0)  # 2 ** 1024 is no float
    field = _Field(math.log2(points[0].batch), math.log2(points[-1].batch), low, high, room, rows)
    bound = field.curve([(one.batch, one.t_phys_ms) for one in points])
    practice = field.curve([(one.batch, one.t_prac_ms) for one in points])
    at = field.cell(mark) if usable and mark is not None else None
    lines = []
    for y in range(rows):
        label = (
            f"{words.significant(2**high)} ms" if y == 0 else f"{words.significant(2**low)} ms" if y == rows - 1 else ""
        )
        line = [Span(f"{label:>{LABEL_CELLS}} ", "dim"), Span("│", "rule")]
        for x in range(room):
            over, under = practice.get((x, y), 0), bound.get((x, y), 0)
            if at == (x, y):
                line.append(Span("●", "loud"))
            elif over:
                line.append(Span(chr(0x2800 + (over | under)), "key"))
            else:
                line.append(Span(chr(0x2800 + under) if under else " ", "dim"))
        lines.append(joined(line))
    return [*lines, *_axis(points, field)]


def _drawable(points: Sequence[BatchPoint]) -> list[BatchPoint]:
    """What has a place on logarithmic axes: known and above zero, one a batch, in its order."""
    by_batch = {
        one.batch: one
        for one in points
        if one.batch > 0 and all(words.known(ms) and ms > 0 for ms in (one.t_phys_ms, one.t_prac_ms))
    }
    return [by_batch[batch] for batch in sorted(by_batch)]


class _Field(NamedTuple):
    left: float
    right: float
    low: float
    high: float
    room: int
    rows: int

    def curve(self, points: Sequence[tuple[int, float]]) -> dict[tuple[int, int], int]:
        """Bits by cell of the line through the points."""
        cells: dict[tuple[int, int], int] = {}
        wide = self.room * 2
        logs = [(math.log2(batch), math.log2(ms)) for batch, ms in points]
        for dot in range(wide):
            at = self.left + (self.right - self.left) * dot / (wide - 1)
            y = self._y(_between(logs, at))
            key = (dot // 2, y // 4)
            cells[key] = cells.get(key, 0) | DOTS[y % 4][dot % 2]
        return cells

    def cell(self, mark: Mark) -> tuple[int, int] | None:
        x = round((math.log2(mark.batch) - self.left) / (self.right - self.left) * (self.room - 1))
        return (x, self._y(math.log2(mark.ms)) // 4) if 0 <= x < self.room else None

    def x(self, batch: int) -> int:
        return round((math.log2(batch) - self.left) / (self.right - self.left) * (self.room - 1))

    def _y(self, value: float) -> int:
        share = (value - self.low) / (self.high - self.low)
        return max(0, min(self.rows * 4 - 1, round((1 - share) * (self.rows * 4 - 1))))


def _between(points: Sequence[tuple[float, float]], at: float) -> float:
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if at <= x1:
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    return points[-1][1]


def _axis(points: Sequence[BatchPoint], field: _Field) -> list[list[Span]]:
    """The batch sizes below, those bound by arithmetic marked."""
    ticks, labels = ["─"] * field.room, [" "] * (field.room + 4)
    end = -1
    for one in points:
        x = field.x(one.batch)
        ticks[x] = "┴"
        text = f"{one.batch}"
        begin = max(0, min(x - len(text) // 2, field.room - len(text)))
        if begin > end:
            labels[begin : begin + len(text)] = text
            end = begin + len(text)
    knee = next((one.batch for one in points if one.bound == "compute"), None)
    pad = " " * (LABEL_CELLS + 1)
    said = "sequences; memory bounds all of them" if knee is None else f"sequences; arithmetic bounds from {knee} on"
    return [
        [Span(pad), Span(f"└{''.join(ticks)}", "rule")],
        [Span(f"{pad} {''.join(labels).rstrip()}", "dim")],
        [
            Span(f"{pad} ", "dim"),
            Span("⠤ ", "dim"),
            Span("bound  ", "dim"),
            Span("⠤ ", "key"),
            Span("practice", "dim"),
            Span("  ● ", "loud"),
            Span(f"measured   {said}", "dim"),
        ],
    ]


def joined(line: Sequence[Span]) -> list[Span]:
    """Neighbours of one style as one span."""
    out: list[Span] = []
    for span in line:
        if out and out[-1].style == span.style:
            out[-1] = Span(out[-1].text + span.text, span.style)
        else:
            out.append(span)
    return out
