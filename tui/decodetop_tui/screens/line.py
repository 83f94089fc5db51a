"""One line of text to type: a todo's words, a filter."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Input

from decodetop_tui.screens.modal import Entry, Modal, Window


class AskLine(Modal[str]):
    """Gives the line on Enter, None on Esc."""

    WIDTH = 100

    def __init__(self, title: str, value: str = "", hint: str = "") -> None:
        super().__init__()
        self._title, self._value, self._hint = title, value, hint

    def compose(self) -> ComposeResult:
        yield Window(Entry(self._value), title=self._title, hint=self._hint)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)
