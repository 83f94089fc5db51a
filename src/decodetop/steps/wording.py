"""Text from outside, made safe and short. Pure."""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"([\\`*_{}\[\]<>|~#])")


def escape(text: str) -> str:
    """Text from outside, so that markdown shows it as it is, in a table cell too."""
    return _UNSAFE.sub(r"\\\1", " ".join(text.split()))


def clip(text: str, width: int) -> str:
    """At most `width` characters, an ellipsis where some are missing."""
    text = text.rstrip()
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
