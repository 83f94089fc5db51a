"""Every line of every picture can be brought in sight, by single steps and by pages, whatever can be selected."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from decodetop_tui.scroll import Target, Window

Go = Callable[[Window, "str | None"], Target]
ROWS = st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=16).map(
    lambda runs: [f"r{at}" if selectable else None for at, (selectable, lines) in enumerate(runs) for _ in range(lines)]
)
"""Rows of one to six lines, and text between them."""


def walked(window: Window, go: Go, times: int) -> tuple[set[int], Window, str | None]:
    """The lines seen on the way, and where it ends."""
    cursor: str | None = None
    seen: set[int] = set()
    for _ in range(times):
        seen |= {*range(window.head), *range(window.first, min(window.last + 1, window.lines))}
        row, top = go(window, cursor)
        cursor = row or cursor
        window = window._replace(top=window._replace(top=window.top).top_for(cursor) if top is None else top)
    return seen, window, cursor


@given(ROWS, st.integers(0, 3), st.integers(4, 12))
def test_every_line_comes_in_sight(rows: list[str | None], head: int, height: int) -> None:
    head = min(head, len(rows))
    start = Window(rows, len(rows), head, height, 0)
    for by in (1, -1):
        begin = start._replace(top=start.most if by < 0 else 0)
        seen, at, _ = walked(begin, lambda window, cursor, by=by: window.step(cursor, by), 200)  # type: ignore[misc]
        assert len(seen) == len(rows) and at.top == (start.most if by > 0 else 0)
        seen, at, _ = walked(begin, lambda window, cursor, by=by: window.page(cursor, by), 90)  # type: ignore[misc]
        assert len(seen) == len(rows) and at.top == (start.most if by > 0 else 0)


@given(st.integers(1, 40), st.integers(4, 12))
def test_a_plain_list_is_walked_row_by_row(count: int, height: int) -> None:
    rows = [f"r{at}" for at in range(count)]
    _, at, cursor = walked(Window(rows, count, 0, height, 0), lambda window, cursor: window.step(cursor, 1), count)
    assert cursor == rows[-1] and at.top == at.most


def test_what_is_hidden_is_said_on_both_sides() -> None:
    window = Window([None] * 30, 30, 1, 10, 0)
    assert window.hidden_words() == "20 more ↓"
    assert window._replace(top=7).hidden_words() == "7 more ↑ 13 more ↓"
    assert window._replace(top=20).hidden_words() == "20 more ↑"
    assert Window([None] * 3, 3, 0, 10, 0).hidden_words() == ""
