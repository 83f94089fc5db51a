"""The screen's characters for a terminal that lacks them: each as wide as what it stands for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.cells import get_character_cell_size

Spelling = Callable[[str], str]
"""A text as the terminal can show it, in the same cells."""

_GROUPS = {
    "-": "─–·⠤",
    "|": "│▕▏",
    "+": "┬┴┼├┤┌┐└┘╭╮╰╯",
    ">": "▌▶▸→↳",
    "<": "←",
    "^": "↑",
    "v": "↓✓▽",
    "#": "█▓▆▇■",
    "=": "▒▄▅≈",
    "_": "▁▂▃",
    ".": "░",
    "!": "▲≠",
    "x": "✗×",
    "o": "○°◌",
    "*": "●◆✎",
    "~": "…↻",
}
_CONSOLE_GROUPS = {
    "─": "⠤",
    "┌": "╭",
    "┐": "╮",
    "└": "╰",
    "┘": "╯",
    "_": "▁",
    "▄": "▂▃▅",
    "█": "▆▇",
    "│": "▕▏",
    "►": "▶▸",
    "√": "✓",
    "▼": "▽",
    "♦": "◆",
    "•": "●",
    "-": "–",
    "×": "✗",
}
_CONSOLE_SAME = "─│┌┐└┘├┤┬┴┼█▄▌▐░▒▓■►◄▲▼•·°×√≈←↑→↓♦"
"""Drawn by the fonts of code page 437, which those of the Linux console hold."""


def _by_char(groups: Mapping[str, str]) -> dict[str, str]:
    return {char: plain for plain, chars in groups.items() for char in chars}


def _dots(steps: str) -> dict[str, str]:
    """Braille by how many of its dots are set."""
    return {chr(0x2800 + dots): steps[min(len(steps) - 1, dots.bit_count())] for dots in range(256)}


def _console_dots() -> dict[str, str]:
    """Braille of a history line by how high it reaches: its lines are filled from below."""
    rows = ((0b00001001, "█"), (0b00010010, "█"), (0b00100100, "▄"), (0b11000000, "_"))
    return {chr(0x2800 + dots): next((block for mask, block in rows if dots & mask), " ") for dots in range(256)}


_ASCII = {**_dots(" .::||"), **_by_char(_GROUPS)}
_CONSOLE = {**_ASCII, **_console_dots(), **_by_char(_CONSOLE_GROUPS), **{char: char for char in _CONSOLE_SAME}}


def spelling(environ: Mapping[str, str], encoding: str) -> Spelling | None:
    """How to write for this terminal; None: as it is."""
    if ascii_only(environ, encoding):
        return as_ascii
    return for_console if environ.get("TERM") == "linux" else None


def ascii_only(environ: Mapping[str, str], encoding: str) -> bool:
    """Whether the locale says so, in words; where it says nothing, as in containers, terminals take UTF-8."""
    if encoding.lower().replace("-", "") != "utf8":
        return True
    # Python reads and writes UTF-8 in the C locale, and sets LC_CTYPE to say so
    said = environ.get("LC_ALL") or ("C" if environ.get("LC_CTYPE") == "C.UTF-8" else environ.get("LC_CTYPE"))
    return said in ("C", "POSIX") and (said == environ.get("LC_ALL") or environ.get("LANG") in ("C", "POSIX"))


def as_ascii(text: str) -> str:
    """The same cells; ? where nothing looks like it."""
    if text.isascii():
        return text
    return "".join(char if char.isascii() else _ASCII.get(char) or "?" * get_character_cell_size(char) for char in text)


def for_console(text: str) -> str:
    """The same cells in lines and blocks; letters of any language stay, the font may have them."""
    return text if text.isascii() else "".join(_CONSOLE.get(char, char) for char in text)
