"""Lines to read, scrolled with the usual keys."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from decodetop_tui.paint import Line
from decodetop_tui.painted import Styles
from decodetop_tui.screens.modal import Listing, Modal, Window


class Listed(Modal[None]):
    """`shown` gives the lines for a width. Esc, q and Enter leave; what is below is counted in the frame."""

    TITLE = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,enter", "leave", "leave"),
        Binding("j,down", "scroll_by(1)", "down"),
        Binding("k,up", "scroll_by(-1)", "up"),
        Binding("pagedown,space", "scroll_by(10)", "down"),
        Binding("pageup", "scroll_by(-10)", "up"),
        Binding("g,home", "scroll_by(-1000)", "top"),
        Binding("G,end", "scroll_by(1000)", "end"),
    ]

    def __init__(self, styles: Styles) -> None:
        super().__init__()
        self._list = Listing(styles)

    @abstractmethod
    def shown(self, width: int) -> list[Line]: ...

    def compose(self) -> ComposeResult:
        yield Window(self._list, title=self.TITLE)

    def action_scroll_by(self, by: int) -> None:
        self._list.top = max(0, self._list.top + by)
        self.fit()

    def fit(self) -> None:
        width = self.inner_width
        found = self.shown(width)
        height = max(1, min(len(found), self.app.size.height - 3))
        self._list.show(found, width, height, cursor=False)
        below = len(found) - height - self._list.top
        more = f"{below} more ↓   " if below > 0 else ""
        scroll = "j k scroll   " if len(found) > height else ""
        self.query_one(Window).border_subtitle = Content(f"{more}{scroll}Esc leave")
