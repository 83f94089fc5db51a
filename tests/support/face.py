"""The face on a state of our choosing: no engine, no timer, no terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from decodetop.config import Settings
from decodetop.core.sample import Command
from decodetop.core.state import State
from decodetop_tui.app import PANES
from decodetop_tui.face import Face
from support import states


class FakeFeed:
    """Holds what the face is to see, and keeps what it asked for."""

    def __init__(self, latest: State) -> None:
        self.latest = latest
        self.sent: list[Command] = []

    def submit(self, command: Command) -> None:
        self.sent.append(command)


class Desk:
    """A running face and what a test does with it."""

    def __init__(self, face: Face, feed: FakeFeed, pilot: Pilot[Any]) -> None:
        self.face, self.feed, self.pilot = face, feed, pilot

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        await self.press(*text)

    async def resize(self, width: int, height: int) -> None:
        """Textual lays out again a moment after the size has changed; on a busy machine a later one."""
        await self.pilot.resize_terminal(width, height)
        for _ in range(100):
            await self.pilot.pause()
            if self.face.screen._compositor.size == (width, height):
                return

    async def show(self, state: State) -> None:
        """A new state arrives, and a frame is due."""
        self.feed.latest = state
        self.face.tick()
        await self.pilot.pause()

    @property
    def sent(self) -> list[Command]:
        return self.feed.sent

    def screen(self) -> list[str]:
        """The screen as lines of text, windows included."""
        return screen_text(self.face)

    @property
    def footer(self) -> str:
        return "".join(span.text for line in self.face.stage.footer.lines for span in line)

    @property
    def top(self) -> str:
        return "".join(span.text for line in self.face.stage.top.lines for span in line)


def screen_text(face: Face) -> list[str]:
    """From the picture Textual makes of the screen: every cell, right-stripped."""
    strips = face.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


@asynccontextmanager
async def desk(
    state: State | None = None, size: tuple[int, int] = (120, 40), settings: Settings | None = None, **more: Any
) -> AsyncIterator[Desk]:
    """`more` goes into the settings; `modules` replaces the panes; `piped` and `clock` are the face's."""
    modules, piped, clock = more.pop("modules", PANES), more.pop("piped", False), more.pop("clock", None)
    switchable = more.pop("switchable", False)
    more.setdefault("investigation", Path("/nonexistent/investigation"))
    more.setdefault("config_path", Path("/nonexistent/config.toml"))
    feed = FakeFeed(states.box() if state is None else state)
    face = Face(feed, settings or Settings(**more), modules, fps=0, clock=clock, piped=piped, switchable=switchable)
    async with face.run_test(size=size) as pilot:
        await pilot.pause()
        yield Desk(face, feed, pilot)
