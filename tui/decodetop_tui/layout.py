"""Where everything stands, for any size of terminal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

NAMES = ("gpu", "server", "todo", "bench", "steps", "host")
"""The panes in the order of their keys."""

LEFT = ("server", "bench")
RIGHT = ("todo", "steps")

SMALL_WIDTH = 60
SMALL_HEIGHT = 16
"""Below either, one pane is shown at a time."""

FINDINGS_HEIGHT = 8
"""From here on what is wrong has its line: a pane of four rows less one tells less than that."""

TWO_COLUMNS_WIDTH = 100


class Rect(NamedTuple):
    """In terminal cells; the top left corner is 0, 0."""

    x: int
    y: int
    width: int
    height: int


class Want(NamedTuple):
    """Rows of a pane's content, without its title: `least` to make sense, `wanted` to show all that matters."""

    least: int
    wanted: int


class Place(NamedTuple):
    """A pane's rectangle with its title row.

    `edge` is the rule at its left, one character a row (empty = none); `margin` are cells kept free at its right;
    `joints` are the places where its title rule meets a vertical one, relative to the rectangle.
    """

    rect: Rect
    edge: str = ""
    margin: int = 0
    joints: tuple[tuple[int, str], ...] = ()

    @property
    def content_width(self) -> int:
        return max(0, self.rect.width - bool(self.edge) - self.margin)

    @property
    def content_height(self) -> int:
        return self.rect.height - 1


class Plan(NamedTuple):
    """Rows of the frame (None = no room for it), and the panes that show."""

    top: Rect | None
    findings: Rect | None
    footer: Rect | None
    panes: Mapping[str, Place]


WantOf = Callable[[str, int], Want]
"""What a pane wants at a content width."""


def arrange(width: int, height: int, want: WantOf, focused: str = NAMES[0], zoomed: bool = False) -> Plan:
    """The plan for a terminal of `width` x `height` cells."""
    width, height = max(width, 1), max(height, 1)
    framed = height >= 4
    found = height >= FINDINGS_HEIGHT
    first = framed + found
    rows = height - first - framed
    if zoomed or width < SMALL_WIDTH or height < SMALL_HEIGHT:
        panes = {focused: Place(Rect(0, first, width, rows))}
    elif width < TWO_COLUMNS_WIDTH:
        panes = _stack(NAMES, Rect(0, first, width, rows), want)
    else:
        panes = _two_columns(Rect(0, first, width, rows), want)
    return Plan(
        top=Rect(0, 0, width, 1) if framed else None,
        findings=Rect(0, 1, width, 1) if found else None,
        footer=Rect(0, height - 1, width, 1) if framed else None,
        panes=panes,
    )


def share(rows: int, wants: Sequence[Want], stretch: Sequence[bool]) -> list[int]:
    """`rows` given to parts one by one in turn: first to each part's least, then to its wanted, then to who stretches.

    Never more than `rows` in sum; all of them where one part stretches.
    """
    given = [0] * len(wants)
    rows = _deal(rows, given, [part.least for part in wants])
    rows = _deal(rows, given, [max(part) for part in wants])
    takers = [at for at, takes in enumerate(stretch) if takes]
    for turn in range(rows if takers else 0):
        given[takers[turn % len(takers)]] += 1
    return given


def _deal(rows: int, given: list[int], goal: Sequence[int]) -> int:
    """One row each in turn up to `goal`; returns what is left."""
    while rows > 0:
        short = [at for at in range(len(given)) if given[at] < goal[at]]
        if not short:
            break
        for at in short[:rows]:
            given[at] += 1
        rows -= min(rows, len(short))
    return rows


def _stack(names: Sequence[str], area: Rect, want: WantOf) -> dict[str, Place]:
    """One pane under another; each has at least its title while there are as many rows as panes."""
    wants = [_titled(want(name, area.width)) for name in names]
    stretch = [name not in ("gpu", "host") for name in names]
    heights = _with_titles(area.height, wants, stretch)
    panes: dict[str, Place] = {}
    y = area.y
    for name, height in zip(names, heights, strict=True):
        panes[name] = Place(Rect(area.x, y, area.width, height))
        y += height
    return panes


