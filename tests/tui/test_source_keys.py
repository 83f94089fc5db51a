"""Keys that act on where the samples come from: the live box, a tape, a pipe."""

from __future__ import annotations

from decodetop.core.sample import Failure
from decodetop.core.source import Record, RecordReading, Refresh, ReplayReading, ReplaySpeed, Seek, SetRate
from decodetop.core.state import State
from decodetop_tui.layout import NAMES
from decodetop_tui.offers import hints
from support import states
from support.clock import ManualClock
from support.face import desk


def replaying(speed: float = 1.0) -> State:
    reading = ReplayReading(position_s=30, duration_s=120, speed=speed, ended=False)
    return states.put(states.box(), {"replay": reading}, 60)


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
        assert "playing at 2 times real time" in d.footer
        await d.press("-")
        assert "playing at real time" in d.footer


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


async def test_on_a_tape_no_pane_offers_what_only_a_live_box_can_do() -> None:
    reading = ReplayReading(position_s=30, duration_s=120, speed=1.0, ended=False)
    for state in (states.box(), states.bare()):
        async with desk(states.put(state, {"replay": reading}, 60)) as d:
            text = "\n".join(d.screen())
            assert "runs it" not in text and "profiles the server" not in text and "then Enter" not in text


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


async def test_record_toggles() -> None:
    async with desk() as d:
        await d.press("R")
        await d.show(states.put(d.feed.latest, {"record": RecordReading(path="/t.tape", since_ns=0)}, 61))
        await d.press("R")
        assert d.sent == [Record(on=True), Record(on=False)]
    async with desk(replaying()) as d:
        await d.press("R")
        assert d.sent == []
