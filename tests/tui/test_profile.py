"""The key `p`: asks before it profiles, stops what runs, and the steps pane tells how it goes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from decodetop.core.clock import SECOND_NS
from decodetop.core.state import State
from decodetop.steps.reading import (
    CAPTURE_COSTS,
    CAPTURE_PHASES,
    CaptureSteps,
    Capturing,
    LeftProfiling,
    StopCapture,
    Taking,
)
from decodetop_tui.panes._stepfloor import floor_line, under_way_lines
from decodetop_tui.screens.confirm import Confirm
from support import floors, states
from support.face import Desk, desk

LEFT = LeftProfiling(endpoint="http://box:30000", engine="vllm", host="box", since_wall_ns=1)


def capturing(**more: object) -> Taking:
    fields = {"endpoint": "http://127.0.0.1:30001", "phase": "measuring", "since_ns": 55 * SECOND_NS, "steps": 20}
    return Taking(progress=Capturing(**{**fields, **more}))  # type: ignore[arg-type]


def with_taking(taking: Taking, state: State | None = None) -> State:
    return states.put(state or states.box(), {"steps": replace(states.steps(), taking=taking)}, 60)


async def asked(d: Desk) -> str:
    assert isinstance(d.face.screen, Confirm)
    return " ".join(word for word in " ".join(d.screen()).split() if word not in "│╭╮╰╯─")


async def test_p_asks_with_the_costs_and_profiles_the_current_server() -> None:
    async with desk() as d:
        await d.press("p")
        said = await asked(d)
        assert "Profile the server?" in said and "20 decode steps of SGLang" in said
        for word in CAPTURE_COSTS.split():
            assert word in said
        assert d.sent == []
        await d.press("y")
        assert d.sent == [CaptureSteps(endpoint="http://127.0.0.1:30001")]
        assert d.face.focused_name == "steps"


@pytest.mark.parametrize("key", ["n", "escape"])
async def test_no_profiles_nothing(key: str) -> None:
    async with desk() as d:
        await d.press("p", key)
        assert d.sent == [] and not d.face.windowed


@pytest.mark.parametrize("key", ["p", "s"])
async def test_while_one_runs_it_is_stopped_after_a_question(key: str) -> None:
    async with desk(with_taking(capturing())) as d:
        await d.press(key)
        assert "Stop the capture?" in await asked(d)
        await d.press("n", key, "y")
        assert d.sent == [StopCapture()]


async def test_a_profiler_left_running_is_stopped_first() -> None:
    async with desk(with_taking(Taking(left=LEFT))) as d:
        await d.press("p")
        said = await asked(d)
        assert "Stop the profiler?" in said and "http://box:30000" in said
        await d.press("y")
        assert d.sent == [StopCapture()]


async def test_where_there_is_nothing_to_profile_it_says_why() -> None:
    async with desk(states.bare()) as d:
        await d.press("p")
        assert not d.face.windowed and "no server was found" in d.footer
    async with desk(readonly=True) as d:
        await d.press("p")
        assert not d.face.windowed and "--readonly" in d.footer and d.sent == []


@pytest.mark.parametrize(
    ("taking", "words"),
    [
        (capturing(streams=1), ["capturing", CAPTURE_PHASES["measuring"] + ", 1 stream", "5 s"]),
        (
            capturing(phase="profiling", streams=0, others=3, itl_ms=5.112),
            ["profiling, 3 requests of others, ITL 5.11 ms unprofiled"],
        ),
        (
            capturing(phase="waiting", streams=2, itl_ms=5.112, ranks_written=1, ranks_wanted=2),
            ["waiting for the trace files, 2 streams", "1 of 2 ranks"],
        ),
        (Taking(error="http://a: vLLM 0.24.0 was started without a profiler (404) (hint)"), ["not captured: http://a"]),
        (Taking(left=LEFT), ["still profiled?: http://box:30000", "p stops it"]),
    ],
)
async def test_the_pane_tells_how_it_goes(taking: Taking, words: list[str]) -> None:
    for size in ((120, 40), (200, 60)):
        async with desk(with_taking(taking), size) as d:
            await d.press("5", "5")
            screen = "\n".join(d.screen())
            assert all(word in screen for word in words), screen


async def test_a_small_pane_keeps_the_phase() -> None:
    async with desk(with_taking(capturing(phase="loading", streams=64, others=12, itl_ms=123.4)), (80, 24)) as d:
        await d.press("5", "5")
        assert any("capturing starting the load" in line and line.endswith("5 s") for line in d.screen())


async def test_words_of_a_server_move_no_cursor() -> None:
    nasty = Taking(error="http://a answered 500: \x1b[2J[bold]x")
    async with desk(with_taking(nasty)) as d:
        await d.press("5", "5")
        screen = "\n".join(d.screen())
        assert "[bold]x" in screen and "\x1b" not in screen


def test_a_pane_that_holds_nothing_else_says_the_phase_whole() -> None:
    """Beside a capture it is one line; alone it may take three."""
    said = "starting the load of 1 stream and waiting until the server runs it steadily"
    for words, most in ((said, 3), (said, 1)):
        lines = under_way_lines("capturing", words, "3 s", 50, most)
        texts = ["".join(span.text for span in line) for line in lines]
        assert len(texts) <= most and all(len(text) <= 50 for text in texts) and texts[0].endswith("  3 s")
        assert most == 1 or " ".join(" ".join(texts).split()).replace(" 3 s", "") == f"capturing {words}"
    assert "…" in texts[0]


def test_the_floor_line_says_the_verdict_whole_in_half_a_screen() -> None:
    state = floors.judged()
    line = floor_line(state, 58)
    assert "".join(span.text for span in line).strip().startswith("floor 3.16 ms · real step is 6.1x · host-bound")
    short = floor_line(state, 40)
    assert "".join(span.text for span in short) == "  floor 3.16 ms · real 6.1x · host-bound"
