"""The whole screen as text, at the sizes people use. DECODETOP_GOLDEN=1 writes the files anew; read the diff."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Failure
from decodetop.core.source import RecordReading, ReplayReading
from decodetop.core.state import State
from decodetop_tui.layout import NAMES, SMALL_HEIGHT, SMALL_WIDTH
from support import states
from support.face import desk

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "screens"


def check(name: str, lines: list[str]) -> None:
    path = GOLDEN / f"{name}.txt"
    text = "".join(f"{line}\n" for line in lines)
    if os.environ.get("DECODETOP_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert path.is_file(), f"no {path}: run with DECODETOP_GOLDEN=1 and look at it"
    assert text == path.read_text("utf-8")


def failing() -> State:
    """A simulated box that is being recorded; its server stopped answering a while ago."""
    state = states.fail(states.box(gpu_count=1, simulated=True), "server", Failure(kind="lost", message="refused"))
    tick = {"gpu": states.gpus(1, 75), "clock": states.ClockReading(wall_ns=states.WALL_NS + 75 * SECOND_NS)}
    return states.put(state, {**tick, "record": RecordReading(path="/t.tape", samples=9, since_ns=0)}, 75)


def replay() -> State:
    reading = ReplayReading(position_s=60, duration_s=600, speed=2.0, ended=False)
    return states.put(states.box(gpu_count=8, server_count=2), {"replay": reading}, 60)


SCENES = {
    "box": (states.box, ""),
    "bare": (states.bare, ""),
    "replay": (replay, ""),
    "bench": (lambda: states.box(busy_bench=True), "4"),
    "failing": (failing, "2"),
}
SIZES = ((80, 24), (120, 40), (200, 60))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("scene", SCENES)
async def test_the_dashboard(scene: str, size: tuple[int, int]) -> None:
    make, keys = SCENES[scene]
    async with desk(make(), size) as d:
        await d.press(*keys)
        check(f"{scene}-{size[0]}x{size[1]}", d.screen())


async def test_a_zoomed_pane_has_the_screen_and_the_frame_stays() -> None:
    async with desk(size=(120, 40)) as d:
        for name in NAMES:
            d.face.focus_pane(name)
            d.face.set_zoom(True)
            await d.pilot.pause()
            lines = d.screen()
            assert lines[0].startswith("decodetop") and " Enter open" in lines[-1]
            titles = [line for line in lines if line.startswith("─")]
            assert titles == [lines[2]] and d.face.pane.module.TITLE in lines[2]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize(("name", "keys"), [("help", "?"), ("commands", ":"), ("add", "a"), ("servers", "S")])
async def test_a_window(name: str, keys: str, size: tuple[int, int]) -> None:
    async with desk(states.box(server_count=2), size) as d:
        await d.press(*keys)
        check(f"window-{name}-{size[0]}x{size[1]}", d.screen())


ODD_SIZES = (
    *((1, 1), (2, 2), (3, 1), (1, 30), (10, 3), (20, 5), (59, 15), (60, 15), (59, 16), (60, 16), (250, 1), (99, 30)),
    *((100, 16), (100, 17), (61, 70), (250, 16), (160, 50), (250, 70), (5, 4), (80, 24)),
)


@pytest.mark.parametrize("make", [states.box, states.bare], ids=["box", "bare"])
async def test_any_size_draws_and_shows_the_titles(make: Callable[[], State]) -> None:
    async with desk(make(), size=(80, 24)) as d:
        for width, height in ODD_SIZES:
            await d.resize(width, height)
            lines = d.screen()
            assert len(lines) == height
            shown = NAMES if width >= SMALL_WIDTH and height >= SMALL_HEIGHT else NAMES[:1]
            for name in shown:
                key = d.face.panes[name].module.KEY
                title = f"─{key} {d.face.panes[name].module.TITLE}"[:width].rstrip()
                assert any(title in line for line in lines), (name, width, height)


@pytest.mark.parametrize("key", ["?", ":", "a", "S", "o", "q"])
async def test_windows_open_at_any_size_and_follow_it(key: str) -> None:
    async with desk(states.box(server_count=2, busy_bench=True), (80, 24)) as d:
        await d.press(key)
        for width, height in ((1, 1), (20, 5), (250, 70), (60, 16)):
            await d.resize(width, height)
            assert d.face.windowed and len(d.screen()) == height
        await d.press("escape")
        assert not d.face.windowed and len(d.screen()[2]) == 60