def _with_titles(rows: int, wants: Sequence[Want], stretch: Sequence[bool]) -> list[int]:
    """Like `share`, but nobody goes without the title row."""
    body = [Want(max(part.least, 1) - 1, max(part.wanted, 1) - 1) for part in wants]
    return [1 + height for height in share(rows - len(wants), body, stretch)]


def _titled(want: Want) -> Want:
    return Want(want.least + 1, want.wanted + 1)


def _two_columns(area: Rect, want: WantOf) -> dict[str, Place]:
    """The GPUs above and the host below over the whole width, the rest in two columns between."""
    left_width = (area.width - 1) // 2
    right_width = area.width - left_width
    columns = (
        [_titled(want(name, left_width - 1)) for name in LEFT],
        [_titled(want(name, right_width - 1)) for name in RIGHT],
    )
    middle = Want(
        max(sum(part.least for part in column) for column in columns),
        max(sum(part.wanted for part in column) for column in columns),
    )
    outer = [_titled(want("gpu", area.width)), middle, _titled(want("host", area.width))]
    gpu, rows, host = _outer_heights(area.height, outer)
    y = area.y + gpu
    panes = {"gpu": Place(Rect(area.x, area.y, area.width, gpu))}
    split = _common_split(rows, columns)
    left = _column(LEFT, Rect(area.x, y, left_width, rows), _narrower(want), split)
    panes |= {name: place._replace(margin=1) for name, place in left.items()}
    right = _column(RIGHT, Rect(area.x + left_width, y, right_width, rows), _narrower(want), split)
    left_titles = {panes[name].rect.y for name in LEFT}
    panes |= {name: place._replace(edge=_edge(place.rect, left_titles, y)) for name, place in right.items()}
    panes["host"] = Place(Rect(area.x, y + rows, area.width, host), joints=((left_width, "┴"),))
    return {name: panes[name] for name in NAMES}


def _common_split(rows: int, columns: Sequence[Sequence[Want]]) -> int | None:
    """Rows of the upper panes if both columns can be parted at one height with everyone's wants met."""
    least = max(column[0].wanted for column in columns)
    most = rows - max(column[1].wanted for column in columns)
    return (least + most) // 2 if least <= most else None


def _column(names: Sequence[str], area: Rect, want: WantOf, split: int | None) -> dict[str, Place]:
    if split is None:
        return _stack(names, area, want)
    upper, lower = names
    return {
        upper: Place(Rect(area.x, area.y, area.width, split)),
        lower: Place(Rect(area.x, area.y + split, area.width, area.height - split)),
    }


def _outer_heights(rows: int, wants: Sequence[Want]) -> tuple[int, int, int]:
    """GPUs, the columns, the host. The columns keep two titles whatever happens."""
    spare = [1, 2, 1]
    rest = [
        Want(max(0, part.least - kept), max(0, part.wanted - kept)) for part, kept in zip(wants, spare, strict=True)
    ]
    heights = share(rows - sum(spare), rest, (False, True, False))
    gpu, middle, host = (kept + given for kept, given in zip(spare, heights, strict=True))
    return gpu, middle, host


def _narrower(want: WantOf) -> WantOf:
    """A pane beside the rule between the columns gives one cell: to the rule, or to keep off it."""
    return lambda name, width: want(name, width - 1)


def _edge(rect: Rect, left_titles: set[int], top: int) -> str:
    """The rule between the columns, joined to the title rules on both sides."""
    marks = []
    for y in range(rect.y, rect.y + rect.height):
        left, right = y in left_titles, y == rect.y
        mark = {(True, True): "┼", (True, False): "┤", (False, True): "├", (False, False): "│"}[left, right]
        marks.append("┬" if y == top else mark)
    return "".join(marks)
