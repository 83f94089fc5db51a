"""The key `C` and Enter on the check: one token of the server, after a question."""

from __future__ import annotations

import pytest

from decodetop.server.reading import TryGeneration
from decodetop_tui.screens.confirm import Confirm
from support.face import desk

ONE = TryGeneration(endpoint="http://127.0.0.1:30001")


async def test_it_asks_and_then_lets_the_server_generate() -> None:
    async with desk() as d:
        await d.press("C")
        assert isinstance(d.face.screen, Confirm) and d.sent == []
        assert "Let the server generate one token?" in " ".join(" ".join(d.screen()).split())
        await d.press("y")
        assert d.sent == [ONE]


@pytest.mark.parametrize("key", ["n", "escape"])
async def test_no_asks_nothing_of_the_server(key: str) -> None:
    async with desk() as d:
        await d.press("C", key)
        assert d.sent == [] and not d.face.windowed


async def test_enter_on_the_check_in_the_zoomed_pane() -> None:
    async with desk() as d:
        await d.press("2", "2")
        for _ in range(40):
            if d.face.pane.cursor == "check:generates":
                break
            await d.press("j")
        assert d.face.pane.cursor == "check:generates"
        await d.press("enter", "y")
        assert d.sent == [ONE]
