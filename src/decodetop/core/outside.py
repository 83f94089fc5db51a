"""Text from outside (model names, kernel names, log lines, todo items), made safe to show. Pure."""

from __future__ import annotations

import re

_MARKUP = re.compile(r"([\\`*_{}\[\]<>|~#&])")
_BLOCK = re.compile(r"^(?:[-+=]|\d+(?=[.)]))")
"""What starts a list, a rule or a heading when it stands first in a line."""


def plain(text: str) -> str:
    """One line with nothing in it that moves a terminal's cursor or turns the direction of writing."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def escape(text: str) -> str:
    """`plain`, and nothing in it that GitHub takes for markup, in a paragraph, list item or table cell."""
    escaped = _MARKUP.sub(r"\\\1", plain(text))
    start = _BLOCK.match(escaped)
    if start is None:
        return escaped
    end = start.end()
    return f"\\{escaped}" if end == 1 and not escaped[0].isdigit() else f"{escaped[:end]}\\{escaped[end:]}"
