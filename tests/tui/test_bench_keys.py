"""Keys of the bench pane: start, stop, baseline, compare."""

from __future__ import annotations

from decodetop.bench.reading import MarkBaseline, StartBench, StopBench
from decodetop_tui.screens.confirm import Confirm
from support import states
from support.face import desk


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


async def test_readonly_starts_nothing() -> None:
    async with desk(readonly=True) as d:
        await d.press("b", "enter")
        assert d.sent == [] and "started with --readonly" in d.footer


async def test_stop_asks_and_stops() -> None:
    async with desk(states.box(busy_bench=True)) as d:
        await d.press("s")
        assert isinstance(d.face.screen, Confirm)
        await d.press("n")
        assert d.sent == []
        await d.press("s", "y")
        assert d.sent == [StopBench()]


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


async def test_the_columns_of_the_p99_view_say_p99() -> None:
    async with desk() as d:
        await d.press("4", "4", "v")
        assert any("TPOT p99" in line for line in d.screen())
