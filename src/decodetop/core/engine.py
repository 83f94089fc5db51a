"""The live source: drives probes at their cadence, runs services, hands commands to them, turns errors into samples."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from decodetop.core.clock import SECOND_NS, Clock, Late, within
from decodetop.core.sample import ClockReading, Command, Failure, Header, Notice, Reading, Sample, failure_of
from decodetop.core.source import Refresh, SetRate, Sink
from decodetop.core.state import State, fold

T = TypeVar("T")

BACKOFF_MAX_S = 30.0
CLOCK_PERIOD_S = 1.0


class Probe(Protocol):
    """Reads one source. `read` raises ProbeError (or anything: it becomes a `broken` failure)."""

    source: str
    period_s: float
    deadline_s: float

    async def read(self) -> Reading: ...

    async def close(self) -> None: ...


class Context(Protocol):
    """What the engine gives a service: time, the state so far, and ways to speak."""

    @property
    def clock(self) -> Clock: ...

    @property
    def state(self) -> State: ...

    def emit(self, source: str, seen: Reading | Failure) -> None: ...

    def notify(self, notice: Notice) -> None: ...

    def subscribe(self, listener: Callable[[Sample], None]) -> Callable[[], None]:
        """Call `listener` with every sample from now on; the result ends it."""

    def submit(self, command: Command) -> None: ...


class Service(Protocol):
    """A source that speaks when it has something to say, and the handler of its commands.

    `run` lives until cancelled; `handle` may take as long as it needs (each command runs in its own task).
    """

    source: str
    commands: tuple[type[Command], ...]

    async def run(self, context: Context) -> None: ...

    async def handle(self, command: Command, context: Context) -> None: ...


class _Cadence:
    """When a probe is due. Skipped ticks are skipped; after a failure it waits longer each time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.rate = 1.0
        self.wake = asyncio.Event()

    async def until(self, t_ns: int) -> None:
        """Sleep until `t_ns`, or until someone asks for a refresh."""
        self.wake.clear()
        sleep = asyncio.ensure_future(self.clock.sleep_until(t_ns))
        woken = asyncio.ensure_future(self.wake.wait())
        try:
            await asyncio.wait({sleep, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            woken.cancel()


class Engine:
    """See DESIGN: cadence, back-off, deadlines and the one place where an exception becomes a failure."""

    def __init__(
        self,
        header: Header,
        clock: Clock,
        probes: Sequence[Probe] = (),
        services: Sequence[Service] = (),
        *,
        readonly: bool = False,
    ) -> None:
        self.header = header
        self.clock = clock
        self.readonly = readonly
        self.state = State(header=header)
        self._probes = tuple(probes)
        self._services = tuple(services)
        self._handlers = {command: service for service in services for command in service.commands}
        self._listeners: list[Callable[[Sample], None]] = []
        self._cadences: dict[str, _Cadence] = {}
        self._sink: Sink | None = None
        self._group: asyncio.TaskGroup | None = None
        self._seq = 0

    async def run(self, sink: Sink) -> None:
        """Until cancelled. Probes are closed on the way out."""
        self._sink = sink
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._tick())
                for service in self._services:
                    group.create_task(self._serve(service))
                for probe in self._probes:
                    cadence = self._cadences[probe.source] = _Cadence(self.clock)
                    group.create_task(self._drive(probe, cadence))
        finally:
            self._group = None
            for probe in self._probes:
                await probe.close()

    def emit(self, source: str, seen: Reading | Failure) -> None:
        """Stamp what was seen, fold it, and pass it on."""
        failure = seen if isinstance(seen, Failure) else None
        reading = None if isinstance(seen, Failure) else seen
        sample = Sample(source=source, t_ns=self.clock.now_ns(), seq=self._seq, reading=reading, failure=failure)
        self._seq += 1
        self.state = fold(self.state, sample)
        for listener in tuple(self._listeners):
            listener(sample)
        if self._sink is not None:
            self._sink.put(sample)

    def notify(self, notice: Notice) -> None:
        self.emit("notice", notice)

    def subscribe(self, listener: Callable[[Sample], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def submit(self, command: Command) -> None:
        """Start a command's handler. Refusals and failures come back as notices."""
        if isinstance(command, Refresh):
            for source, cadence in self._cadences.items():
                if command.source in (None, source):
                    cadence.wake.set()
            return
        if isinstance(command, SetRate):
            for cadence in self._cadences.values():
                cadence.rate = command.factor
                cadence.wake.set()
            return
        title = command.title or type(command).__name__
        service = self._handlers.get(type(command))
        if service is None:
            self.notify(Notice(level="error", message=f"can't {title}: nothing here can do that"))
        elif self.readonly and command.touches:
            self.notify(Notice(level="warning", message=f"can't {title}: started with --readonly"))
        elif self._group is not None:
            self._group.create_task(self._handle(service, command))

    async def _tick(self) -> None:
        due_ns = self.clock.now_ns()
        while True:
            self.emit("clock", ClockReading(wall_ns=self.clock.wall_ns()))
            due_ns = max(due_ns + int(CLOCK_PERIOD_S * SECOND_NS), self.clock.now_ns())
            await self.clock.sleep_until(due_ns)

    async def _drive(self, probe: Probe, cadence: _Cadence) -> None:
        due_ns = self.clock.now_ns()
        failures = 0
        while True:
            period_s = probe.period_s * cadence.rate
            retry_s = min(period_s * 2**failures, max(BACKOFF_MAX_S, period_s))
            seen = await self._guard(self._read(probe, retry_s), retry_s)
            self.emit(probe.source, seen)
            now_ns = self.clock.now_ns()
            if isinstance(seen, Failure):
                failures = min(failures + 1, 10)
                due_ns = now_ns + int(retry_s * SECOND_NS)
            else:
                failures = 0
                period_ns = int(period_s * SECOND_NS)
                due_ns += period_ns * max(1, -(-(now_ns - due_ns) // period_ns))
            await cadence.until(due_ns)
            due_ns = min(due_ns, self.clock.now_ns()) if cadence.wake.is_set() else due_ns

    async def _read(self, probe: Probe, retry_s: float) -> Reading:
        try:
            return await within(self.clock, probe.deadline_s, probe.read())
        except Late as late:
            message = f"{probe.source}: no answer within {probe.deadline_s:g} s"
            self.emit(probe.source, Failure(kind="stalled", message=message, retry_in_s=retry_s))
            await asyncio.wait({late.task})  # no second call until the first returns
            result = late.task.result()
            assert isinstance(result, Reading)
            return result

    async def _serve(self, service: Service) -> None:
        failures = 0
        while True:
            retry_s = min(2.0**failures, BACKOFF_MAX_S)
            failure = await self._guard(service.run(self), retry_s)
            if failure is None:
                return
            self.emit(service.source, failure)
            failures = min(failures + 1, 10)
            await self.clock.sleep_until(self.clock.now_ns() + int(retry_s * SECOND_NS))

    async def _handle(self, service: Service, command: Command) -> None:
        failure = await self._guard(service.handle(command, self), None)
        if failure is not None:
            self.notify(Notice(level="error", message=failure.message, hint=failure.hint, ring=True))

    async def _guard(self, work: Awaitable[T], retry_s: float | None) -> T | Failure:
        """The engine's one boundary: what a probe, service or handler raises becomes a failure."""
        try:
            return await work
        except Exception as error:  # noqa: BLE001  (the boundary)
            return failure_of(error, retry_s)
