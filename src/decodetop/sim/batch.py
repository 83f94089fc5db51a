"""Continuous batching as SGLang does it: prefills first, then decode steps in which all running streams emit."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from decodetop.core.clock import Clock
from decodetop.sim import model
from decodetop.sim.alarm import Wake
from decodetop.sim.model import KvCast, Load
from decodetop.sim.serving import Emitter, Request

PREFILL_CHUNK = 8192
"""SGLang's chunked_prefill_size on this GPU: a longer prompt takes several passes."""


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """One forward pass; times are CLOCK_MONOTONIC ns by plan. `new_tokens` 0 = decode; `cast_ms` is at speed 1."""

    start_ns: int
    end_ns: int
    streams: int
    context_tokens: int
    new_tokens: int = 0
    graphed: bool = True
    gpu_ms: float = 0.0
    cast_ms: float = 0.0


class Watcher(Protocol):
    """Told of every pass; `profiling` = passes are slower now."""

    @property
    def profiling(self) -> bool: ...

    def passed(self, one: Pass) -> None: ...


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the server: KV tokens, running requests, the largest batch captured in a graph (0 = graphs off);
    how it casts its KV cache, how many times as fast as recorded it runs, and the seed of its jitter.
    """

    kv_tokens: int
    max_running: int
    graph_max_batch: int
    kv_cast: KvCast = "none"
    speed: float = 1.0
    seed: int = 0


class Batch:
    """Serves requests at the physics' pace. `running` and `waiting` may be read by anyone."""

    def __init__(
        self, clock: Clock, alarm: Wake, emitter: Emitter, pool: Pool, tp: int, watchers: tuple[Watcher, ...]
    ) -> None:
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.load = Load(t_ns=clock.now_ns(), tp=tp)
        self._clock = clock
        self._alarm = alarm
        self._emitter = emitter
        self._pool = pool
        self._watchers = watchers
        self._graphed = model.pace(tp, graphs=True)
        self._eager = model.pace(tp, graphs=False)
        self._prefilling: list[Request] = []
        self._busy = False
        self._steps = 0

    @property
    def kv_tokens(self) -> int:
        return sum(request.context for request in self.running)

    def submit(self, request: Request) -> None:
        self._emitter.accept(request)
        self.waiting.append(request)
        if not self._busy:
            self._next(self._clock.now_ns())

    def withdraw(self, request: Request) -> None:
        """The client is gone: the request leaves the batch."""
        for place in (self.running, self.waiting, self._prefilling):
            if request in place:
                place.remove(request)
        self._emitter.leave(request)

    def _next(self, start_ns: int) -> None:
        """Plan the pass that begins at `start_ns`."""
        new_tokens = self._admit()
        self._busy = True
        if self._prefilling:
            self._plan_prefill(start_ns, new_tokens)
        elif self.running:
            self._plan_decode(start_ns)
        else:
            self._busy = False

    def _admit(self) -> int:
        """Take waiting requests into the next prefill; the number of tokens it computes."""
        budget = PREFILL_CHUNK
        held = self.kv_tokens
        while self.waiting and budget > 0:
            request = self.waiting[0]
            held += len(request.ask.prompt) + request.ask.max_tokens
            if len(self.running) + len(self._prefilling) >= self._pool.max_running or held > self._pool.kv_tokens:
                break
            self.waiting.popleft()
            self._prefilling.append(request)
            request.admitted_ns = self._clock.now_ns()
            taken = min(request.prefill_left, budget)
            request.prefill_left -= taken
            budget -= taken
        return PREFILL_CHUNK - budget

    def _plan_prefill(self, start_ns: int, new_tokens: int) -> None:
        pace = self._graphed if self._pool.graph_max_batch else self._eager
        duration_ns = self._scaled_ns(pace.first_token_ms(new_tokens))
        streams = len(self._prefilling)
        one = Pass(
            start_ns=start_ns,
            end_ns=start_ns + duration_ns,
            streams=streams,
            context_tokens=sum(request.context for request in self._prefilling),
            new_tokens=new_tokens,
            graphed=self._pool.graph_max_batch > 0,
            gpu_ms=duration_ns / 1e6,
        )
        self._alarm.set(one.end_ns, lambda: self._prefilled(one))

    def _plan_decode(self, start_ns: int) -> None:
        streams, context = len(self.running), self.kv_tokens
        graphed = streams <= self._pool.graph_max_batch
        pace = self._graphed if graphed else self._eager
        profiling = any(watcher.profiling for watcher in self._watchers)
        self._steps += 1
        jitter = model.jitter(self._pool.seed, self._steps)
        cast_ms = model.cast_ms(self._pool.kv_cast, self.load.tp, self._pool.kv_tokens, context)
        step_ms = pace.decode_ms(streams, context, cast_ms=cast_ms, profiling=profiling)
        duration_ns = self._scaled_ns(step_ms * jitter)
        one = Pass(
            start_ns=start_ns,
            end_ns=start_ns + duration_ns,
            streams=streams,
            context_tokens=context,
            graphed=graphed,
            gpu_ms=min((pace.gpu_ms(streams, context) + cast_ms) / self._pool.speed, duration_ns / 1e6),
            cast_ms=cast_ms,
        )
        self._alarm.set(one.end_ns, lambda: self._decoded(one))

    def _scaled_ns(self, ms: float) -> int:
        return int(ms * 1e6 / self._pool.speed)

    def _prefilled(self, one: Pass) -> None:
        unfinished = [request for request in self._prefilling if request.prefill_left > 0]
        ready = [request for request in self._prefilling if request.prefill_left <= 0]
        self._prefilling.clear()
        self.waiting.extendleft(reversed(unfinished))
        self.running.extend(ready)
        self._account(one)
        for request in ready:
            self._emitter.emit(request, 1, self._clock.now_ns)
        self._finish(one)

    def _decoded(self, one: Pass) -> None:
        self._account(one)
        for request in tuple(self.running):
            self._emitter.emit(request, 1, self._clock.now_ns)
        self._finish(one)

    def _finish(self, one: Pass) -> None:
        self.running = [request for request in self.running if request.end is None]
        for watcher in self._watchers:
            watcher.passed(one)
        now_ns = self._clock.now_ns()
        late = now_ns - one.end_ns > one.end_ns - one.start_ns
        self._next(now_ns if late else one.end_ns)  # a GPU does not hurry to make up for lost time

    def _account(self, one: Pass) -> None:
        load, tp = self.load, self.load.tp
        span_ns = one.end_ns - one.start_ns
        cast_values = one.cast_ms / model.CAST_MS_PER_VALUE
        read = (model.WEIGHT_BYTES + one.context_tokens * model.KV_BYTES_PER_TOKEN) / tp
        tokens = one.new_tokens or -(-one.streams // model.TILE_TOKENS) * model.TILE_TOKENS
        self.load = Load(
            t_ns=self._clock.now_ns(),
            tp=tp,
            decode_busy_ns=load.decode_busy_ns + (0 if one.new_tokens else span_ns),
            kernel_busy_ns=load.kernel_busy_ns + int(one.gpu_ms * 1e6),
            read_bytes=load.read_bytes + read + cast_values * model.CAST_BYTES_PER_VALUE,
            flop=load.flop + tokens * model.FLOP_PER_TOKEN / tp,
            nvlink_bytes=load.nvlink_bytes
            + ((one.new_tokens or one.streams) * model.NVLINK_BYTES_PER_TOKEN) * (tp > 1),
        )
