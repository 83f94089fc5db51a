"""What the other instruments saw over a run: GPU samples and the server's counters, taken through the engine."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import Callable

import msgspec

from decodetop import __version__
from decodetop.bench.gates import gates
from decodetop.bench.launch import LoadFailed
from decodetop.bench.measure import figures
from decodetop.bench.reading import (
    ClientCheck,
    Environment,
    Gate,
    Metrics,
    Plan,
    RequestFault,
    Requests,
    Run,
    ServerSpan,
    Tokens,
)
from decodetop.bench.spans import gpu_spans, server_span
from decodetop.bench.wire import Result
from decodetop.core.clock import SECOND_NS, Late, within
from decodetop.core.engine import Context
from decodetop.core.sample import Sample
from decodetop.core.source import Refresh
from decodetop.errors import UsageError
from decodetop.gpu.reading import GpuReading
from decodetop.server.reading import Server, ServerReading
from decodetop.server.redact import redact_text

FRESH_S = 6.0
"""How long to wait for a source that was asked to read again."""

SETTLE_S, SETTLE_TRIES = 0.5, 4
"""Engines count a request some time after its last token left."""

LOOKS_S, LOOK_EVERY_S = (3.0, 6.0), 30.0
"""When the server is asked under the load how many requests it has: seldom, since a scrape is work for it too."""
LOOKS_MIN = 2
"""One gauge may still be that of the load before."""


class Window:
    """From `begin` (just before the load) to `end` (just after it)."""

    def __init__(self, context: Context, endpoint: str) -> None:
        self._context = context
        self._endpoint = endpoint
        self._gpus: list[tuple[int, GpuReading]] = []
        self._before: Server | None = None
        self._after: Server | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._under_way: list[int] = []
        self.started_wall_ns: int | None = None
        self._began_ns = 0
        self.duration_s = 0.0

    async def begin(self) -> None:
        await asyncio.gather(fresh(self._context, "server"), fresh(self._context, "gpu"))
        self._before = self._server()
        last = self._context.state.last("gpu", GpuReading)
        self._gpus = [] if last is None else [(self._context.clock.now_ns(), last)]
        self._unsubscribe = self._context.subscribe(self._take)
        self.started_wall_ns = self._context.clock.wall_ns()
        self._began_ns = self._context.clock.now_ns()
        self._looking = asyncio.ensure_future(self._look())

    async def end(self, requests: int) -> None:
        """Wait until the server has counted `requests` more, as long as that can take."""
        if self.started_wall_ns is None:
            return
        self.duration_s = (self._context.clock.now_ns() - self._began_ns) / SECOND_NS
        await fresh(self._context, "gpu")
        self.close()
        for _ in range(SETTLE_TRIES):
            heard = await fresh(self._context, "server")
            self._after = self._server()
            span = server_span(self._before, self._after)
            if not heard or span is None or span.requests is None or span.requests >= requests:
                return
            await self._context.clock.sleep_until(self._context.clock.now_ns() + int(SETTLE_S * SECOND_NS))

    async def _look(self) -> None:
        """Ask the server now and then, until closed. What it says comes by `_take`, as what others asked it."""
        for after_s in itertools.chain(LOOKS_S, itertools.count(LOOKS_S[-1] + LOOK_EVERY_S, LOOK_EVERY_S)):
            await self._context.clock.sleep_until(self._began_ns + int(after_s * SECOND_NS))
            if self._before is not None:
                self._context.submit(Refresh(source="server"))

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def environment(self) -> Environment:
        """What the run ran on, as far as it is known."""
        header = self._context.state.header
        server = self._after or self._before or self._server()
        here = server is None or server.local
        gpu = self._context.state.last("gpu", GpuReading) if here else None
        wanted = server.gpu_indices if server is not None else None
        names = [one.name for one in gpu.gpus if one.name and (wanted is None or one.index in wanted)] if gpu else []
        found = Environment(
            decodetop=__version__,
            host=header.host if here else None,
            driver=gpu.driver_version if gpu is not None else None,
            gpu_names=tuple(names),
            gpus=gpu_spans(self._gpus, server),
            server=self._span(),
            simulated=header.simulated or (server is not None and server.simulated),
        )
        return found if server is None else _with_server(found, server)

    def _span(self) -> ServerSpan | None:
        span = server_span(self._before, self._after)
        if len(self._under_way) < LOOKS_MIN:
            return span
        return msgspec.structs.replace(span or ServerSpan(), under_way_median=statistics.median(self._under_way))

    def _take(self, sample: Sample) -> None:
        if isinstance(sample.reading, GpuReading):
            self._gpus.append((sample.t_ns, sample.reading))
        elif isinstance(sample.reading, ServerReading):
            server = _named(sample.reading, self._endpoint)
            if server is not None and server.running is not None:
                self._under_way.append(server.running + (server.queued or 0))

    def _server(self) -> Server | None:
        return server_at(self._context, self._endpoint)


def server_at(context: Context, endpoint: str) -> Server | None:
    """The server of that address, if the server source knows it."""
    reading = context.state.last("server", ServerReading)
    return None if reading is None else _named(reading, endpoint)


def _named(reading: ServerReading, endpoint: str) -> Server | None:
    return next((server for server in reading.servers if server.endpoint.rstrip("/") == endpoint.rstrip("/")), None)


def endpoint_for(context: Context, named: str | None, what: str) -> str:
    """`named`, else the current server's. Raises UsageError: there is none to `what` (measure, profile, ...)."""
    reading = context.state.last("server", ServerReading)
    endpoint = named or (reading.current if reading is not None else None)
    if endpoint is None:
        hint = "start one, it is found by itself; or name one: decodetop --endpoint URL"
        raise UsageError(f"there is no server to {what}", hint)
    return endpoint


