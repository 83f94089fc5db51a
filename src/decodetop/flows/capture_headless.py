"""A capture without a screen: the same services with an engine around them, driven from the command line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from decodetop.core.clock import SECOND_NS, Clock
from decodetop.core.engine import Context, Engine, Probe, Service
from decodetop.core.sample import Command, Notice, Sample
from decodetop.core.state import State
from decodetop.errors import DecodetopError
from decodetop.flows.session import new_header, watch
from decodetop.server.probe import ServerProbe

T = TypeVar("T")

LOOKED_S = 10.0
LOOK_S = 0.05
WHEN_ASKED_S = 86_400.0
"""The server is looked at when the capture asks: a scrape is work for it too."""


class Driver(Generic[T]):
    """Does `work` once all was looked at; then `done`, with a `result` or an `error`, and the `state` at its end."""

    source = "driver"
    commands: tuple[type[Command], ...] = ()

    def __init__(self, work: Callable[[Context], Awaitable[T]], sources: Sequence[str] = ("server",)) -> None:
        """`sources` are to have been looked at before."""
        self._work = work
        self._sources = tuple(sources)
        self.done = False
        self.result: T | None = None
        self.error: DecodetopError | None = None
        self.state: State | None = None

    async def run(self, context: Context) -> None:
        until_ns = context.clock.now_ns() + int(LOOKED_S * SECOND_NS)
        while context.clock.now_ns() < until_ns:
            lanes = [context.state.lane(source) for source in self._sources]
            if all(lane.last is not None or lane.failure is not None for lane in lanes):
                break
            await context.clock.sleep_until(context.clock.now_ns() + int(LOOK_S * SECOND_NS))
        try:
            self.result = await self._work(context)
        except DecodetopError as error:
            self.error = error
        self.done, self.state = True, context.state
        context.notify(Notice(message="done"))  # a sample, so that `watch` looks at once

    async def handle(self, command: Command, context: Context) -> None:
        """It takes none."""


async def drive(
    work: Callable[[Context], Awaitable[T]],
    clock: Clock,
    endpoints: Sequence[str],
    key: str | None,
    services: Sequence[Service],
    heard: Callable[[Sample], None] | None = None,
    more: Callable[[Callable[[], State]], Sequence[Probe]] = lambda state: (),
) -> Driver[T]:
    """`work` with an engine on this box until it is done; not `done` when a signal came before.

    `more` = probes beside the server's. Raises what it raised.
    """
    probe = ServerProbe(clock, endpoints=endpoints, api_key=key, usual_ports=not endpoints)
    probe.period_s = WHEN_ASKED_S
    engine: Engine
    probes: list[Probe] = [probe, *more(lambda: engine.state)]
    driver = Driver(work, [one.source for one in probes])
    engine = Engine(new_header(clock), clock, probes, [*services, driver])
    await watch(engine, clock, listener=heard, ready=lambda _: driver.done)
    if driver.error is not None:
        raise driver.error
    return driver
