"""Text from outside (model names, kernel names, log lines, todo items), made safe to show. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MARKUP = re.compile(r"([\\`*<|\[\]~]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|(?<= )#(?=#*$))")
"""What GitHub would read as markup; `_` inside a word is safe, and flags are full of it."""
_BLOCK = re.compile(r"^(?:\d{1,9}(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|>|[-+](?:\s|$)|[-=]+\s*$))")
"""What begins a heading, a quote, a list or a rule when a line begins with it."""

_UNUSUAL = re.compile(r"[^\n -~]")


def plain(text: str) -> str:
    """One line with nothing in it that moves a terminal's cursor or turns the direction of writing."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def harmless(line: str) -> str:
    """As `plain`, with its columns kept: every character that isn't printable is a space."""
    return line if line.isprintable() else "".join(char if char.isprintable() else " " for char in line)


def harmless_json(text: str) -> str:
    """The same JSON, indented or not, with what isn't printable in its strings written as `\\uXXXX`."""
    return text if text.isprintable() else _UNUSUAL.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def escape(text: str) -> str:
    """`plain`, and nothing in it that GitHub takes for markup, in a paragraph, list item or table cell."""
    return _BLOCK.sub(r"\g<0>\\", _MARKUP.sub(r"\\\1", plain(text)))


def fenced(lines: Iterable[str], language: str = "text") -> list[str]:
    """A code block of markdown that nothing in `lines` can end; spaces are kept, a line stays one line."""
    shown = [harmless(line).rstrip() for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *shown, fence]
