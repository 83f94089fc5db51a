"""The file picker: a path with what it could become below it."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.widgets import Input

from decodetop_tui import traces
from decodetop_tui.paint import Line, Span
from decodetop_tui.painted import Styles
from decodetop_tui.panes._cells import clean, clip_middle
from decodetop_tui.screens.modal import Entry, Listing, Modal, Window, columns

ROWS = 14


class PickTrace(Modal[tuple[str, ...]]):
    """Gives the files of one capture, None on Esc."""

    WIDTH = 110

    def __init__(self, styles: Styles, folder: str) -> None:
        super().__init__()
        self._folder = folder
        self._found = traces.Found(folder, ())
        self._list = Listing(styles)
        self._input = Entry(folder.rstrip("/") + "/")

    def compose(self) -> ComposeResult:
        hint = "Tab complete   Enter open   *TP-*.json.gz = all ranks   Esc leave"
        yield Window(self._input, self._list, title="open a profiler trace (.json, .json.gz)", hint=hint)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._found = traces.look(event.value)
        # what Enter is for: the newest trace, where there is one
        entries = self._found.entries
        self._list.at = next((at for at, entry in enumerate(entries) if entry.paths), 0) if self._whole else 0
        self.fit()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        typed = traces.typed_paths(event.value)
        chosen = self._chosen
        if typed:
            self.dismiss(typed)
        elif chosen is not None and chosen.paths:
            self.dismiss(chosen.paths)
        elif chosen is not None:
            self._complete(chosen, into=True)

    def on_key(self, event: events.Key) -> None:
        by = {"down": 1, "up": -1, "pagedown": ROWS, "pageup": -ROWS}.get(event.key)
        if by is not None:
            self._list.at += by
            self.fit()
        elif event.key == "tab" and self._chosen is not None:
            self._complete(self._chosen, into=False)
        elif event.key not in ("tab", "shift+tab"):
            return
        event.stop()
        event.prevent_default()

    def fit(self) -> None:
        width = self.inner_width
        rows = max(1, min(ROWS, self.app.size.height - 5))
        lines = [self._line(entry, width) for entry in self._found.entries]
        if not lines:
            word = self._found.problem or "no trace and no folder here"
            lines = [(Span(word, "bad" if self._found.problem else "dim"),)]
        self._list.show(lines, width, rows, cursor=bool(self._found.entries))

    @property
    def _chosen(self) -> traces.Entry | None:
        entries = self._found.entries
        return entries[self._list.at] if entries else None

    @property
    def _whole(self) -> bool:
        """Nothing is typed after the folder."""
        return not self._input.value or self._input.value.endswith(("/", "~"))

    def _complete(self, entry: traces.Entry, *, into: bool) -> None:
        """Put the entry's name in the line; of several files, their folder stays and Enter opens them.

        A folder is entered only when asked, or when its name stands there already.
        """
        if len(entry.paths) > 1:
            return
        name = entry.name
        if not into and not self._input.value.endswith(f"/{name.rstrip('/')}"):
            name = name.rstrip("/")
        folder = self._input.value.rpartition("/")[0]
        self._input.value = f"{folder}/{name}" if folder or self._input.value.startswith("/") else name
        self._input.cursor_position = len(self._input.value)

    def _line(self, entry: traces.Entry, width: int) -> Line:
        style = "" if entry.paths else "key"
        size = traces.size_words(entry.size) if entry.paths else ""
        name = clip_middle(clean(entry.name), width - len(size) - 1)
        return columns([Span(name, style)], [Span(size, "dim")], width)
