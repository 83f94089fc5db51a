"""What the headless commands share: a session's header, and running a source until a time, a signal or its end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from typing import Any

from decodetop import __version__
from decodetop.core.clock import SECOND_NS, Clock
from decodetop.core.sample import Header, Sample
from decodetop.core.source import Source
from decodetop.core.state import State, fold


def new_header(clock: Clock, *, simulated: bool = False) -> Header:
    """The header of a session that begins now on this host."""
    started_wall_ns = clock.wall_ns() - clock.now_ns()
    return Header(version=__version__, host=socket.gethostname(), started_wall_ns=started_wall_ns, simulated=simulated)


def stop_signals() -> tuple[signal.Signals, ...]:
    """What ends a session: SIGINT, SIGTERM, and SIGHUP unless we were started to outlive the terminal (nohup)."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Collector:
    """A sink that folds, and hands each sample on. What `listener` raises ends the watch, and is raised there."""

    def __init__(
        self, header: Header, listener: Callable[[Sample], None] | None, ready: Callable[[State], bool] | None
    ) -> None:
        self.state = State(header=header)
        self.done = asyncio.Event()
        self.error: Exception | None = None
        self._listener = listener
        self._ready = ready

    def put(self, sample: Sample) -> None:
        self.state = fold(self.state, sample)
        if self._ready is not None and self._ready(self.state):
            self.done.set()
        if self._listener is None or self.error is not None:
            return
        try:
            self._listener(sample)
        except Exception as error:  # noqa: BLE001  carried to the caller of watch, out of the engine's boundary
            self.error = error
            self.done.set()

    def reset(self) -> None:
        self.state = State(header=self.state.header)


async def watch(
    source: Source,
    clock: Clock,
    seconds: float | None = None,
    listener: Callable[[Sample], None] | None = None,
    ready: Callable[[State], bool] | None = None,
) -> State:
    """Run `source` for `seconds` (None = until SIGINT, SIGTERM or SIGHUP), or until `ready` says so."""
    sink = Collector(source.header, listener, ready)
    running = asyncio.ensure_future(source.run(sink))
    stopped = asyncio.ensure_future(sink.done.wait())
    waits: set[asyncio.Future[Any]] = {running, stopped}
    if seconds is not None:
        waits.add(asyncio.ensure_future(clock.sleep_until(clock.now_ns() + int(seconds * SECOND_NS))))
    loop = asyncio.get_running_loop()
    words = stop_signals()
    for word in words:
        loop.add_signal_handler(word, sink.done.set)
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        for word in words:
            loop.remove_signal_handler(word)
    if sink.error is not None:
        raise sink.error
    return sink.state
