"""The short way to the terminal is taken only where nothing lies over the dashboard."""

from __future__ import annotations

from collections.abc import Sequence

from decodetop_tui.ink import Ink
from decodetop_tui.thrift import Cell
from support import states
from support.face import desk


class Driver:
    """A terminal that surely shows what was sent."""

    sure = True

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, str]] = []

    def send(self, changes: Sequence[tuple[int, int, Sequence[Cell]]], *, at_once: bool) -> None:
        self.sent += [(x, y, "".join(cell.text for cell in cells)) for x, y, cells in changes]


async def test_nothing_is_written_over_a_window() -> None:
    async with desk() as d:
        driver = Driver()
        d.face.stage.use_ink(Ink(d.face, driver, d.face.palette))
        await d.show(states.box(61))
        assert driver.sent
        await d.press("?")
        driver.sent.clear()
        await d.show(states.box(62))
        d.face.say("a word")
        assert driver.sent == [] and "keys" in "\n".join(d.screen())
        await d.press("escape")
        await d.show(states.box(63))
        assert driver.sent
