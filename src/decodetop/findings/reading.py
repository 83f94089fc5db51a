"""A finding: what is wrong, with its number and since when."""

from __future__ import annotations

from typing import Literal

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`evidence` holds the number. `since_ns` is session time of the first sample that showed it without a break.

    `todo` and `hypothesis` are the words of an item that is to settle it.
    """

    id: str
    severity: Literal["info", "suspect", "invalid"]
    title: str
    evidence: str
    source: str
    since_ns: int
    todo: str = ""
    hypothesis: str = ""

    @property
    def item(self) -> str:
        """`content` of an item: what to do, and about what."""
        return f"{self.title}: {self.todo[:1].lower()}{self.todo[1:]}" if self.todo else self.title
