"""Every size of terminal gets a plan: nothing overlaps, nothing sticks out, every title shows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from decodetop_tui.layout import (
    LEFT,
    NAMES,
    RIGHT,
    SMALL_HEIGHT,
    SMALL_WIDTH,
    TWO_COLUMNS_WIDTH,
    Plan,
    Rect,
    Want,
    arrange,
    share,
)

WANTS = st.fixed_dictionaries(
    {name: st.tuples(st.integers(0, 12), st.integers(0, 60)).map(lambda pair: Want(*pair)) for name in NAMES}
)


def rects(plan: Plan) -> list[Rect]:
    lines = [rect for rect in (plan.top, plan.findings, plan.footer) if rect is not None]
    return lines + [place.rect for place in plan.panes.values()]


@given(st.integers(1, 250), st.integers(1, 70), WANTS, st.sampled_from(NAMES), st.booleans())
def test_every_cell_belongs_to_exactly_one_part(
    width: int, height: int, wants: dict[str, Want], focused: str, zoomed: bool
) -> None:
    plan = arrange(width, height, lambda name, _: wants[name], focused, zoomed)
    taken: set[tuple[int, int]] = set()
    for x, y, wide, high in rects(plan):
        assert wide >= 1 and high >= 1  # a pane has at least its title
        cells = {(x + dx, y + dy) for dx in range(wide) for dy in range(high)}
        assert not cells & taken
        taken |= cells
    assert taken == {(x, y) for x in range(width) for y in range(height)}


@given(st.integers(1, 250), st.integers(1, 70), WANTS, st.sampled_from(NAMES))
def test_all_panes_or_the_one_in_focus(width: int, height: int, wants: dict[str, Want], focused: str) -> None:
    plan = arrange(width, height, lambda name, _: wants[name], focused)
    small = width < SMALL_WIDTH or height < SMALL_HEIGHT
    assert tuple(plan.panes) == ((focused,) if small else NAMES)
    assert tuple(arrange(width, height, lambda name, _: wants[name], focused, zoomed=True).panes) == (focused,)


def test_what_is_wrong_is_said_in_a_small_terminal_too() -> None:
    for size, found in (((40, 10), True), ((200, 8), True), ((200, 7), False)):
        plan = arrange(*size, lambda *_: Want(2, 5))
        assert (plan.findings is not None) is found
        assert plan.panes["gpu"].content_height >= 3


@given(st.integers(TWO_COLUMNS_WIDTH, 250), st.integers(SMALL_HEIGHT, 70), WANTS)
def test_two_columns_meet_in_one_rule(width: int, height: int, wants: dict[str, Want]) -> None:
    plan = arrange(width, height, lambda name, _: wants[name])
    places = plan.panes
    column = {places[name].rect.x for name in RIGHT}
    assert column == {places[LEFT[0]].rect.width}
    edge = "".join(places[name].edge for name in RIGHT)
    assert len(edge) == sum(places[name].rect.height for name in RIGHT)
    titles_left = {places[name].rect.y for name in LEFT}
    titles_right = {places[name].rect.y for name in RIGHT}
    top = places["gpu"].rect.height + places["gpu"].rect.y
    for y, mark in enumerate(edge, top):
        left, right = mark in "┬┼┤", mark in "┬┼├"
        assert (left, right) == (y in titles_left, y in titles_right)
    assert places["host"].joints == ((column.pop(), "┴"),)


@given(st.integers(100, 250), WANTS)
def test_where_all_fits_everyone_gets_what_is_wanted(width: int, wants: dict[str, Want]) -> None:
    plan = arrange(width, 400, lambda name, _: wants[name])
    for name, place in plan.panes.items():
        assert place.content_height >= min(max(wants[name]), 60)


def test_wants_are_asked_at_the_width_they_are_drawn_at() -> None:
    asked: dict[str, int] = {}

    def want(name: str, width: int) -> Want:
        asked[name] = width
        return Want(2, 4)

    for width in (80, 120, 200):
        plan = arrange(width, 40, want)
        assert asked == {name: place.content_width for name, place in plan.panes.items()}


def test_share_gives_each_its_least_before_anyone_gets_more() -> None:
    assert share(6, [Want(2, 9), Want(2, 2), Want(2, 3)], [True] * 3) == [2, 2, 2]
    assert share(9, [Want(2, 9), Want(2, 2), Want(2, 3)], [True] * 3) == [4, 2, 3]
    assert share(4, [Want(3, 9), Want(3, 9)], [True, True]) == [2, 2]


def test_share_leaves_the_rest_to_who_stretches() -> None:
    assert share(10, [Want(1, 2), Want(1, 2)], [False, True]) == [2, 8]
    assert share(10, [Want(1, 2), Want(1, 2)], [False, False]) == [2, 2]
