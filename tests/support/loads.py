"""Loads in processes of their own against a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from decodetop.bench.launch import run_load
from decodetop.bench.reading import Plan
from decodetop.bench.wire import Ready, Result, Tick
from support.token_server import Seen, Step, TokenServer, Wait, completions


class Heard:
    """A listener that keeps what it was told."""

    def __init__(self) -> None:
        self.ticks: list[Tick] = []
        self.terms: Ready | None = None
        self.under_way = asyncio.Event()

    def tick(self, ticks: Sequence[Tick]) -> None:
        self.ticks = list(ticks)
        if sum(one.done for one in ticks) > 0:
            self.under_way.set()

    async def ready(self, ready: Ready) -> None:
        self.terms = ready


async def asked(server: TokenServer) -> None:
    """Until the first request came."""
    async with asyncio.timeout(60):
        while not server.posts:
            await asyncio.sleep(0.01)


def plan_for(url: str, **changes: Any) -> Plan:
    settings = {"streams": 2, "requests": 4, "input_tokens": 32, "output_tokens": 8, "timeout_s": 30.0, "seed": 7}
    return Plan(preset="t", endpoint=url, **{**settings, **changes})


async def load(
    script: Callable[[Seen], Iterable[Step]], key: str | None = None, **changes: Any
) -> tuple[Result, Ready, list[Seen]]:
    heard = Heard()
    async with TokenServer(script) as server:
        result = await run_load(plan_for(server.url, **changes), key, heard, asyncio.Event())
        assert heard.terms is not None
        return result, heard.terms, server.seen


def slow_after(count: int) -> Callable[[Seen], Iterable[Step]]:
    """Well-behaved for `count` posts, and then never ending."""
    posts = 0

    def script(seen: Seen) -> Iterable[Step]:
        nonlocal posts
        posts += seen.method == "POST"
        steps = completions(seen)
        return steps if posts <= count else [*steps[:2], Wait(60)]

    return script
