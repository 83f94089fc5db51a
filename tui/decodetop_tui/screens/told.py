"""The last word to the operator, whole: the footer has room for a line of it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from decodetop.core.sample import Notice
from decodetop_tui.screens.modal import Modal, Window, Words


class Told(Modal[None]):
    """Closed by Esc and Enter."""

    WIDTH = 100
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "leave", "leave")]

    def __init__(self, notice: Notice) -> None:
        super().__init__()
        self._notice = notice

    def compose(self) -> ComposeResult:
        text = "\n\n".join(part for part in (self._notice.message, self._notice.hint) if part)
        yield Window(Words(text, markup=False), title=self._notice.level, hint="Esc leave")
