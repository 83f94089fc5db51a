"""Each key does what the table says, on a running face without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from decodetop.core.state import State
from decodetop.server.reading import ChooseServer
from decodetop.todo.reading import AddTodo
from decodetop_tui.keyboard import PasteCut
from decodetop_tui.keys import ACTIONS
from decodetop_tui.layout import NAMES
from decodetop_tui.offers import MOST, OFFERED, hints
from decodetop_tui.pane import Pane
from decodetop_tui.screens.choose import Choose
from decodetop_tui.screens.help import Help
from decodetop_tui.screens.line import AskLine
from support import states
from support.face import desk


@pytest.mark.parametrize("pane", NAMES)
async def test_no_key_does_harm_anywhere(pane: str, tmp_path: Path) -> None:
    async with desk(states.bare(), (80, 24), investigation=tmp_path) as d:
        for action in ACTIONS:
            if action.id == "quit":
                continue
            d.face.focus_pane(pane)
            d.face.perform(action)
            await d.pilot.pause()
            if d.face.windowed:
                await d.press("escape")
            assert not d.face.windowed and d.face.is_running, action.id


async def test_tab_and_digits_move_the_focus_and_a_second_press_zooms() -> None:
    async with desk() as d:
        assert d.face.focused_name == "gpu"
        await d.press("tab")
        assert d.face.focused_name == "server"
        await d.press("shift+tab", "shift+tab")
        assert d.face.focused_name == "host"
        await d.press("5")
        assert (d.face.focused_name, d.face.zoomed) == ("steps", False)
        await d.press("5")
        assert d.face.zoomed and d.screen()[2].startswith("─5 decode step")
        await d.press("tab")
        assert (d.face.focused_name, d.face.zoomed) == ("host", True)
        await d.press("escape")
        assert not d.face.zoomed


async def test_enter_zooms_where_there_is_nothing_else_to_do() -> None:
    async with desk() as d:
        await d.press("enter")
        assert d.face.zoomed
        await d.press("enter")
        assert d.face.zoomed


async def test_rows_are_walked_by_letters_arrows_pages_and_ends() -> None:
    async with desk() as d:
        await d.press("3")
        assert d.face.pane.cursor == "t1"
        await d.press("j", "down")
        assert d.face.pane.cursor == "t3"
        await d.press("k")
        assert d.face.pane.cursor == "t2"
        await d.press("G")
        assert d.face.pane.cursor == "t5"
        await d.press("g")
        assert d.face.pane.cursor == "t1"
        await d.press("pagedown")
        assert d.face.pane.cursor == "t5"
        await d.press("pageup", "up")
        assert d.face.pane.cursor == "t1"


async def test_filter_narrows_the_pane_and_escape_takes_it_away() -> None:
    async with desk() as d:
        await d.press("3", "/")
        assert isinstance(d.face.screen, AskLine)
        await d.type("graphs")
        await d.press("enter")
        assert d.face.pane.rows == ["t4"] and any("/graphs" in line for line in d.screen())
        await d.press("escape")
        assert len(d.face.pane.rows) == 5


async def test_a_filter_finds_words_that_are_cut_and_stays_in_sight() -> None:
    async with desk(size=(80, 24)) as d:
        await d.press("3", "/")
        await d.type("bottlenecks")
        await d.press("enter")
        assert d.face.pane.rows == ["t1"]
        await d.press("1")
        assert "/bottlenecks" in "".join(span.text for span in d.face.panes["todo"].lines[0])


@pytest.mark.parametrize(("pane", "word"), [("gpu", "no rows"), ("server", "zoom first"), ("steps", "zoom first")])
async def test_where_nothing_can_be_filtered_the_key_says_so(pane: str, word: str) -> None:
    async with desk() as d:
        d.face.focus_pane(pane)
        await d.press("/")
        assert not d.face.windowed and word in d.footer
        if word == "zoom first":
            await d.press("enter", "/")
            assert d.face.windowed


async def test_view_cycles_the_modes_of_the_pane() -> None:
    async with desk() as d:
        modes = d.face.pane.module.MODES
        assert len(modes) > 1
        for mode in (*range(1, len(modes)), 0):
            await d.press("v")
            assert d.face.pane.mode == mode and f"gpu: {modes[mode]}" in d.footer
            title = "".join(span.text for span in d.face.pane.lines[0])
            assert (f" {modes[mode]} " in title) == (mode > 0)


async def test_mark_toggles_what_can_be_compared_and_says_so_elsewhere() -> None:
    async with desk() as d:
        await d.press("4", "G", "m")
        assert d.face.pane.marks == {d.face.pane.cursor}
        await d.press("m")
        assert not d.face.pane.marks
        await d.press("3", "j", "m")
        assert not d.face.pane.marks
        assert "mark row: works on a run" in d.footer


async def test_a_message_too_long_for_the_footer_is_shown_whole() -> None:
    async with desk(size=(80, 24)) as d:
        await d.press("M")
        assert "nothing was said yet" in d.footer
        d.face.say("first " + "words " * 20 + "last", "warning", "do this next")
        assert d.footer.startswith(" ▲ first words") and d.footer.endswith("… M all")
        await d.press("M")
        text = "\n".join(d.screen())
        assert "last" in text and "do this next" in text
        await d.press("enter")
        assert not d.face.windowed


async def test_adding_nothing_and_leaving_send_nothing() -> None:
    async with desk() as d:
        await d.press("a", "space", "enter")
        await d.press("a", "h", "i", "escape")
        await d.press("e", "enter")
        assert d.sent == []


async def test_choose_a_server() -> None:
    async with desk(states.box(server_count=2)) as d:
        await d.press("S")
        assert isinstance(d.face.screen, Choose)
        assert "moe-30b" in "".join(d.screen()) and "current" in "".join(d.screen())
        await d.press("down", "enter")
        assert d.sent == [ChooseServer(endpoint="http://127.0.0.1:8000")]


async def test_theme_goes_round_live() -> None:
    async with desk(theme="night") as d:
        before = d.face.palette("bad")
        await d.press("T")
        assert d.face.theme == d.face.palette.theme.name == "paper"
        assert d.face.palette("bad") != before
        assert "theme Paper" in d.footer


async def test_help_lists_every_action_and_closes() -> None:
    async with desk(size=(120, 90)) as d:
        await d.press("?")
        assert isinstance(d.face.screen, Help)
        text = "\n".join(d.screen())
        assert [action.title for action in ACTIONS if action.title not in text] == []
        await d.press("q")
        assert not d.face.windowed


@pytest.mark.parametrize("key", [":", "ctrl+p"])
async def test_the_palette_runs_an_action_by_name(key: str) -> None:
    async with desk() as d:
        await d.press(key)
        await d.type("freeze")
        await d.press("enter")
        assert d.face.lookout.frozen


async def test_the_palette_says_why_an_action_cannot_be_done() -> None:
    async with desk(size=(120, 60)) as d:
        await d.press(":")
        await d.type("tick")
        assert "works on an item of the investigation" in "\n".join(d.screen())
        await d.press("enter")
        assert "works on an item" in d.footer


async def test_own_keys_work_and_a_refused_one_is_said() -> None:
    async with desk(keys={"freeze": "z", "report": "q"}) as d:
        assert "q is already quit's" in d.footer
        await d.press("z")
        assert d.face.lookout.frozen


async def test_a_paste_becomes_one_line_and_one_without_a_window_is_nothing() -> None:
    async with desk() as d:
        d.face.post_message(events.Paste("q"))
        await d.press("a")
        d.face.post_message(events.Paste("one\n\ttwo\x1b[31m\u202ered\x00"))
        await d.pilot.pause()
        await d.press("enter")
        (sent,) = d.sent
        assert isinstance(sent, AddTodo) and sent.content == "one two [31m red"
        d.face.post_message(PasteCut())
        await d.pilot.pause()
        assert "a paste is cut at 32 KiB" in d.footer


@pytest.mark.parametrize("state", [states.box(), states.bare(), states.empty(), states.box(busy_bench=True)])
async def test_the_footer_offers_only_what_works_here_and_now(state: State) -> None:
    async with desk(state) as d:
        for pane in NAMES:
            d.face.focus_pane(pane)
            offered = hints(d.face, d.face.keymap)
            assert 4 <= len(offered) <= MOST
            for key, word in offered:
                (id,) = [id for id, said in OFFERED if said == word]
                (action,) = [action for action in ACTIONS if action.id == id]
                assert action.when(d.face) is None
                assert d.face.keymap.first(action.id) == key and f"{key} {word}" in d.footer


async def test_the_footer_follows_the_focus() -> None:
    async with desk() as d:
        assert "add todo" in d.footer and "tick" not in d.footer
        await d.press("3")
        assert d.footer.startswith(" x tick   i start   e edit")
        await d.press("4", "G")
        assert "baseline" in d.footer


async def test_the_mouse_wheel_and_a_click_choose_rows() -> None:
    async with desk() as d:
        await d.pilot.click("#todo", offset=(5, 3))
        assert (d.face.focused_name, d.face.pane.cursor) == ("todo", "t3")
        d.face.on_pane_wheeled(Pane.Wheeled(d.face.pane, 1))
        assert d.face.pane.cursor == "t4"


async def test_what_a_narrow_window_cuts_ends_in_a_sign() -> None:
    async with desk(size=(40, 12)) as d:
        await d.press("?")
        row = next(line for line in d.screen() if "bench panel" in line)
        assert row.rstrip(" │h─").endswith("…")


async def test_help_begins_with_what_acts_and_counts_what_is_below() -> None:
    async with desk(size=(80, 24)) as d:
        await d.press("?")
        first = "\n".join(d.screen())
        assert "start" in first and "more ↓" in first
        await d.press("G")
        assert "more ↓" not in d.screen()[-2] and "the row in focus; a marked row" in "\n".join([*d.screen(), first])
