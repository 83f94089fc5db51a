"""One daemon thread that makes blocking calls one after the other; a stuck call blocks neither the loop nor exit."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class CallThread:
    """`call` runs a function on the thread and awaits its result. `busy` = a call is running or waiting."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._pending = 0
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        return self._pending > 0

    async def call(self, function: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def finish(result: T | None, error: BaseException | None) -> None:
            self._pending -= 1
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def work() -> None:
            result: T | None = None
            failed: BaseException | None = None
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001  handed to the caller
                failed = error
            # the loop is gone when the program ends while a call is stuck
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish, result, failed)

        self._pending += 1
        self._queue.put(work)
        return await future

    def close(self) -> None:
        """Let the thread end after what it is doing; does not wait."""
        self._queue.put(None)

    def _main(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
