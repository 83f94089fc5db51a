"""Golden files of the investigations: GOLDEN_WRITE=1 keeps the new ones; look at the difference first."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden" / "e2e"


class Check:
    def __call__(self, name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("GOLDEN_WRITE"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        assert text == self.read(name), "look at the difference; GOLDEN_WRITE=1 keeps the new one"

    def read(self, name: str) -> str:
        return (GOLDEN / name).read_text("utf-8")


check = Check()