def _with_server(environment: Environment, server: Server) -> Environment:
    flags = {flag.name: flag.resolved or flag.requested or "" for flag in server.flags}
    return msgspec.structs.replace(
        environment,
        engine=server.engine,
        engine_version=server.version,
        model=server.served_name or server.model,
        tp=server.tp,
        command=server.command,
        flags=flags,
    )


async def fresh(context: Context, source: str) -> bool:
    """Have `source` read again and wait for it; False when it never said anything, or doesn't in time."""
    lane = context.state.lane(source)
    if lane.last is None and lane.failure is None:
        return False
    heard = asyncio.Event()

    def listen(sample: Sample) -> None:
        if sample.source == source:
            heard.set()

    unsubscribe = context.subscribe(listen)
    try:
        context.submit(Refresh(source=source))
        await within(context.clock, FRESH_S, heard.wait())
    except Late as late:
        late.task.cancel()
    finally:
        unsubscribe()
    return heard.is_set()


def run_of(plan: Plan, result: Result, window: Window, key: str | None) -> Run:
    """The run, judged; nothing a server said goes into it with a key in it."""
    assert window.started_wall_ns is not None
    seen = figures(result, plan.slo_ms, plan.duration_s)
    environment = window.environment()
    server = environment.server
    metrics = seen.metrics
    if server is not None:
        accept = server.accept_length if metrics.accept_length is None else metrics.accept_length
        positions = server.accept_per_position or None
        metrics = msgspec.structs.replace(metrics, accept_length=accept, accept_per_position=positions)
    seen = msgspec.structs.replace(seen, metrics=metrics)
    found = gates(plan, result, seen, environment)
    return Run(
        started_wall_ns=window.started_wall_ns,
        duration_s=window.duration_s,
        valid=all(gate.severity != "invalid" for gate in found),
        partial=result.partial,
        gates=found,
        plan=plan,
        environment=environment,
        requests=_redacted(seen.requests, key),
        tokens=seen.tokens,
        metrics=metrics,
        client=ClientCheck(
            loop_lag_ms_p99=result.loop_lag_ms_p99,
            cpu_percent=result.cpu_percent,
            send_delay_ms_p99=seen.send_delay_ms_p99,
        ),
    )


def _redacted(requests: Requests, key: str | None) -> Requests:
    known = [key] if key else []
    errors = [msgspec.structs.replace(error, example=redact_text(error.example, known)) for error in requests.errors]
    return msgspec.structs.replace(requests, errors=tuple(errors))


def refused_run(plan: Plan, error: LoadFailed, context: Context) -> Run:
    """What `--json` prints when the one request tried showed that nothing can be measured. Never stored."""
    errors = (RequestFault(kind=error.kind, count=1, example=error.message),) if error.kind is not None else ()
    return Run(
        started_wall_ns=context.clock.wall_ns(),
        duration_s=0.0,
        valid=False,
        gates=(Gate(name="no_result", severity="invalid", detail=error.message),),
        plan=plan,
        environment=Window(context, plan.endpoint).environment(),
        requests=Requests(ok=0, failed=len(errors), errors=errors),
        tokens=Tokens(output=None, prompt=None, cached=None, source="unknown"),
        metrics=Metrics(
            ttft_ms=None,
            itl_ms=None,
            icl_ms=None,
            tpot_ms=None,
            e2e_ms=None,
            output_tok_s=None,
            request_s=None,
            accept_length=None,
        ),
        client=ClientCheck(loop_lag_ms_p99=None, cpu_percent=None, send_delay_ms_p99=None),
    )
