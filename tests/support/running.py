"""An engine that runs while a test looks on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from decodetop.core.engine import Engine
from decodetop.core.source import Sink


@contextlib.asynccontextmanager
async def running(engine: Engine, sink: Sink) -> AsyncIterator[None]:
    """It is stopped, and has left everything in order, when this ends."""
    task = asyncio.ensure_future(engine.run(sink))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
