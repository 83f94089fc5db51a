"""What a pane draws: lines of styled spans, made by pure functions of the state. Knows nothing of Textual."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from decodetop.core.state import State


class Span(NamedTuple):
    """`style` is a role of the theme: "", dim, loud, good, warn, bad, key, title, cursor, or kind.<step kind>."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


class View(NamedTuple):
    """How a pane is looked at. `cursor` is the id of the selected row; `mode` indexes the pane's MODES."""

    width: int
    height: int
    focused: bool = False
    zoomed: bool = False
    cursor: str | None = None
    mode: int = 0
    filter: str = ""
    marks: frozenset[str] = frozenset()


class Filter(NamedTuple):
    """What `/` narrows in a pane, in words; `zoomed`: only where the pane has the whole screen."""

    what: str
    zoomed: bool = False


class Picture(NamedTuple):
    """`lines` may be more than the view's height: the pane scrolls to keep the cursor's row in sight.

    `rows[i]` is the id of the row that line i belongs to, None for lines that can't be selected.
    `note` stands at the right of the title: the state, the age, the capture shown.
    `header_lines` first lines stay in place when the rest scrolls. `subject` stands behind the pane's own title.
    `column` = first cell and width of the part that the rows stand in, where a picture has two; spans end at its edges.
    """

    lines: tuple[Line, ...]
    rows: tuple[str | None, ...] = ()
    note: str = ""
    note_style: str = "dim"
    header_lines: int = 0
    subject: str = ""
    column: tuple[int, int] | None = None


Draw = Callable[[State, View], Picture]
