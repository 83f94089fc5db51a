"""The floor on the screen: the line in the steps pane, the verdict in the headline, the page, what-ifs and moves."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from decodetop.core.state import State
from decodetop.floor.reading import AskWhatIf, BatchPoint, Move, WhatIf
from decodetop.floor.text import move_line, todo_of_move
from decodetop.todo.reading import AddTodo, Todo, TodoReading
from decodetop_tui.acts.floor import BATCHES, stepped
from decodetop_tui.panes._floorplot import Mark, plot
from decodetop_tui.panes.floor import bar
from support import floors, states
from support.face import Desk, desk


def text_of(d: Desk) -> str:
    return "\n".join(d.screen())


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_steps_pane_says_the_floor_and_the_headline_the_verdict(size: tuple[int, int]) -> None:
    async with desk(floors.judged(), size=size) as d:
        said = text_of(d)
        assert "floor 3.16 ms" in said
        assert size == (80, 24) or "floor 3.16 ms · real step is 6.1x · host-bound" in said
        assert "◆ host-bound" in d.screen()[1]


async def test_without_findings_the_whole_sentence_stands_there() -> None:
    state = states.put(states.empty(), {"floor": floors.reading()}, 1)
    async with desk(state, size=(120, 40)) as d:
        assert d.screen()[1].startswith("◆ Host-bound: the GPU has nothing to do for 7")


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (floors.reading(None), "floor 3.16 ms · step not measured  d diagnoses"),
        (floors.reading(2.0), "the measured step lies below it: an input is wrong"),
        (floors.reading(model="Qwen/Nowhere"), "no floor: http://127.0.0.1:30001: Qwen/Nowhere is neither a path"),
    ],
)
async def test_what_is_not_known_is_said(seen: Any, said: str) -> None:
    async with desk(floors.judged(seen=seen), size=(200, 60)) as d:
        assert said in text_of(d)
        assert "◆" not in d.screen()[1], "what is no verdict is none"
        await d.press("f")
        assert "host-bound" not in text_of(d)


async def test_f_opens_the_page_and_every_way_leads_back() -> None:
    async with desk(floors.judged(), size=(120, 40)) as d:
        await d.press("4", "f")
        page = d.screen()
        assert page[2].startswith("─f floor") and page[3].startswith("  Host-bound: the GPU has nothing to do")
        assert (d.face.focused_name, d.face.zoomed) == ("floor", True)
        await d.press("escape")
        assert (d.face.focused_name, d.face.zoomed) == ("bench", False)
        await d.press("f", "f")
        assert (d.face.focused_name, d.face.zoomed) == ("bench", False)
        await d.press("5", "5", "f", "tab")
        assert (d.face.focused_name, d.face.zoomed) == ("host", True)
        await d.press("f", "1")
        assert (d.face.focused_name, d.face.zoomed) == ("gpu", True)


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 33), (200, 60)])
async def test_the_end_is_the_end(size: tuple[int, int]) -> None:
    """The last move tells more when the cursor is on it, so the page is longer then."""
    async with desk(floors.judged(), size=size) as d:
        await d.press("f", "G")
        assert "more ↓" not in d.screen()[2], d.screen()[2]
        await d.press("g")
        assert "more ↑" not in d.screen()[2]


async def test_a_what_if_by_keys() -> None:
    async with desk(floors.judged(), size=(120, 40)) as d:
        await d.press("right")
        assert d.sent == [] and "works on a what-if row" in d.footer
        await d.press("f", "right", "l", "h", "right")
        asked = [command.ask for command in d.sent if isinstance(command, AskWhatIf)]
        assert [ask.batch for ask in asked] == [2, 4, 2, 4]
        await d.press("j", "l", "j", "l", "j", "l", "j", "l", "j", "l")
        last = d.sent[-1]
        assert isinstance(last, AskWhatIf)
        assert (last.ask.batch, last.ask.context, last.ask.tp) == (4, 2048, 2)
        assert last.ask.kv_dtype and last.ask.weights_dtype and last.ask.gpu
        await d.press("=")
        assert d.sent[-1] == AskWhatIf(ask=WhatIf())


async def test_what_is_as_it_is_is_no_what_if() -> None:
    async with desk(floors.judged(), size=(120, 40)) as d:
        await d.press("f", "right", "left")
        assert d.sent[-1] == AskWhatIf(ask=WhatIf())


async def test_the_answer_moves_the_floor_beside_what_is() -> None:
    async with desk(floors.judged(seen=floors.reading(asked=WhatIf(tp=2))), size=(120, 40)) as d:
        await d.press("f")
        said = text_of(d)
        assert "what-if bound" in said and "3.16 -> 1.58 ms, 0.50x" in said
        assert "-> 2" in said


def first_move() -> str:
    report = floors.reading().report
    assert report is not None
    return todo_of_move(report.moves[0]).content


def first_id() -> str:
    report = floors.reading().report
    assert report is not None
    return report.moves[0].id


async def test_enter_turns_a_move_into_an_item_once() -> None:
    async with desk(floors.judged(), size=(120, 40)) as d:
        await d.press("f")
        d.face.pane.cursor = "move:0"
        await d.press("enter")
        (added,) = d.sent
        assert isinstance(added, AddTodo) and added.content == first_move()
        assert (
            added.hypothesis is not None
            and "Host-bound" in added.hypothesis
            and "of the step" in (added.expected or "")
        )
        assert [(one.kind, one.ref) for one in added.evidence] == [("capture", "c-1"), ("move", first_id())]
        listed = TodoReading(path="x", todos=(Todo(id="t1", content=first_move()),))
        await d.show(states.put(floors.judged(), {"todo": listed}, 61))
        assert "✓ in the checklist" in text_of(d)
        await d.press("enter")
        assert len(d.sent) == 1 and "already" in d.footer
        closed = TodoReading(path="x", todos=(Todo(id="t1", content=first_move(), status="cancelled"),))
        await d.show(states.put(floors.judged(), {"todo": closed}, 62))
        assert "✓ tried" in text_of(d)


async def test_the_page_can_be_read_to_its_end_in_80x24() -> None:
    async with desk(floors.judged(), size=(80, 24)) as d:
        await d.press("f")
        said = text_of(d)
        for _ in range(12):
            await d.press("pagedown")
            said += text_of(d)
        for part in (
            "what if",
            "next moves",
            "from the bound to the measured step",
            "ruled out",
            "assumed",
            "● measured",
        ):
            assert part in said
        assert max(map(len, d.screen())) <= 80


async def test_the_page_before_anything_was_computed() -> None:
    async with desk(states.bare(), size=(80, 24)) as d:
        await d.press("f")
        assert "nothing was computed yet" in text_of(d) or "waiting" in text_of(d)


@pytest.mark.parametrize(
    ("now", "by", "then"),
    [(1, 1, 2), (3, 1, 4), (3, -1, 2), (1, -1, 1), (256, 1, 256), (1000, -1, 256), (None, 1, 1)],
)
def test_numbers_stop_at_their_ends(now: int | None, by: int, then: int) -> None:
    assert stepped(BATCHES, now, by) == then


def test_names_go_round() -> None:
    assert [stepped(("a", "b"), now, 1) for now in ("a", "b", "x", None)] == ["b", "a", "a", "a"]
    assert stepped(("a", "b"), "a", -1) == "b" and stepped((), "a", 1) == "a"


def a_point(batch: int, ms: float) -> BatchPoint:
    return BatchPoint(
        batch=batch, t_phys_ms=ms, t_prac_ms=2 * ms, tok_s=None, bound="memory" if batch < 64 else "compute"
    )


def test_the_plot_keeps_its_size_and_says_where_arithmetic_begins() -> None:
    points = [a_point(2**power, 3.0 + 0.1 * 2**power) for power in range(9)]
    lines = plot(points, Mark(1, 12.0), 90, 8)
    assert len(lines) == 8 + 3
    said = ["".join(span.text for span in line) for line in lines]
    assert max(map(len, said)) <= 90 + 4 and "●" in "".join(said[:8])
    assert "arithmetic bounds from 64 on" in said[-1] and "256" in said[-2]
    assert plot(points, None, 25, 8) == [] and plot(points[:1], None, 90, 8) == []
    odd = [a_point(1, float("nan")), a_point(2, float("inf")), a_point(4, 1.0)]
    assert plot(odd, None, 90, 8) == []


def test_a_bar_shows_something_of_more_than_nothing() -> None:
    assert (bar(0.0, 2, 2), bar(0.01, 2, 2), bar(1.0, 2, 2), bar(1.5, 2, 2)) == ("", "▏", "█", "█▌")


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, -1.0, 5e-324, 1e308])
@pytest.mark.parametrize("longest", [math.nan, math.inf, 0.0, 5e-324, 1e308])
def test_a_bar_of_any_value_fits(value: float | None, longest: float) -> None:
    assert len(bar(value, longest, 7)) <= 7


def test_a_move_of_an_effort_that_a_later_version_wrote_has_words() -> None:
    move = Move(id="x", title="t", set="s", why="", gain_ms=1.0, gain_words="1 ms", effort=2**63 - 1)
    assert todo_of_move(move).expected == "1 ms (effort unknown)"
    assert "effort unknown" in move_line(move)


def test_the_state_of_the_tests_is_the_one_meant() -> None:
    state: State = floors.judged()
    assert state.lane("floor").last is floors.reading()


@pytest.mark.parametrize(
    ("batch", "t_phys_ms", "t_prac_ms"),
    [(4, 1.0, 0.0), (4, 1.0, -2.0), (0, 1.0, 1.0), (2, 1.0, 1.0), (4, 5e-324, sys.float_info.max)],
)
def test_points_without_a_place_on_the_axes_break_no_plot(batch: int, t_phys_ms: float, t_prac_ms: float) -> None:
    good = [BatchPoint(batch=n, t_phys_ms=3.0 * n, t_prac_ms=4.0 * n, tok_s=None, bound="memory") for n in (1, 2)]
    odd = BatchPoint(batch=batch, t_phys_ms=t_phys_ms, t_prac_ms=t_prac_ms, tok_s=None, bound="memory")
    for points in ([*good, odd], [odd, *good], [odd, odd]):
        lines = plot(points, None, 90, 8)
        assert len(lines) in (0, 8 + 3) and all(len("".join(span.text for span in line)) <= 96 for line in lines[:8])


async def test_what_does_not_fit_is_said_on_the_page() -> None:
    """512 sequences of the served context are more than one H200 holds; as it is, they fit."""
    seen = floors.reading(asked=WhatIf(batch=4096, context=8192))
    async with desk(floors.judged(seen=seen), size=(200, 60)) as d:
        await d.press("f")
        said = text_of(d)
        assert "what-if does not fit: one GPU must hold 15.3 GiB of weights + 4,608.0 of KV" in said
        assert "and has 141; at most 111 sequences of 8,192 tokens fit" in said
        assert said.count("does not fit: one GPU") == 1
