"""Names made short. Pure."""

from __future__ import annotations

from decodetop.core.outside import plain


def clip(text: str, width: int) -> str:
    """At most `width` characters, an ellipsis where some are missing."""
    text = text.rstrip()
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def brief(name: str, width: int = 120) -> str:
    """A kernel's name for a table: one safe line."""
    return clip(plain(name), width)
