"""The pane widget: cursor by row id, scrolling, changed runs only, and a fault that stays in its pane."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from decodetop.core.sample import Failure
from decodetop.core.state import State
from decodetop_tui.app import PANES
from decodetop_tui.cells import text_of
from decodetop_tui.layout import NAMES
from decodetop_tui.paint import Picture, Span, View
from decodetop_tui.titles import joined, rule
from support import states
from support.face import Desk, desk


def module(draw: Callable[[State, View], Picture], want: tuple[int, int] = (1, 20), **more: Any) -> SimpleNamespace:
    """A pane of the test's own; it stands in for the checklist."""
    base = {"TITLE": "own", "KEY": "3", "SOURCES": ("todo",), "MODES": ("all",), "FILTER": None}
    return SimpleNamespace(**{**base, **more}, draw=draw, want=lambda state, width: want)


def instead(own: SimpleNamespace) -> dict[str, Any]:
    return {**PANES, "todo": own}


def rows(*ids: str, header: int = 0) -> Picture:
    lines = [(Span(f" head {n}", "dim"),) for n in range(header)] + [(Span(f" row {id}"),) for id in ids]
    return Picture(tuple(lines), (*[None] * header, *ids), header_lines=header)


def body(d: Desk) -> list[str]:
    return [text.rstrip() for text in text_of(d.face.panes["todo"].lines[1:])]


def title(d: Desk) -> str:
    return text_of(d.face.panes["todo"].lines[:1])[0]


async def test_the_cursor_follows_its_row_wherever_it_moves() -> None:
    shown = ["a", "b", "c"]
    own = module(lambda state, view: rows(*shown))
    async with desk(modules=instead(own), size=(80, 40)) as d:
        await d.press("3", "j")
        assert d.face.pane.cursor == "b"
        shown[:] = ["b", "c", "d"]
        await d.show(states.put(d.feed.latest, {"todo": states.todos()}, 61))
        assert d.face.pane.cursor == "b" and body(d)[0].startswith("▌row b")


async def test_when_its_row_goes_the_cursor_takes_the_one_in_its_place() -> None:
    shown = ["a", "b", "c"]
    own = module(lambda state, view: rows(*shown))
    async with desk(modules=instead(own)) as d:
        await d.press("3", "j")
        for left, cursor in ((["a", "c"], "c"), (["a"], "a"), ([], None), (["x"], "x")):
            shown[:] = left
            await d.show(states.put(d.feed.latest, {"todo": states.todos()}, 61))
            assert d.face.pane.cursor == cursor


async def test_the_whole_row_of_the_cursor_stays_in_sight_below_the_header() -> None:
    ids = [f"{n:02}" for n in range(50)]
    own = module(lambda state, view: rows(*ids, header=1), want=(4, 4))
    async with desk(modules=instead(own), size=(80, 30)) as d:
        await d.press("3", "3")
        for keys in ("k", "g", "pagedown", "j"):
            await d.press(keys)
            lines = body(d)
            assert lines[0] == " head 0"
            assert sum(line.startswith("▌") for line in lines) == 1
        assert "more ↓" in title(d)
        await d.press("G")
        assert body(d)[-1] == "▌row 49" and " more ↑" in title(d)


async def test_without_rows_the_picture_scrolls() -> None:
    own = module(lambda state, view: Picture(tuple((Span(f"line {n}"),) for n in range(99))), want=(4, 4))
    async with desk(modules=instead(own), size=(80, 30)) as d:
        await d.press("3", "3", "j", "j")
        assert body(d)[0] == "line 2"
        await d.press("G")
        assert body(d)[-1] == "line 98"
        await d.press("g")
        assert body(d)[0] == "line 0"


def article(*marked: int, lines: int = 60) -> Picture:
    """Lines of text of which only some can be selected."""
    ids = tuple(f"r{at}" if at in marked else None for at in range(lines))
    return Picture(tuple((Span(f" line {at}"),) for at in range(lines)), ids, "a note of many words " * 5)


@pytest.mark.parametrize("marked", [(), (3,), (30, 31), (58, 59)])
async def test_a_zoomed_pane_says_what_is_hidden_and_keys_bring_it(marked: tuple[int, ...]) -> None:
    own = module(lambda state, view: article(*marked))
    async with desk(modules=instead(own), size=(80, 24)) as d:
        await d.press("3", "3")
        for keys, first in ((("x",), 0), ("G", 40), ("k" * 5, None), ("g", 0), (("pagedown",) * 3, 40), ("g", 0)):
            await d.press(*keys)
            above, below = (int(body(d)[at].split()[-1]) for at in (0, -1))
            assert first in (None, above)
            assert (f"{above} more ↑" in title(d)) == (above > 0)
            assert (f"{59 - below} more ↓" in title(d)) == (below < 59)


