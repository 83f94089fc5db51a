"""Text from outside (model names, kernel names, log lines, todo items), made safe to show. Pure."""

from __future__ import annotations

import re

_MARKUP = re.compile(r"([\\`*<|\[\]~]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|(?<= )#(?=#*$))")
"""What GitHub would read as markup; `_` inside a word is safe, and flags are full of it."""
_BLOCK = re.compile(r"^(?:\d{1,9}(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|>|[-+](?:\s|$)|[-=]+\s*$))")
"""What begins a heading, a quote, a list or a rule when a line begins with it."""


def plain(text: str) -> str:
    """One line with nothing in it that moves a terminal's cursor or turns the direction of writing."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def escape(text: str) -> str:
    """`plain`, and nothing in it that GitHub takes for markup, in a paragraph, list item or table cell."""
    return _BLOCK.sub(r"\g<0>\\", _MARKUP.sub(r"\\\1", plain(text)))
