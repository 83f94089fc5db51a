"""The ways out: of the screen, of a window, of what was opened last."""

from __future__ import annotations

import gc

import pytest
from msgspec.structs import replace
from textual import events
from textual._styles_cache import StylesCache

from decodetop.core.source import ReplayReading
from decodetop.core.state import State
from decodetop.steps.reading import (
    Capturing,
    StepsReading,
)
from decodetop_tui.screens.confirm import Confirm
from support import states
from support.face import desk


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


def renderers() -> list[StylesCache]:
    return [one for one in gc.get_objects() if isinstance(one, StylesCache)]


async def test_a_closed_window_leaves_nothing_rendered_behind() -> None:
    """Textual remembers the renderers of a thousand widgets that are gone: their lines were 75 MB after days of use."""
    async with desk() as d:
        before = renderers()
        for key in ("?", "a", ":", "o", "d"):
            await d.press(key, "escape")
        known = {id(one) for one in before}
        assert sum(len(one._cache) for one in renderers() if id(one) not in known) == 0
