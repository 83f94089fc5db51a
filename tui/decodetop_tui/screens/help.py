"""Help: the action table as it is in force, and what the marks mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from decodetop_tui.cells import width_of
from decodetop_tui.keymap import GROUPS, Action, Keymap
from decodetop_tui.paint import Line, Span
from decodetop_tui.painted import Styles
from decodetop_tui.screens.listed import Listed

ORDER = ("bench", "steps", "floor", "server", "todo", "look", "record", "program", "move")
"""What acts on something first: it is what help is asked for."""

MARKS = (
    ("–", "not known; the pane, zoomed, says why"),
    ("dim", "an old figure: its source fails, the title says since when"),
    ("▲ ◆", "worth a look; the verdict of the floor"),
    ("▶ ○ ✓ ✗", "an item in progress, to do, done, cancelled"),
    ("▌ *", "the row in focus; a marked row"),
    ("3 more ↓", "lines of a pane below those shown"),
)

COLUMN = 76
"""Cells of one row: keys, title, help."""


def lines(actions: Sequence[Action], keymap: Keymap, width: int) -> list[Line]:
    """Group by group; in two columns where there is room."""
    blocks: list[list[Line]] = []
    for group in sorted(GROUPS, key=ORDER.index):
        rows = [action for action in actions if action.group == group]
        if rows:
            blocks.append([(Span(group, "title.focus"),), *(_row(action, keymap) for action in rows), ()])
    marks = [(Span(f"  {mark:<9}", "key"), Span(meaning, "dim")) for mark, meaning in MARKS]
    blocks.append([(Span("marks", "title.focus"),), *marks, ()])
    if width < 2 * COLUMN:
        return [line for block in blocks for line in block]
    half = sum(map(len, blocks)) // 2
    left: list[Line] = []
    right: list[Line] = []
    for block in blocks:
        (left if len(left) < half else right).extend(block)
    rows_ = max(len(left), len(right))
    left += [()] * (rows_ - len(left))
    right += [()] * (rows_ - len(right))
    return [beside(one, two) for one, two in zip(left, right, strict=True)]


def beside(left: Line, right: Line) -> Line:
    """`right` from a fixed column on."""
    return (*left, Span(" " * max(1, COLUMN - width_of(left))), *right)


def _row(action: Action, keymap: Keymap) -> Line:
    keys = keymap.shown(action.id)
    return (Span(f"  {keys:<7}", "key"), Span(f"{action.title:<18} "), Span(action.help, "dim"))


class Help(Listed):
    """? leaves it too."""

    TITLE = "keys"
    WIDTH = COLUMN + 4
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,f1", "leave", "leave")]

    def __init__(self, styles: Styles, actions: Sequence[Action], keymap: Keymap) -> None:
        super().__init__(styles)
        self._actions, self._keymap = actions, keymap

    def shown(self, width: int) -> list[Line]:
        return lines(self._actions, self._keymap, width)

    @property
    def wide(self) -> int:
        """Two columns where both fit."""
        return 2 * COLUMN + 4 if self.app.size.width >= 2 * COLUMN + 6 else COLUMN + 4
