"""The demo's own client says in words what its server did not do."""

from __future__ import annotations

import asyncio

import pytest

from decodetop.sim import client
from decodetop.sim.client import SimClient


async def test_a_server_that_says_nothing_is_said_with_the_time_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 0.01)
    over = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
            await SimClient(server.sockets[0].getsockname()[1]).load()
        over.set()