async def test_a_row_taller_than_the_pane_is_read_to_its_end() -> None:
    ids = ("a", *["b"] * 24, "c")
    own = module(lambda state, view: Picture(tuple((Span(f" line {n}"),) for n in range(26)), ids))
    async with desk(modules=instead(own), size=(80, 24)) as d:
        await d.press("3", "3", *"j" * 5)
        assert d.face.pane.cursor == "b" and body(d)[-1].strip("▌ ") == "line 24"
        await d.press("j")
        assert d.face.pane.cursor == "c" and body(d)[-1] == "▌line 25"


async def test_what_stands_above_the_first_row_comes_back_with_it() -> None:
    own = module(lambda state, view: article(2, 3, 4, 5, lines=8), want=(4, 4))
    async with desk(modules=instead(own), size=(80, 24)) as d:
        await d.press("3", *"jjjj")
        assert "more ↑" in title(d)
        await d.press(*"kkkk")
        assert body(d)[0].strip("│ ") == "line 0" and "more ↑" not in title(d)


async def test_the_real_step_stays_above_whatever_the_cursor_is_on() -> None:
    async with desk(states.box(), size=(80, 24)) as d:
        for keys in ("5", "j", "G", *"jjj"):
            await d.press(keys)
            text = text_of(d.face.pane.lines)
            assert "real" in text[1] and "profiled" in text[1], text


@pytest.mark.parametrize("name", NAMES)
async def test_first_and_last_line_of_every_zoomed_pane_can_be_seen_on_a_small_screen(name: str) -> None:
    state = states.box(60, 8, server_count=2)
    async with desk(state, size=(80, 24)) as d:
        d.face.focus_pane(name)
        await d.press("G")
        pane = d.face.panes[name]
        d.face.set_zoom(True)
        for key in "Gg":
            await d.press(key)
            view = View(80, pane.place.content_height, True, True, pane.cursor)
            whole = pane.module.draw(state, view)
            hidden = len(whole.lines) - pane.place.content_height
            seen = text_of(pane.lines[1:])
            wanted = text_of(whole.lines)[-1 if key == "G" else 0]
            at = -1 if key == "G" else 0
            assert hidden <= 0 or wanted.strip() == seen[at].strip("▌ "), (key, wanted, seen[at])
            assert (f"{hidden} more {'↑' if key == 'G' else '↓'}" in text_of(pane.lines)[0]) == (hidden > 0)


async def test_eight_gpus_on_a_small_screen_say_how_many_are_hidden() -> None:
    async with desk(states.box(60, 8), size=(80, 24)) as d:
        assert len(d.face.pane.rows) == 8
        for pane in d.face.panes.values():
            if 0 < pane.place.content_height < len(pane.rows):
                assert "more" in text_of(pane.lines)[0], pane.pane_name


async def test_a_cursor_set_by_something_else_is_brought_in_sight() -> None:
    own = module(lambda state, view: article(2, 40))
    async with desk(modules=instead(own), size=(80, 24)) as d:
        await d.press("3", "3", "j", "j")
        d.face.pane.cursor = "r40"
        d.face.draw()
        assert "▌line 40" in body(d)


async def test_a_pane_without_focus_marks_no_row() -> None:
    async with desk() as d:
        await d.press("3", "j", "1")
        assert d.face.panes["todo"].cursor == "t2"
        assert not any("▌" in line for line in body(d))


async def test_a_fault_stays_in_its_pane_and_heals() -> None:
    broken = [True]

    def draw(state: State, view: View) -> Picture:
        if broken[0]:
            raise ZeroDivisionError("[/red] division")
        return rows("a")

    async with desk(modules=instead(module(draw))) as d:
        assert "this pane failed: ZeroDivisionError: [/red] division" in body(d)[0]
        assert "failed" in title(d) and any("1755/1980" in line for line in d.screen())
        broken[0] = False
        await d.show(states.put(d.feed.latest, {"todo": states.todos()}, 61))
        assert body(d)[0] == "│ row a"


async def test_a_want_that_fails_gets_a_line() -> None:
    own = module(lambda state, view: rows("a"))
    own.want = None
    async with desk(modules=instead(own), size=(80, 24)) as d:
        assert body(d)[0] == " row a"


