"""The load of a capture: what a token takes without the profiler, then the same load held while it is profiled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from decodetop.bench.launch import Launch, LoadFailed
from decodetop.bench.measure import figures
from decodetop.bench.reading import Metrics, Plan
from decodetop.bench.wire import Ready, Result, Tick
from decodetop.core.clock import SECOND_NS, Late, within
from decodetop.core.engine import Context
from decodetop.errors import RequestError
from decodetop.flows.bench_window import Window
from decodetop.server.reading import Server
from decodetop.server.redact import redact_text

INPUT_TOKENS = 128
MEASURED_TOKENS = 64
"""Of an answer while measuring: enough gaps for a median, and short where a token takes 100 ms."""
MEASURED_REQUESTS = 2
"""A stream."""
HELD_TOKENS = 1024
"""Of an answer while profiling: at 2 ms a token they last 2 s, and no new prompt comes in between."""
HELD_REQUESTS = 32
"""A stream; they are cut off when the profile is over."""
TIMEOUT_S = 600.0

OTHERS_S = 3.0
"""How long somebody else's load is watched."""
DECODING_S = 60.0
"""For all streams to have had their first token."""
SPECULATING = 1.05
"""Accepted tokens a step above which a chunk's gap is no token's."""


class Unprofiled(msgspec.Struct, frozen=True, kw_only=True):
    """Time per token and tokens per step without the profiler; None where nobody could say. `tokens` by the server."""

    itl_ms: float | None
    accept_length: float | None
    tokens: float | None = None


def plan_of(server: Server, streams: int, seed: int, *, held: bool) -> Plan:
    """`held`: the load for the profile, else the short one that is measured."""
    room = (server.context_length or 1 << 20) - INPUT_TOKENS - 16
    tokens = max(16, min(HELD_TOKENS if held else MEASURED_TOKENS, room))
    return Plan(
        preset="capture",
        endpoint=server.endpoint,
        model=server.served_name,
        streams=streams,
        requests=streams * (HELD_REQUESTS if held else MEASURED_REQUESTS),
        warmup_requests=0 if held else streams,
        input_tokens=INPUT_TOKENS,
        output_tokens=tokens,
        timeout_s=TIMEOUT_S,
        seed=seed,
    )


async def measured(launch: Launch, plan: Plan, key: str | None, context: Context) -> Unprofiled:
    """Run `plan` to its end. Raises RequestError when no request succeeds."""
    window = Window(context, plan.endpoint)
    try:
        result = await launch(plan, key, _Begin(window), asyncio.Event())
        await window.end(len(result.records))
    except LoadFailed as error:
        raise RequestError(_redacted(error.message, key), error.hint) from error
    finally:
        window.close()
    seen = figures(result)
    if not seen.requests.ok:
        raise RequestError(f"{plan.endpoint}: {_why(result, key)}", "see the server's log")
    span = window.environment().server
    accept = seen.metrics.accept_length or (span.accept_length if span is not None else None)
    return Unprofiled(itl_ms=itl_of(seen.metrics, accept), accept_length=accept)


def itl_of(metrics: Metrics, accept_length: float | None) -> float | None:
    """ms per token of a stream. The median, for a hiccup is no step; with speculation the mean, for a chunk's tokens
    share its gap and only over many of them do they say what a step takes.
    """
    speculating = accept_length is not None and accept_length > SPECULATING
    if metrics.itl_ms is not None:
        return metrics.itl_ms.mean if speculating else metrics.itl_ms.p50
    if metrics.tpot_ms is not None:
        return metrics.tpot_ms.mean if speculating else metrics.tpot_ms.p50
    return None


async def watched(context: Context, endpoint: str) -> Unprofiled:
    """Somebody else's load, by the server's own counters over a few seconds."""
    window = Window(context, endpoint)
    try:
        await window.begin()
        await context.clock.sleep_until(context.clock.now_ns() + int(OTHERS_S * SECOND_NS))
        await window.end(0)
    finally:
        window.close()
    span = window.environment().server
    if span is None:
        return Unprofiled(itl_ms=None, accept_length=None)
    return Unprofiled(itl_ms=span.itl_mean_ms, accept_length=span.accept_length, tokens=span.generated_tokens)


class Held:
    """A load that runs until this is left. `broken` is what ended it early."""

    def __init__(self, launch: Launch, plan: Plan, key: str | None, context: Context) -> None:
        self._launch = launch
        self._plan = plan
        self._key = key
        self._context = context
        self._stop = asyncio.Event()
        self._decoding = asyncio.Event()
        self._running: asyncio.Future[Result] | None = None

    async def __aenter__(self) -> Held:
        listener = _Decoding(self._plan.streams, self._decoding)
        self._running = asyncio.ensure_future(self._launch(self._plan, self._key, listener, self._stop))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        running = self._running
        assert running is not None
        if isinstance(error, asyncio.CancelledError):
            running.cancel()
        self._stop.set()
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # seen

    async def decoding(self) -> None:
        """Return when every stream has had its first token, or long enough. Raises RequestError when it breaks."""
        assert self._running is not None
        waiting = asyncio.ensure_future(self._decoding.wait())
        try:
            waits: set[asyncio.Future[Any]] = {waiting, self._running}
            work = asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            await within(self._context.clock, DECODING_S, work)
        except Late as late:
            late.task.cancel()
        finally:
            waiting.cancel()
        self.check()

    def check(self) -> None:
        """Raises RequestError when the load ended although nobody stopped it: the server refused or went away."""
        running = self._running
        if running is None or not running.done() or self._stop.is_set():
            return
        error = running.exception()
        if isinstance(error, LoadFailed):
            raise RequestError(_redacted(error.message, self._key), error.hint) from error
        if error is not None:
            raise error
        if all(record.fault is not None for record in running.result().records):
            raise RequestError(f"{self._plan.endpoint}: {_why(running.result(), self._key)}", "see the server's log")


class _Begin:
    """Opens the window when the measured part begins."""

    def __init__(self, window: Window) -> None:
        self._window = window

    def tick(self, ticks: Sequence[Tick]) -> None:
        """Nobody is shown them: the run takes seconds."""

    async def ready(self, ready: Ready) -> None:
        await self._window.begin()


class _Decoding:
    """Says when as many first tokens have come as there are streams."""

    def __init__(self, streams: int, decoding: asyncio.Event) -> None:
        self._streams = streams
        self._decoding = decoding

    def tick(self, ticks: Sequence[Tick]) -> None:
        if sum(tick.first_tokens for tick in ticks) >= self._streams:
            self._decoding.set()

    async def ready(self, ready: Ready) -> None:
        """The load may begin at once."""


def _why(result: Result, key: str | None) -> str:
    failed = [record for record in result.records if record.fault is not None]
    if not failed:
        return "no request of the load ended"
    return f"no request of the load succeeded: {failed[0].fault}: {_redacted(failed[0].message, key)}"


def _redacted(text: str, key: str | None) -> str:
    return redact_text(text, [key] if key else [])
