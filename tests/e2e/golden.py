"""Golden files of the investigations: GOLDEN_WRITE=1 keeps the new ones; look at the difference first."""

from __future__ import annotations

import os
import re
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden" / "e2e"


_HASH = re.compile(r'"[0-9a-f]{16}"')
"""Hashes say nothing to a reader, and change with every field that a reading gets; tests of their own look at them."""


_ENERGY = re.compile(r"[\d.,]+ J per output token")
"""The counter is read at each end of a run, some milliseconds early or late."""


class Check:
    def __call__(self, name: str, text: str) -> None:
        path, text = GOLDEN / name, _HASH.sub('"0123456789abcdef"', _ENERGY.sub("N J per output token", text))
        if os.environ.get("GOLDEN_WRITE"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        assert text == self.read(name), "look at the difference; GOLDEN_WRITE=1 keeps the new one"

    def read(self, name: str) -> str:
        return (GOLDEN / name).read_text("utf-8")


def told_in_order(text: str, *wanted: str) -> int:
    """Each of these words is in the text, behind the one before it. Where the last one is."""
    at = -1
    for words in wanted:
        found = text.find(words, at + 1)
        assert found > at, f"{words!r} is missing or out of its place"
        at = found
    return at


check = Check()
