"""What the terminal shows, so that only cells that differ are sent to it.

Textual sends every cell of what it refreshes, from the left edge of the widget, with its colours again at every
segment. This stands between it and the terminal: it reads Textual's output (cursor moves, colours, text), knows what
is on the screen, and writes the difference, with a colour only where the colour changes. Pure: text in, text out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import get_character_cell_size

_TOKEN = re.compile(
    r"\x1b\[(?P<move>\d*;?\d*)H"
    r"|\x1b\[(?P<style>[\d;]*)m"
    r"|(?P<control>\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1bP.*?\x1b\\"
    r"|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[^\[\]P]|[\x00-\x1f\x7f])"
    r"|(?P<text>[^\x00-\x1f\x7f]+)",
    re.DOTALL,
)

_HARMLESS = re.compile(
    r"\x1b\[\?(?!1049|1047|47)[\d;]*(?:[hl]|\$p)|\x1b\[[<>=][\d;]*u|\x1b\].*|\x1bP.*|\x07", re.DOTALL
)
"""Controls that leave the cells, the colours and the cursor as they are: modes, queries, clipboard, bell."""

_SURE = re.compile("[\u2500-\u259f\u2800-\u28ff]")
"""Lines, blocks and braille: one cell on every terminal. Of others, arrows and dots among them, not all agree."""

_GAP_CELLS = 4
"""Cells between two changes that are sent again rather than jumped over: a jump costs as much."""


class Cell(NamedTuple):
    """`text` is empty for the second half of a wide character; `style` holds SGR parameters, "" = none."""

    text: str
    style: str


class Thrift:
    """Fed with what Textual writes; gives what the terminal must be told. `forget` when the screen may be otherwise."""

    def __init__(self) -> None:
        self._width = self._height = 0
        self._shown: list[list[Cell | None]] = []
        self._wanted: list[list[Cell | None]] = []
        self._touched: dict[int, tuple[int, int]] = {}
        self._at = (0, 0)
        self._style = ""
        self._cursor: tuple[int, int] | None = None
        self._pen: str | None = None

    def resize(self, width: int, height: int) -> None:
        """The terminal has another size: nothing is known of it any more."""
        self._width, self._height = width, height
        self.forget()

    def forget(self) -> None:
        """Send everything again that is written from now on."""
        self._shown = [[None] * self._width for _ in range(self._height)]
        self._wanted = [[None] * self._width for _ in range(self._height)]
        self._touched.clear()
        self._cursor = self._pen = None

    @property
    def size(self) -> tuple[int, int]:
        return self._width, self._height

    def feed(self, data: str) -> str:
        """The shortest text we know that has the effect of `data`."""
        out: list[str] = []
        moved = False
        for token in _TOKEN.finditer(data):
            kind = token.lastgroup
            if kind == "text":
                self._put(token["text"])
                moved = False
            elif kind == "style":
                self._set_style(token["style"])
            elif kind == "move":
                self._move(token["move"])
                moved = True
            elif token["control"] == "\n":
                self._at = (0, self._at[1] + 1)
            else:
                out.append(self.difference())
                out.append(token["control"])
                if not _HARMLESS.fullmatch(token["control"]):
                    self.forget()
        out.append(self.difference())
        if moved and self._at != (0, 0) and self._at != self._cursor:
            # where an input method opens its window; the top left corner is where Textual parks it
            out.append(_jump(*self._at))
            self._cursor = self._at
        return "".join(out)

    def _move(self, parameters: str) -> None:
        row, _, column = parameters.partition(";")
        self._at = (int(column or 1) - 1, int(row or 1) - 1)

    def _set_style(self, codes: str) -> None:
        if codes in ("", "0"):
            self._style = ""
        else:
            self._style = f"{self._style};{codes}" if self._style else codes

    def _put(self, text: str) -> None:
        """Write at the current place; what is off the screen is lost, as it is on a terminal that does not wrap."""
        x, y = self._at
        cells = _plain(text, self._style) if text.isascii() else _wide(text, self._style)
        self._at = (x + len(cells), y)
        self.put(x, y, cells)

    def put(self, x: int, y: int, cells: Sequence[Cell | None]) -> None:
        """These cells shall stand there; `difference` then says how."""
        if not 0 <= y < self._height or x >= self._width:
            return
        cells = cells[: self._width - x]
        end = x + len(cells)
        wanted = self._wanted[y]
        wanted[x:end] = cells
        # half a wide character is none: what it leaves on the screen is not ours to know
        if end < self._width and (beyond := wanted[end]) is not None and not beyond.text:
            wanted[end] = None
        if x > 0 and (before := wanted[x - 1]) is not None and _is_wide(before):
            wanted[x - 1] = None
        low, high = self._touched.get(y, (x, end))
        self._touched[y] = (min(low, x), max(high, end))

    def difference(self) -> str:
        """What the terminal must be told to show what was put."""
        out: list[str] = []
        for y in sorted(self._touched):
            low, high = self._touched[y]
            shown, wanted = self._shown[y], self._wanted[y]
            if shown[low:high] != wanted[low:high]:
                self._row(out, y, low, high)
        self._touched.clear()
        return "".join(out)

    def _row(self, out: list[str], y: int, low: int, high: int) -> None:
        shown, wanted = self._shown[y], self._wanted[y]
        at = low
        while at < high:
            cell = wanted[at]
            if cell is None or cell == shown[at]:
                at += 1
                continue
            if not cell.text and at > 0:
                at -= 1  # the second half of a wide character comes with the first
                shown[at] = None
                continue
            self._go(out, at, y)
            at = self._send(out, at, y)

    def _go(self, out: list[str], x: int, y: int) -> None:
        """Bring the cursor there: by writing again the few cells between, or by a jump."""
        if self._cursor == (x, y):
            return
        if self._cursor is not None and self._cursor[1] == y and 0 < x - self._cursor[0] <= _GAP_CELLS:
            between = self._shown[y][self._cursor[0] : x]
            if all(
                cell is not None and cell.style == self._pen and cell.text.isascii() and cell.text for cell in between
            ):
                out.extend(cell.text for cell in between if cell is not None)
                self._cursor = (x, y)
                return
        right = x - self._cursor[0] if self._cursor is not None and self._cursor[1] == y else 0
        out.append(f"\x1b[{right}C" if right > 0 else _jump(x, y))
        self._cursor = (x, y)

    def _send(self, out: list[str], x: int, y: int) -> int:
        """Write one cell; returns the next column."""
        cell = self._wanted[y][x]
        assert cell is not None
        if cell.style != self._pen:
            out.append(_turn(self._pen, cell.style))
            self._pen = cell.style
        out.append(cell.text)
        shown = self._shown[y]
        before, shown[x] = shown[x], cell
        after = x + 1
        if _is_wide(cell) and after < self._width:
            shown[after] = self._wanted[y][after]
            after += 1
        self._break_halves(y, x, after, before)
        # a full line leaves the cursor where terminals disagree, and so do characters that are not surely one cell wide
        sure = after - x == 1 and (cell.text.isascii() or _SURE.fullmatch(cell.text) is not None)
        self._cursor = (after, y) if sure and after < self._width else None
        return after

    def _break_halves(self, y: int, x: int, after: int, before: Cell | None) -> None:
        """A terminal blanks the other half of a wide character it overwrites: what is there now is not known."""
        shown = self._shown[y]
        if before is not None and not before.text and x > 0:
            shown[x - 1] = None
        if after < self._width:
            beyond = shown[after]
            if beyond is not None and not beyond.text:
                shown[after] = None


@lru_cache(maxsize=512)
def _turn(pen: str | None, style: str) -> str:
    """From one set of colours to another: only what differs, where nothing has to be taken away."""
    if pen is None or not style:
        return f"\x1b[0;{style}m" if style else "\x1b[0m"
    (old, old_front, old_back), (new, front, back) = _parts(pen), _parts(style)
    if not old <= new or (old_front and not front) or (old_back and not back):
        return f"\x1b[0;{style}m"
    changes = [*sorted(new - old), *([front] if front != old_front else []), *([back] if back != old_back else [])]
    return f"\x1b[{';'.join(changes)}m" if changes else ""


def _parts(style: str) -> tuple[frozenset[str], str, str]:
    """Attributes, colour of the text, colour behind it; of several the last."""
    words, attributes, front, back = style.split(";") if style else [], set(), "", ""
    while words:
        word = words.pop(0)
        if word in ("38", "48"):
            taken = 2 if words[:1] == ["5"] else 4
            word, words = ";".join([word, *words[:taken]]), words[taken:]
        if word.startswith(("3", "9")) and len(word) > 1:
            front = word
        elif word.startswith(("4", "10")) and len(word) > 1:
            back = word
        else:
            attributes.add(word)
    return frozenset(attributes), front, back


def _is_wide(cell: Cell) -> bool:
    return not cell.text.isascii() and get_character_cell_size(cell.text[:1]) == 2


def _jump(x: int, y: int) -> str:
    return f"\x1b[{y + 1};{x + 1}H"


@lru_cache(maxsize=2048)
def _plain(text: str, style: str) -> tuple[Cell, ...]:
    return tuple([Cell(char, style) for char in text])


def _wide(text: str, style: str) -> list[Cell | None]:
    cells: list[Cell | None] = []
    for char in text:
        size = get_character_cell_size(char)
        if size == 0:
            last = cells[-1] if cells else None
            if last is not None and last.text:
                cells[-1] = Cell(last.text + char, last.style)
            elif len(cells) > 1 and (first := cells[-2]) is not None:
                cells[-2] = Cell(first.text + char, first.style)
            continue
        cells.append(Cell(char, style))
        if size == 2:
            cells.append(Cell("", style))
    return cells
