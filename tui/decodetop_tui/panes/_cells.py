"""Text in terminal cells: measured, clipped, padded, made safe. Every pane's text from outside goes through here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from decodetop_tui.paint import Line, Span

ELLIPSIS = "…"
_UNIT = re.compile(r"\d (?:%|[umn]?s|tok/s|GB/s|MB/s|[KMG]i?B|MHz|W|°C)(?!\w)")
"""A digit, the blank behind it, a unit."""
_NUMBER_BEGUN = re.compile(r"(?<![\w.,])[-+]?\d[\d.,]*$")
_MORE_DIGITS = re.compile(r"[.,]?\d")
_SELECTORS = "\ufe0e\ufe0f"  # variation selectors: terminals disagree on the width of what they follow


def clean(text: str) -> str:
    """One printable line: line breaks and tabs become spaces, other controls and bidi marks a middle dot."""
    if text.isprintable() and (text.isascii() or not any(mark in text for mark in _SELECTORS)):
        return text
    text = "".join(" " if char.isspace() else char for char in text)
    return "".join(char if char.isprintable() else "·" for char in text if char not in _SELECTORS)


def cells(text: str) -> int:
    """How many terminal cells `text` takes; CJK and emoji take two."""
    return len(text) if text.isascii() else cell_len(text)


def clip(text: str, room: int) -> str:
    """At most `room` cells, ending in … where something was cut; of a number all or nothing, 7… might be 700."""
    if cells(text) <= room:
        return text
    if room <= 0:
        return ""
    kept = _cut(text, room - 1)
    if _MORE_DIGITS.match(text, len(kept)) and (number := _NUMBER_BEGUN.search(kept)):
        kept = kept[: number.start()]
    return kept + ELLIPSIS


def clip_middle(text: str, room: int) -> str:
    """At most `room` cells with the middle cut out: the two ends of a path or kernel name tell most."""
    if cells(text) <= room or room < 8:
        return clip(text, room)
    tail = text[-(room // 3) :]
    while cells(tail) > room // 3:
        tail = tail[1:]
    return _cut(text, room - 1 - cells(tail)) + ELLIPSIS + tail


def pad(text: str, room: int, align: str = "<") -> str:
    """Exactly `room` cells; `align` is <, > or ^."""
    if text.isascii() and len(text) <= room:
        return f"{text:{align}{room}}"
    text = clip(text, room)
    free = room - cells(text)
    left = {"<": 0, ">": free, "^": free // 2}[align]
    return " " * left + text + " " * (free - left)


def fit(spans: Iterable[Span], room: int) -> Line:
    """The line cleaned and clipped to `room` cells; … stands where words were cut, not where blanks were."""
    spans = tuple(spans)
    if _plain(spans, room):
        return spans
    line: list[Span] = []
    left = room
    for text, style in spans:
        text = clean(text)
        size = cells(text)
        if size > left:
            kept = _cut(text, left)
            if text[len(kept) :].strip():
                return _with_ellipsis(line, Span(text, style), left)
            text, size = kept, left
        if text:
            line.append(Span(text, style))
            left -= size
    return tuple(line)


def _plain(spans: Line, room: int) -> bool:
    """Nothing to clean or to cut: most lines, and the quick way for them."""
    for text, _ in spans:
        if text.isascii() and text.isprintable() and text:
            room -= len(text)
        elif not text or clean(text) is not text:
            return False
        else:
            room -= cell_len(text)
    return room >= 0


def _with_ellipsis(line: list[Span], last: Span, left: int) -> Line:
    """`line` and as much of `last` as fits; a full line gives up its last cell."""
    if left > 0:
        return (*line, Span(clip(last.text, left), last.style))
    while line and not line[-1].text.strip():
        line.pop()
    if not line:
        return ()
    text, style = line[-1]
    return (*line[:-1], Span(clip(text + "…", cells(text)), style))


def exactly(spans: Iterable[Span], room: int) -> Line:
    """The spans clipped or filled to `room` cells."""
    line = fit(spans, room)
    return (*line, Span(" " * (room - sum(cells(span.text) for span in line))))


def wrap(text: str, room: int, most: int) -> list[str]:
    """Lines of at most `room` cells, `most` of them; broken at spaces where there are any, else anywhere.

    A number keeps its unit.
    """
    rest = clean(text)
    lines: list[str] = []
    while rest and len(lines) < most - 1 and cells(rest) > room > 1:
        piece = _cut(rest, room)
        space = len(piece) if rest[len(piece) : len(piece) + 1].isspace() else piece.rfind(" ")
        if _UNIT.match(rest, space - 1):
            space = piece.rfind(" ", 0, space)
        if space > room // 3:
            piece = piece[:space]
        if not piece:
            break
        lines.append(piece.rstrip())
        rest = rest[len(piece) :].lstrip()
    return [*lines, clip(rest, room)] if rest else lines


def join(items: Sequence[Sequence[Span]], gap: str = "   ") -> list[Span]:
    """The items in one line with `gap` between."""
    line: list[Span] = []
    for item in items:
        if item:
            line += [Span(gap), *item] if line else item
    return line


def _cut(text: str, room: int) -> str:
    """The longest beginning that takes at most `room` cells."""
    if text.isascii():
        return text[: max(room, 0)]
    used = 0
    for end, char in enumerate(text):
        used += cells(char)
        if used > room:
            return text[:end]
    return text
