"""What the face's small windows share: a frame over the dashboard, Esc to leave, text never read as markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from textual import events
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from decodetop.core.outside import plain
from decodetop_tui.cells import width_of
from decodetop_tui.paint import Line, Span
from decodetop_tui.painted import Painted, Styles
from decodetop_tui.panes._cells import fit
from decodetop_tui.titles import under_cursor

T = TypeVar("T")

STYLES = """
Modal { align: center middle; background: transparent; }
Window {
    border: round $primary; background: $background; color: $foreground;
    padding: 0 1; height: auto;
}
Window Input, Window Input:focus {
    border: none; padding: 0; height: 1; background: $background; color: $foreground;
}
Window Static { height: auto; }
"""
"""For the app's own sheet: a screen's sheet would be scoped to the class that inherits it."""


class Passing(Widget):
    """Forgets what it looked like when it goes.

    Textual keeps the renderers of the last thousand widgets, gone or not, each with all its lines.
    """

    def on_unmount(self) -> None:
        self._styles_cache.clear()


class Modal(ModalScreen[T | None], Passing):
    """A window of `WIDTH` cells at most. Dismissed with None by Esc and ctrl+c."""

    WIDTH = 78
    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "leave", priority=True),
        Binding("ctrl+c", "interrupt", "leave", priority=True),
        Binding("ctrl+z", "app.suspend_process", "suspend", priority=True),
    ]

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close it, once: a key that was pressed before it was gone must not close what lies under it."""
        if self.app.screen is not self:
            return AwaitComplete()
        return super().dismiss(result)

    def action_interrupt(self) -> None:
        self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)

    def on_mount(self) -> None:
        self._fit()

    def on_resize(self, event: events.Resize) -> None:
        self._fit()

    def _fit(self) -> None:
        """As wide as wanted, and never wider than the terminal."""
        for window in self.query(Window):
            window.styles.width = min(self.wide, max(self.app.size.width - 2, 1))
        self.fit()

    def fit(self) -> None:
        """Called with the window's width set: draw what depends on it."""

    @property
    def wide(self) -> int:
        """Cells the window would like, frame and padding included."""
        return self.WIDTH

    @property
    def inner_width(self) -> int:
        """Cells for content within frame and padding."""
        return max(1, min(self.wide, self.app.size.width - 2) - 4)


class Window(Passing):
    """The frame; its title and the hint below are plain text."""

    def __init__(self, *children: Widget, title: str, hint: str = "") -> None:
        super().__init__(*children)
        self.border_title = Content(title)
        self.border_subtitle = Content(hint)


class Words(Static, Passing):
    """Text to read."""


class Entry(Input, Passing):
    """An input line that stands still: no blinking cursor to send over SSH. What is pasted becomes one line of text."""

    def __init__(self, value: str = "", placeholder: str = "") -> None:
        super().__init__(value=plain(value), placeholder=placeholder, select_on_focus=False)
        self.cursor_blink = False

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()  # else Textual's own takes the first line as it is
        self.replace(plain(event.text), *self.selection)


class Listing(Painted, Passing):
    """Lines of which one may be chosen; scrolls to keep it in sight."""

    def __init__(self, styles: Styles) -> None:
        super().__init__(styles)
        self.at = 0
        self.top = 0

    def show(self, lines: Sequence[Line], width: int, height: int, *, cursor: bool = True) -> None:
        """Paint `height` rows of `lines`, the chosen one on the cursor's ground."""
        height = max(1, height)
        self.styles.height = height
        self.styles.width = width
        last = max(0, len(lines) - 1)
        self.at = max(0, min(self.at, last))
        if cursor:
            self.top = min(max(self.top, self.at - height + 1), self.at)
        self.top = max(0, min(self.top, len(lines) - height))
        shown = []
        for y in range(self.top, self.top + height):
            line = fit(lines[y], width) if y < len(lines) else ()
            shown.append(under_cursor(line, width) if cursor and y == self.at and y < len(lines) else line)
        self.paint(shown, width)


def columns(left: Sequence[Span], right: Sequence[Span], width: int) -> Line:
    """`left` and, where there is room, `right` at the right edge."""
    gap = width - width_of(left) - width_of(right)
    return (*left, Span(" " * gap), *right) if gap >= 1 else tuple(left)
