"""One table of definitions: in the data, and in the manual."""

from __future__ import annotations

from pathlib import Path

from decodetop.bench.definitions import DEFINITIONS
from decodetop.bench.reading import ClientCheck, Metrics

MANUAL = Path(__file__).parents[2] / "docs" / "benchmark.md"


def test_the_manual_has_the_same_sentences() -> None:
    rows = [line for line in MANUAL.read_text().splitlines() if line.startswith("|")]
    for field, words in DEFINITIONS.items():
        assert any(f"| `{field}` |" in row and row.endswith(f"| {words} |") for row in rows), field


def test_every_figure_is_defined() -> None:
    fields = (*Metrics.__struct_fields__, *(name.removesuffix("_p99") for name in ClientCheck.__struct_fields__))
    assert set(fields) == set(DEFINITIONS)
