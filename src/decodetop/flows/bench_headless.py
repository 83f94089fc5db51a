"""A benchmark without a screen: the same engine, probes and service, driven from the command line."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from decodetop.bench.reading import BenchReading, Progress
from decodetop.core.clock import Clock, Late, within
from decodetop.core.engine import Engine, Probe
from decodetop.core.sample import Sample
from decodetop.core.state import State
from decodetop.errors import DataError, UsageError
from decodetop.flows.bench import BenchService
from decodetop.flows.live import bench_is_running
from decodetop.flows.session import new_header
from decodetop.gpu.probe import GpuProbe
from decodetop.server.probe import ServerProbe
from decodetop.server.reading import ServerReading

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

PROBES_S = 10.0
"""For the probes to have looked once, before the load begins."""

WHEN_ASKED_S = 86_400.0


class _Sink:
    def __init__(self, told: Callable[[Progress], None], heard: Callable[[Sample], None]) -> None:
        self._told = told
        self._heard = heard

    def put(self, sample: Sample) -> None:
        self._heard(sample)
        if isinstance(sample.reading, BenchReading) and sample.reading.progress is not None:
            self._told(sample.reading.progress)

    def reset(self) -> None:
        """A live engine never does."""


MakeProbes = Callable[[Clock, Callable[[], State]], Sequence[Probe]]


def box_probes(endpoints: Sequence[str], key: str | None) -> MakeProbes:
    """The probes of this box: GPUs once a second, the server only when asked to (a scrape is work for it too)."""

    def make(clock: Clock, state: Callable[[], State]) -> Sequence[Probe]:
        server = ServerProbe(clock, endpoints=endpoints, api_key=key, usual_ports=not endpoints)
        server.period_s = WHEN_ASKED_S
        return (GpuProbe(clock, quiet=lambda: bench_is_running(state())), server)

    return make


class Ended(NamedTuple, Generic[T]):
    """`stopped`: by SIGINT, SIGTERM or SIGHUP. `unstored`: why a run was not stored, if one was not."""

    result: T
    stopped: bool
    unstored: DataError | None


async def headless(
    work: Callable[[Engine, asyncio.Event], Awaitable[T]],
    service: BenchService,
    clock: Clock,
    told: Callable[[Progress], None],
    make_probes: MakeProbes = lambda clock, state: (),
    heard: Callable[[Sample], None] = lambda sample: None,
) -> Ended[T]:
    """Do `work` with the engine running and every probe having looked once; the event is set by a signal.

    `told` hears of the progress, `heard` every sample.

    What `work` raises is raised.
    """
    engine: Engine
    probes = make_probes(clock, lambda: engine.state)
    engine = Engine(new_header(clock), clock, probes, [service])
    running = asyncio.ensure_future(engine.run(_Sink(told, heard)))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    heeded = [word for word in SIGNALS if signal.getsignal(word) is not signal.SIG_IGN]  # nohup: HUP is for others
    for word in heeded:
        loop.add_signal_handler(word, stop.set)
    try:
        await _looked(engine, [probe.source for probe in probes], stop)
        result = await work(engine, stop)
        return Ended(result, stop.is_set(), service.unstored)
    finally:
        for word in heeded:
            loop.remove_signal_handler(word)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def _looked(engine: Engine, sources: Sequence[str], stop: asyncio.Event) -> None:
    """Wait until every probe has said something, or long enough, or for `stop`."""
    if not sources:
        return
    heard = asyncio.Event()

    def all_said(state: State) -> bool:
        lanes = [state.lane(source) for source in sources]
        return all(lane.last is not None or lane.failure is not None for lane in lanes)

    def listen(_: Sample) -> None:
        if all_said(engine.state):
            heard.set()

    unsubscribe = engine.subscribe(listen)
    waits = [asyncio.ensure_future(event.wait()) for event in (heard, stop)]
    try:
        await within(engine.clock, PROBES_S, asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED))
    except Late as late:
        late.task.cancel()
    finally:
        unsubscribe()
        for wait in waits:
            wait.cancel()


def need_endpoint(endpoints: Sequence[str], state: State) -> str:
    """The address typed or set, else that of the server found. Raises UsageError."""
    reading = state.last("server", ServerReading)
    found = endpoints[0] if endpoints else reading.current if reading is not None else None
    if found is None:
        raise UsageError("there is no server to measure", "give its address: --endpoint http://127.0.0.1:30000")
    return found
