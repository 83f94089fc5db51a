"""Each key does what the table says, on a running face without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from textual import events

from decodetop.bench.reading import MarkBaseline, StartBench, StopBench
from decodetop.core.sample import Failure
from decodetop.core.source import Record, RecordReading, Refresh, ReplayReading, ReplaySpeed, Seek, SetRate
from decodetop.core.state import State
from decodetop.server.reading import ChooseServer
from decodetop.steps.reading import (
    CancelParsing,
    Capturing,
    CompareCaptures,
    OpenTrace,
    Parsing,
    ShowCapture,
    StepsReading,
)
from decodetop.todo.reading import AddTodo
from decodetop_tui.keyboard import PasteCut
from decodetop_tui.keys import ACTIONS, FOOTER_MOST, hints
from decodetop_tui.layout import NAMES
from decodetop_tui.pane import Pane
from decodetop_tui.screens.choose import Choose
from decodetop_tui.screens.confirm import Confirm
from decodetop_tui.screens.files import PickTrace
from decodetop_tui.screens.help import Help
from decodetop_tui.screens.line import AskLine
from decodetop_tui.screens.modal import Entry
from decodetop_tui.screens.told import Told
from support import states
from support.clock import ManualClock
from support.face import desk


def replaying(speed: float = 1.0) -> State:
    reading = ReplayReading(position_s=30, duration_s=120, speed=speed, ended=False)
    return states.put(states.box(), {"replay": reading}, 60)


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


async def test_space_freezes_the_picture_while_the_feed_goes_on() -> None:
    async with desk() as d:
        await d.press("space")
        assert "FROZEN" in d.top
        await d.show(states.step(d.feed.latest, 77))
        assert "02:01:00" in d.top
        await d.press("space")
        assert "02:01:17" in d.top and "FROZEN" not in d.top


async def test_space_pauses_a_replay_instead() -> None:
    async with desk(replaying()) as d:
        await d.press("space")
        assert d.sent == [ReplaySpeed(speed=0.0)] and not d.face.lookout.frozen
        await d.show(replaying(speed=0))
        await d.press("space")
        assert d.sent[-1] == ReplaySpeed(speed=1.0)


async def test_refresh_and_rate() -> None:
    async with desk() as d:
        await d.press("r", "+")
        assert d.sent == [Refresh(), SetRate(factor=0.5)] and "2 Hz" in d.top and "reading every 0.5 s" in d.footer
        await d.press("-", "-")
        assert d.sent[-1] == SetRate(factor=2.0) and "every 2 s" in d.top
        await d.press(*"+" * 9)
        assert d.sent[-1] == SetRate(factor=0.25)


async def test_rate_keys_change_the_speed_of_a_replay() -> None:
    async with desk(replaying()) as d:
        await d.press("+", "+", "-")
        assert d.sent == [ReplaySpeed(speed=2.0), ReplaySpeed(speed=5.0), ReplaySpeed(speed=2.0)]


async def test_seeking_works_in_a_replay_only() -> None:
    async with desk(replaying()) as d:
        await d.press("[", "]", "{", "}")
        assert d.sent == [Seek(by_s=-10), Seek(by_s=10), Seek(by_s=-60), Seek(by_s=60)]
        assert " [ -10 s" in d.footer
    async with desk() as d:
        await d.press("[")
        assert d.sent == [] and "works in a replay" in d.footer


async def test_a_tape_takes_no_command_and_every_key_says_so() -> None:
    async with desk(replaying()) as d:
        for pane, key in (("todo", "x"), ("todo", "a"), ("bench", "B"), ("bench", "s"), ("steps", "o"), ("gpu", "S")):
            d.face.focus_pane(pane)
            await d.press(key)
            assert "this is a tape" in d.footer, key
        await d.press("4", "enter")
        assert d.face.zoomed and d.sent == []


async def test_over_a_pipe_no_key_asks_for_anything_and_the_footer_offers_none() -> None:
    async with desk(piped=True) as d:
        assert "Hz" not in d.top
        for pane, key in (*(("bench", key) for key in "+-absSpoR"), ("todo", "x"), ("bench", "B")):
            d.face.focus_pane(pane)
            await d.press(key)
            assert not d.face.windowed and "not over --from" in d.footer, key
        for pane in NAMES:
            d.face.focus_pane(pane)
            await d.press("escape", "enter", "r")
            offered = {word for _, word in hints(d.face, d.face.keymap)}
            assert not offered & {"add todo", "bench", "tick", "stop", "profile", "open trace", "baseline"}
        assert d.sent == []


async def test_a_pipe_that_ended_leaves_dim_figures_with_their_age() -> None:
    clock = ManualClock()
    async with desk(piped=True, clock=clock) as d:
        await d.show(states.fail(d.feed.latest, "pipe", Failure(kind="lost", message="the pipe ended"), 60))
        await clock.advance(42)
        d.face.tick()
        await d.pilot.pause()
        text = "\n".join(d.screen())
        assert "pipe ended 42 s ago: restart decodetop" in text
        for pane in (d.face.panes[name] for name in NAMES):
            assert "old" in "".join(span.text for span in pane.lines[0]), pane.pane_name
            styles = {span.style for line in pane.lines[1:] for span in line if span.text.strip("│▌ ")}
            assert {style.removeprefix("cursor:") for style in styles} <= {"dim"}, pane.pane_name


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


async def test_the_columns_of_the_p99_view_say_p99() -> None:
    async with desk() as d:
        await d.press("4", "4", "v")
        assert any("TPOT p99" in line for line in d.screen())


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


async def test_bench_starts_the_preset_under_the_cursor() -> None:
    async with desk() as d:
        await d.press("b")
        assert d.face.focused_name == "bench"
        await d.press("j", "enter")
        assert d.sent == [StartBench(preset="sweep")]


async def test_b_and_enter_start_a_preset_wherever_the_cursor_was() -> None:
    async with desk() as d:
        await d.press("4", "G")
        assert (d.face.pane.cursor or "").startswith("run:")
        await d.press("1", "b", "enter")
        (command,) = d.sent
        assert isinstance(command, StartBench) and f"preset:{command.preset}" == d.face.pane.cursor
    async with desk(states.bare()) as d:
        await d.press("b")
        assert d.face.focused_name == "bench" and not d.face.zoomed


async def test_a_second_benchmark_is_not_started() -> None:
    async with desk(states.box(busy_bench=True)) as d:
        await d.press("b")
        d.face.pane.cursor = "preset:single"
        d.face.draw()
        await d.press("enter")
        assert d.sent == [] and ("a benchmark is running" in d.footer or d.face.zoomed)


async def test_stop_asks_and_stops() -> None:
    async with desk(states.box(busy_bench=True)) as d:
        await d.press("s")
        assert isinstance(d.face.screen, Confirm)
        await d.press("n")
        assert d.sent == []
        await d.press("s", "y")
        assert d.sent == [StopBench()]


async def test_stop_cancels_a_trace_being_read_without_asking() -> None:
    parsing = StepsReading(parsing=Parsing(files=("a.json",), done_bytes=1, total_bytes=9))
    async with desk(states.put(states.box(), {"steps": parsing}, 60)) as d:
        await d.press("s")
        assert d.sent == [CancelParsing()]


async def test_stop_says_when_there_is_nothing_to_stop() -> None:
    async with desk() as d:
        await d.press("s")
        assert d.sent == [] and "nothing is running" in d.footer


async def test_baseline_marks_and_unmarks_the_run() -> None:
    async with desk() as d:
        await d.press("4")
        d.face.pane.cursor = "run:4"
        await d.press("B")
        d.face.pane.cursor = "run:3"
        await d.press("B")
        assert d.sent == [MarkBaseline(run_id=4), MarkBaseline(run_id=None)]


async def test_two_marked_runs_are_compared() -> None:
    async with desk() as d:
        d.face.focus_pane("bench")
        await d.press("c")
        assert "mark two runs" in "\n".join(d.screen())
        for run in ("run:4", "run:3"):
            d.face.pane.cursor = run
            await d.press("m")
        await d.press("c")
        text = "\n".join(d.screen())
        assert "output tok/s" in text and "196" in text and "51.7" in text and "-74 %" in text
        assert text.index("#3") < text.index("#4") and "no interval" in text
        await d.press("escape")
        assert d.sent == []


async def test_captures_are_chosen_and_compared() -> None:
    first = states.steps().captures[0]
    older = replace(first, id="older", made_wall_ns=0)
    reading = replace(states.steps(), captures=(first, older))
    async with desk(states.put(states.box(), {"steps": reading}, 60)) as d:
        await d.press("5", "c")
        assert d.sent == [] and "mark two captures" in d.footer
        await d.press("enter", "G", "enter")
        assert d.sent == [ShowCapture(id="older")]
        await d.press("m", "c")
        assert d.sent[1:] == [CompareCaptures(pair=("older", first.id))]
        await d.press("k", "m", "c")
        assert d.sent[2:] == [CompareCaptures(pair=("older", first.id))]


async def test_a_comparison_is_ended_by_the_same_key() -> None:
    first = states.steps().captures[0]
    older = replace(first, id="older", made_wall_ns=0)
    pair = ("older", first.id)
    reading = replace(states.steps(), captures=(first, older), compared=pair)
    async with desk(states.put(states.box(), {"steps": reading}, 60)) as d:
        await d.press("5", "enter")
        assert any("before us" in line for line in d.screen())
        await d.press("c")
        assert d.sent == [CompareCaptures(pair=None)]


async def test_enter_drills_from_a_kind_to_its_kernels_and_to_a_whole_name() -> None:
    async with desk(states.box()) as d:
        await d.press("5", "enter")
        d.face.pane.cursor = "kind:0:attention"
        await d.press("enter")
        assert d.face.pane.filter == "kind:attention" and "kernel:0:1" in d.face.pane.rows
        assert all(not row.startswith("kernel") or row == "kernel:0:1" for row in d.face.pane.rows)
        await d.press("escape")
        d.face.pane.cursor = "kernel:0:1"
        await d.press("enter")
        assert isinstance(d.face.screen, Told)


async def test_choose_a_server() -> None:
    async with desk(states.box(server_count=2)) as d:
        await d.press("S")
        assert isinstance(d.face.screen, Choose)
        assert "moe-30b" in "".join(d.screen()) and "current" in "".join(d.screen())
        await d.press("down", "enter")
        assert d.sent == [ChooseServer(endpoint="http://127.0.0.1:8000")]


async def test_open_a_trace_by_the_picker(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"1796023716.3312356-TP-{rank}.trace.json.gz").write_bytes(b"x" * 2_000_000)
    (tmp_path / "notes.txt").touch()
    (tmp_path / "more").mkdir()
    async with desk() as d:
        d.face.trace_folder = str(tmp_path)
        await d.press("o")
        assert isinstance(d.face.screen, PickTrace)
        text = "\n".join(d.screen())
        assert "all 2 ranks" in text and "4.0 MB" in text and "more/" in text and "notes.txt" not in text
        await d.press("enter")
        (command,) = d.sent
        assert isinstance(command, OpenTrace)
        assert [Path(path).name[-18:-14] for path in command.paths] == ["TP-0", "TP-1"]


async def test_tab_completes_a_folder_and_a_second_one_enters_it(tmp_path: Path) -> None:
    (tmp_path / "prof").mkdir()
    (tmp_path / "prof" / "a.json").write_bytes(b"x" * 12_345)
    async with desk() as d:
        d.face.trace_folder = str(tmp_path)
        await d.press("o", "p", "tab")
        value = d.face.screen.query_one(Entry).value
        assert value == f"{tmp_path}/prof" and "a.json" not in "\n".join(d.screen()[3:])
        await d.press("tab")
        assert "12 kB" in "\n".join(d.screen())


async def test_enter_in_an_empty_step_pane_opens_the_picker() -> None:
    async with desk(states.bare()) as d:
        await d.press("5", "enter")
        assert isinstance(d.face.screen, PickTrace)


async def test_record_toggles() -> None:
    async with desk() as d:
        await d.press("R")
        await d.show(states.put(d.feed.latest, {"record": RecordReading(path="/t.tape", since_ns=0)}, 61))
        await d.press("R")
        assert d.sent == [Record(on=True), Record(on=False)]
    async with desk(replaying()) as d:
        await d.press("R")
        assert d.sent == []


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


def unsaved() -> State:
    reading = replace(states.todos(), unsaved="disk full")
    return states.put(states.box(), {"todo": reading}, 60)


def profiling() -> State:
    steps = states.box().last("steps", StepsReading)
    assert steps is not None
    taking = replace(steps.taking, progress=Capturing(endpoint=states.ENDPOINT, phase="profiling", since_ns=0, steps=5))
    return states.put(states.box(), {"steps": replace(steps, taking=taking)}, 60)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (states.box(busy_bench=True), "benchmark is stopped"),
        (unsaved(), "The checklist can't be written: disk full"),
        (profiling(), "The profiler is stopped"),
    ],
    ids=["bench", "unsaved", "capture"],
)
async def test_quit_asks_where_something_would_be_lost(state: State, words: str) -> None:
    async with desk(state) as d:
        for keys in (("q", "n"), ("q", "escape"), ("ctrl+c", "n")):
            await d.press(keys[0])
            assert isinstance(d.face.screen, Confirm) and words in "\n".join(d.screen())
            await d.press(keys[1])
            assert d.face.return_code is None and not d.face.windowed
        await d.press("q", "y")
        assert d.face.return_code == 0
    async with desk(state) as d:
        await d.press("ctrl+c", "ctrl+c")  # who presses it twice means it
        assert d.face.return_code == 0


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_quit_asks_nothing_where_nothing_is_lost(key: str) -> None:
    replay = ReplayReading(position_s=60, duration_s=600, speed=1.0, ended=False)
    tape = states.put(states.box(busy_bench=True), {"replay": replay}, 60)
    for state, piped in ((states.box(), False), (tape, False), (states.box(busy_bench=True), True)):
        async with desk(state, piped=piped) as d:
            await d.press(key)
            assert d.face.return_code == 0


async def test_a_window_is_left_by_one_interrupt_and_the_screen_by_the_next() -> None:
    async with desk() as d:
        await d.press("a", "ctrl+c")
        assert d.face.return_code is None and not d.face.windowed
        await d.press("ctrl+c")
        assert d.face.return_code == 0


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


async def test_escape_closes_what_was_opened_last() -> None:
    async with desk() as d:
        await d.press("3", "3")
        d.face.pane.filter = "graphs"
        d.face.say("a word")
        await d.press("escape")
        assert (d.face.lookout.toast, d.face.pane.filter, d.face.zoomed) == (None, "graphs", True)
        await d.press("escape")
        assert (d.face.pane.filter, d.face.zoomed) == ("", True)
        await d.press("escape")
        assert not d.face.zoomed


@pytest.mark.parametrize("state", [states.box(), states.bare(), states.empty(), states.box(busy_bench=True)])
async def test_the_footer_offers_only_what_works_here_and_now(state: State) -> None:
    async with desk(state) as d:
        for pane in NAMES:
            d.face.focus_pane(pane)
            offered = hints(d.face, d.face.keymap)
            assert 4 <= len(offered) <= FOOTER_MOST
            for key, word in offered:
                (action,) = [action for action in ACTIONS if action.word == word]
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


@pytest.mark.parametrize(
    ("opening", "burst"),
    [("a", ("z", "enter", "enter")), ("a", ("z", "enter", "escape")), ("?", ("escape", "escape", "escape"))],
)
async def test_keys_pressed_faster_than_a_window_closes_close_it_once(opening: str, burst: tuple[str, ...]) -> None:
    async with desk() as d:
        await d.press(opening)
        for key in burst:
            d.face.post_message(events.Key(key, key if len(key) == 1 else None))
        await d.pilot.pause()
        assert d.face.is_running and len(d.face.screen_stack) <= 2


async def test_help_begins_with_what_acts_and_counts_what_is_below() -> None:
    async with desk(size=(80, 24)) as d:
        await d.press("?")
        first = "\n".join(d.screen())
        assert "start" in first and "more ↓" in first
        await d.press("G")
        assert "more ↓" not in d.screen()[-2] and "the row in focus; a marked row" in "\n".join([*d.screen(), first])
