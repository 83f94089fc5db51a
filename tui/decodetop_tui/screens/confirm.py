"""A question before something is lost."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from decodetop_tui.screens.modal import Modal, Window, Words


class Confirm(Modal[bool]):
    """True on y or Enter; False on n; None on Esc. `insist`: the key that asked, pressed again, is a yes."""

    WIDTH = 60
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "yes"),
        Binding("n", "answer(False)", "no"),
    ]

    def __init__(self, question: str, detail: str = "", *, insist: bool = False) -> None:
        super().__init__()
        self._question, self._detail, self._insist = question, detail, insist

    def compose(self) -> ComposeResult:
        yield Window(Words(self._detail, markup=False), title=self._question, hint="y yes   n no")

    def action_interrupt(self) -> None:
        self.dismiss(True if self._insist else None)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