async def test_a_pane_is_drawn_again_only_when_its_sources_or_the_second_changed() -> None:
    drawn: list[int] = []

    def draw(state: State, view: View) -> Picture:
        drawn.append(state.now_ns)
        return rows("a")

    async with desk(modules=instead(module(draw))) as d:
        drawn.clear()
        await d.show(states.put(d.feed.latest, {"gpu": states.gpus(2, 60)}, 60.2))
        assert drawn == []
        await d.show(states.put(d.feed.latest, {"todo": states.todos()}, 60.4))
        assert len(drawn) == 1
        await d.show(states.put(d.feed.latest, {"gpu": states.gpus(2, 61)}, 61.2))
        assert len(drawn) == 2
        await d.show(states.fail(d.feed.latest, "todo", Failure(kind="lost", message="gone")))
        assert len(drawn) == 3


async def test_only_changed_cells_are_refreshed() -> None:
    async with desk(states.box(60, 8)) as d:
        refreshed = 0
        panes = [*d.face.panes.values()]
        for pane in panes:
            pane.refresh = lambda *regions, **more: record(*regions)  # type: ignore[method-assign,assignment,misc]

        def record(*regions: Any) -> None:
            nonlocal refreshed
            assert regions
            refreshed += sum(region.area for region in regions)

        await d.show(states.step(d.feed.latest, 61, 8))
        assert 0 < refreshed < 120 * 40 // 3
        refreshed = 0
        d.face.draw()
        assert refreshed == 0


@pytest.mark.parametrize("keys", ["?", "a", ":", "S", "o"])
async def test_under_a_window_the_panes_go_on(keys: str) -> None:
    async with desk(states.box(server_count=2)) as d:
        await d.press(keys)
        assert "1:00  1 Hz" in d.screen()[0]
        await d.show(states.step(d.feed.latest, 99))
        assert d.face.windowed and "1:39  1 Hz" in d.screen()[0]
        await d.show(states.fail(d.feed.latest, "host", Failure(kind="lost", message="gone"), 130))
        assert "old" in next(line for line in d.screen() if "6 host" in line)
        await d.resize(100, 30)
        assert any("6 host" in line for line in d.screen()) and len(d.screen()) == 30


async def test_heights_grow_with_the_wants_and_shrink_only_when_asked() -> None:
    want = [3]
    own = module(lambda state, view: rows("a"))
    own.want = lambda state, width: (want[0], want[0])
    async with desk(modules=instead(own), size=(80, 60)) as d:

        async def height(second: int, rows_wanted: int) -> int:
            want[0] = rows_wanted
            await d.show(states.put(d.feed.latest, {"todo": states.todos()}, second))
            return d.face.panes["todo"].place.content_height

        low, high = await height(61, 3), await height(62, 30)
        assert high >= 30 > low
        assert await height(63, 3) == high
        await d.press("r")
        assert d.face.panes["todo"].place.content_height == low


def test_the_title_gives_up_notes_before_its_name() -> None:
    notes = [Span("3 more ↓", "dim"), Span("SGLang 0.5.15", "dim")]

    def drawn(width: int, simulated: bool = False) -> str:
        return text_of([rule(width, "2", "server", notes, focused=False, simulated=simulated)])[0]

    assert drawn(42) == "─2 server ───── 3 more ↓ ─ SGLang 0.5.15 ─"
    assert drawn(36) == "─2 server ──── 3 more ↓ ─ SGLang … ─"
    assert drawn(30) == "─2 server ───────── 3 more ↓ ─"
    assert drawn(14) == "─2 server ────"
    assert drawn(22, simulated=True) == "─2 server SIMULATED ──"


def test_a_note_gives_up_whole_parts_before_it_is_cut() -> None:
    notes = [Span("3 more ↓", "dim"), Span("2x H200 · driver 580 · CUDA 13", "dim")]

    def drawn(width: int) -> str:
        return text_of([rule(width, "1", "gpu", notes, focused=False, simulated=False)])[0]

    assert "2x H200 · driver 580 · CUDA 13 ─" in drawn(60)
    assert "CUDA" not in drawn(46) and "2x H200 · driver 580 ─" in drawn(46)
    assert "2x H200 ─" in drawn(34) and "…" not in drawn(34)


def test_joints_replace_rules_and_never_words() -> None:
    line = (Span("──", "rule"), Span(" 漢字 "), Span("───", "rule"))
    assert text_of([joined(line, 1, "┴")]) == ["─┴ 漢字 ───"]
    assert text_of([joined(line, 4, "┴")]) == ["── 漢字 ───"]
    assert text_of([joined(line, 9, "┴")]) == ["── 漢字 ─┴─"]
