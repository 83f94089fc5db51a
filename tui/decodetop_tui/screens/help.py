"""Help: the action table as it is in force, and what the marks mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from decodetop_tui.cells import width_of
from decodetop_tui.keymap import GROUPS, Action, Keymap
from decodetop_tui.paint import Line, Span
from decodetop_tui.painted import Styles
from decodetop_tui.screens.modal import Listing, Modal, Window

COLUMN = 76
"""Cells of one row: keys, title, help."""


def lines(actions: Sequence[Action], keymap: Keymap, width: int) -> list[Line]:
    """Group by group; in two columns where there is room."""
    blocks: list[list[Line]] = []
    for group in GROUPS:
        rows = [action for action in actions if action.group == group]
        if rows:
            blocks.append([(Span(group, "title.focus"),), *(_row(action, keymap) for action in rows), ()])
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
    return (Span(f"  {keys:<9}", "key"), Span(f"{action.title:<18} "), Span(action.help, "dim"))


class Help(Modal[None]):
    """Scrolls with the usual keys; any of ? q Esc Enter closes it."""

    WIDTH = COLUMN + 4
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,q,enter,f1", "leave", "leave"),
        Binding("j,down", "scroll_by(1)", "down"),
        Binding("k,up", "scroll_by(-1)", "up"),
        Binding("pagedown,space", "scroll_by(10)", "down"),
        Binding("pageup", "scroll_by(-10)", "up"),
        Binding("g,home", "scroll_by(-1000)", "top"),
        Binding("G,end", "scroll_by(1000)", "end"),
    ]

    def __init__(self, styles: Styles, actions: Sequence[Action], keymap: Keymap) -> None:
        super().__init__()
        self._actions, self._keymap = actions, keymap
        self._list = Listing(styles)

    def compose(self) -> ComposeResult:
        yield Window(self._list, title="keys", hint="j k scroll   Esc leave")

    def action_scroll_by(self, by: int) -> None:
        self._list.top = max(0, self._list.top + by)
        self.fit()

    @property
    def wide(self) -> int:
        """Two columns where both fit."""
        return 2 * COLUMN + 4 if self.app.size.width >= 2 * COLUMN + 6 else COLUMN + 4

    def fit(self) -> None:
        width = self.inner_width
        found = lines(self._actions, self._keymap, width)
        self._list.show(found, width, min(len(found), self.app.size.height - 3), cursor=False)
