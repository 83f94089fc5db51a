"""The screen's characters for a terminal that has ASCII only: each as wide as what it stands for. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import get_character_cell_size

_BRAILLE = {chr(0x2800 + dots): " .::||"[min(5, dots.bit_count())] for dots in range(256)}
_GROUPS = {
    "-": "─–·",
    "|": "│▕▏",
    "+": "┬┴┼├┤╭╮╰╯",
    ">": "▌▶▸→",
    "<": "←",
    "^": "↑",
    "v": "↓✓",
    "#": "█▓▆▇",
    "=": "▒▄▅≈",
    "_": "▁▂▃",
    ".": "░",
    "!": "▲≠",
    "x": "✗×",
    "o": "○°",
    "*": "●◆",
    "~": "…",
}
_ASCII = {**_BRAILLE, **{char: plain for plain, chars in _GROUPS.items() for char in chars}}


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
