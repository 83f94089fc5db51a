"""The feed: runs a source on its own thread and loop and publishes the state by replacing one attribute.

Frames may be dropped, samples never; a slow reader can't slow a measurement.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from decodetop.core.sample import Command, Failure, Sample
from decodetop.core.source import Source
from decodetop.core.state import State, fold

STOP_S = 5.0


class Feed:
    """`latest` may be read from any thread; `start`, `submit` and `stop` may be called from any thread."""

    def __init__(self, source: Source, listener: Callable[[Sample], None] | None = None) -> None:
        """`listener` is called on the engine's thread with every sample."""
        self.source = source
        self.latest = State(header=source.header)
        self.error: BaseException | None = None
        self._listener = listener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="decodetop-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def submit(self, command: Command) -> None:
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self.source.submit, command)

    def stop(self, timeout_s: float = STOP_S) -> bool:
        """Cancel the source and wait. False if it did not end in time (its threads are daemons: exit goes on)."""
        if self._loop is not None and self._task is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def put(self, sample: Sample) -> None:
        self.latest = fold(self.latest, sample)
        if self._listener is not None:
            self._listener(sample)

    def reset(self) -> None:
        self.latest = State(header=self.source.header)

    def _main(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self.source.run(self))
        self._ready.set()
        try:
            await self._task
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001  the thread's edge: the face shows it instead of freezing silently
            self.error = error
            failure = Failure(kind="broken", message=f"the engine stopped: {error!r}"[:300])
            self.put(Sample(source="engine", t_ns=self.latest.now_ns, seq=self.latest.seq + 1, failure=failure))
