"""Text from outside (model names, kernel names, log lines, todo items), made safe to show. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MARKUP = re.compile(r"([\\`*<|\[\]~]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|(?<= )#(?=#*$))")
"""What GitHub would read as markup; `_` inside a word is safe, and flags are full of it."""
_BLOCK = re.compile(r"^(?:\d{1,9}(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|>|[-+](?:\s|$)|[-=]+\s*$))")
"""What begins a heading, a quote, a list or a rule when a line begins with it."""

_REFERS = r"@(?=[A-Za-z0-9])|#(?=\d)|\$|(?i:(?<![A-Za-z0-9])G(?=H-\d))"
"""Where a mention, the number of an issue (`#1`, `GH-1`) or a formula begins."""
_LINKS = re.compile(_REFERS)
_ALL_LINKS = re.compile(rf"{_REFERS}|(?i:(?:https?|ftp)://|www\.)")
"""Also an address that becomes a link; in data, which is not shown, it stays readable."""
_PIECE = re.compile(r"\\.|(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|(?P<word>[\w@#$./:{}()=+,;%-]+)")
"""A line's parts: an escaped character, code, a word with nothing in it that markdown could take for markup."""
_FENCE = re.compile(r"(`{3,}|~{3,})(.*)")
_AROUND = "(),.;:"

_UNUSUAL = re.compile(r"[^\n -~]")


def whole_number(text: str) -> int | None:
    """A count as the kernel writes it; None for anything else (`max`, a sign, other scripts' digits)."""
    found = text.strip()
    return int(found) if found.isascii() and found.isdigit() and len(found) <= 20 else None


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


def unlinked(lines: Iterable[str]) -> list[str]:
    """Lines of markdown in which GitHub sees no @mention, #123, $formula$ or http://address: such words become code.

    A backslash does not help there: GitHub looks for them in what it has rendered. Code blocks stay as they are.
    """
    found, fence = [], ""
    for line in lines:
        opened = _FENCE.match(line)
        if opened and (not fence or (opened[1].startswith(fence) and not opened[2].strip())):
            fence = "" if fence else opened[1]
        found.append(line if fence or opened else _PIECE.sub(_as_code, line))
    return found


def unlinked_json(text: str) -> str:
    """The same JSON, where GitHub takes it for words."""
    return _LINKS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _as_code(found: re.Match[str]) -> str:
    word = found["word"]
    if word is None or not _ALL_LINKS.search(word):
        return found[0]
    core = word.strip(_AROUND)
    before, _, after = word.partition(core)
    return f"{before}`{core}`{after}"


def fenced(lines: Iterable[str], language: str = "text") -> list[str]:
    """A code block of markdown that nothing in `lines` can end; spaces are kept, a line stays one line."""
    shown = [harmless(line).rstrip() for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *shown, fence]
