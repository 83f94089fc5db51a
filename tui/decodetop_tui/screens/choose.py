"""One of several: type to narrow, arrows to move, Enter to choose. The palette and the choice of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input

from decodetop_tui.paint import Line, Span
from decodetop_tui.painted import Styles
from decodetop_tui.panes._cells import cells, clean, clip, pad
from decodetop_tui.screens.modal import Entry, Listing, Modal, Window, columns

MOST_ROWS = 14
MOST_TITLE = 24
HINT = "Enter choose   Esc leave"


class Choice(NamedTuple):
    """`id` is what is given back; `note` explains, `tag` stands at the right."""

    id: str
    title: str
    note: str = ""
    tag: str = ""
    dim: bool = False


def matching(choices: Sequence[Choice], typed: str) -> list[Choice]:
    """Those that hold every word typed; where the title begins with it first, then where the title holds it."""
    wanted = typed.lower().split()
    if not wanted:
        return list(choices)
    found = [
        choice
        for choice in choices
        if all(word in f"{choice.title} {choice.note} {choice.tag}".lower() for word in wanted)
    ]
    first = wanted[0]
    return sorted(
        found, key=lambda choice: (not choice.title.lower().startswith(first), first not in choice.title.lower())
    )


class Choose(Modal[str]):
    """Gives the id of the choice, None on Esc."""

    WIDTH = 92

    def __init__(self, styles: Styles, title: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._title = title
        self._choices = tuple(
            one._replace(title=clean(one.title), note=clean(one.note), tag=clean(one.tag)) for one in choices
        )
        self._found = list(self._choices)
        self._list = Listing(styles)

    def compose(self) -> ComposeResult:
        yield Window(Entry(placeholder="type to narrow"), self._list, title=self._title, hint=HINT)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._found = matching(self._choices, event.value)
        self._list.at = 0
        self.fit()

    def on_input_submitted(self) -> None:
        self.dismiss(self._found[self._list.at].id if self._found else None)

    def on_key(self, event: events.Key) -> None:
        by = {"down": 1, "up": -1, "tab": 1, "shift+tab": -1, "pagedown": MOST_ROWS, "pageup": -MOST_ROWS}.get(
            event.key
        )
        if by is not None:
            event.stop()
            event.prevent_default()
            self._list.at += by
            self.fit()

    def fit(self) -> None:
        width = self.inner_width
        rows = max(1, min(MOST_ROWS, len(self._choices), self.app.size.height - 5))
        lines = [self._line(choice, width) for choice in self._found] or [(Span("nothing matches", "dim"),)]
        self._list.show(lines, width, rows, cursor=bool(self._found))
        below = len(lines) - rows - self._list.top
        more = f"{below} more ↓   " if below > 0 else ""
        self.query_one(Window).border_subtitle = Content(f"{more}{HINT}")

    def _line(self, choice: Choice, width: int) -> Line:
        style = "dim" if choice.dim else ""
        titles = min(max((cells(one.title) for one in self._choices), default=0) + 2, MOST_TITLE)
        title = pad(choice.title, titles) if cells(choice.title) <= titles else f"{choice.title}  "
        room = max(0, width - cells(title) - cells(choice.tag) - 2)
        left = [Span(clip(title, width), style), Span(clip(choice.note, room), "dim")]
        return columns(left, [Span(choice.tag, "dim" if choice.dim else "key")], width)
