"""Lines as cells: exact widths, safe text, where two lines differ."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from decodetop_tui.cells import Cell, changed, raster, spans, text_of, width_of
from decodetop_tui.paint import Span

LINES = st.lists(
    st.tuples(st.text(max_size=12), st.sampled_from(["", "dim", "loud"])).map(lambda pair: Span(*pair)), max_size=5
).map(tuple)


@given(LINES, st.integers(0, 40))
def test_a_line_takes_exactly_its_width(line: tuple[Span, ...], width: int) -> None:
    cells = raster(line, width)
    assert len(cells) == width
    text = "".join(cell.text for cell in cells)
    assert all(char.isprintable() or cell_len(char) == 0 for char in text)
    assert cell_len(text) <= width


@given(LINES, LINES, st.integers(1, 40))
def test_only_what_differs_is_found_and_all_of_it(one: tuple[Span, ...], two: tuple[Span, ...], width: int) -> None:
    before, after = raster(one, width), raster(two, width)
    run = changed(before, after)
    if run is None:
        assert before == after
        return
    start, end = run
    assert before[:start] == after[:start] and before[end:] == after[end:]
    assert before[start] != after[start] and before[end - 1] != after[end - 1]


@given(LINES, st.integers(1, 40))
def test_spans_of_cells_draw_the_same_cells(line: tuple[Span, ...], width: int) -> None:
    cells = raster(line, width)
    assert raster(tuple(spans(cells)), width) == cells


def test_escape_sequences_in_outside_text_are_harmless() -> None:
    cells = raster((Span("a\x1b[2Jb\tc\x07", "loud"),), 12)
    assert "".join(cell.text for cell in cells) == "a·[2Jb c·   "


def test_a_wide_character_is_whole_or_not_there() -> None:
    assert raster((Span("a漢"),), 3) == (Cell("a", ""), Cell("漢", ""), Cell("", ""))
    assert raster((Span("a漢"),), 2) == (Cell("a", ""), Cell(" ", ""))


def test_another_width_changes_everything() -> None:
    assert changed(raster((), 3), raster((), 5)) == (0, 5)


def test_words_on_lines() -> None:
    assert text_of([(Span("a"), Span("b", "dim")), ()]) == ["ab", ""]
    assert width_of((Span("ab"), Span("漢"))) == 4
