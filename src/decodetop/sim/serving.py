"""One request on its way through the simulated server, and what every way of serving shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from decodetop.sim.asks import Ask
from decodetop.sim.chunks import HEADERS, Answer

End = Literal["finished", "error", "cut", "stalled", "left"]


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong, in tokens of each request; `slow` multiplies every time."""

    error_after: int | None = None
    cut_after: int | None = None
    stall_after: int | None = None
    http500: bool = False
    slow: float = 1.0


class Outlet(Protocol):
    """Where a request's answer goes. `send` returns CLOCK_MONOTONIC ns just before the write."""

    def send(self, data: bytes) -> int: ...

    def finish(self, status: int, body: bytes | None) -> None:
        """The answer is complete. `body` is given when nothing was streamed."""

    def cut(self) -> None:
        """Close the connection without an end."""


class Request:
    """A request being served. `sent_ns[i]` is when chunk i, of `chunk_tokens[i]` tokens, was written."""

    __slots__ = (
        "admitted_ns",
        "answer",
        "ask",
        "cached",
        "chunk_tokens",
        "emitted",
        "end",
        "internal",
        "outlet",
        "prefill_left",
        "received_ns",
        "sent_ns",
    )

    def __init__(self, ask: Ask, answer: Answer, outlet: Outlet, received_ns: int, *, internal: bool = False) -> None:
        self.ask = ask
        self.answer = answer
        self.outlet = outlet
        self.received_ns = received_ns
        self.admitted_ns = received_ns
        self.internal = internal
        self.cached = answer.cached_tokens
        self.prefill_left = max(1, len(ask.prompt) - answer.cached_tokens)
        self.emitted = 0
        self.sent_ns: list[int] = []
        self.chunk_tokens: list[int] = []
        self.end: End | None = None

    @property
    def context(self) -> int:
        """Tokens whose keys and values it holds."""
        return len(self.ask.prompt) + self.emitted


class Observer(Protocol):
    """Counts what happens: the metrics, the truth log."""

    def chunk(self, request: Request, tokens: int) -> None: ...

    def ended(self, request: Request) -> None: ...


class Emitter:
    """Writes a request's chunks, with the faults asked for, and says when it is over."""

    def __init__(self, faults: Faults, observers: tuple[Observer, ...]) -> None:
        self._faults = faults
        self._observers = observers

    def accept(self, request: Request) -> None:
        """SGLang's native API sends its headers at once, the others with the first token."""
        if request.ask.stream and request.ask.api == "generate":
            request.outlet.send(HEADERS)

    def emit(self, request: Request, tokens: int, now: Callable[[], int]) -> None:
        """The next `tokens` tokens of `request` are there."""
        faults = self._faults
        if faults.stall_after is not None and request.emitted >= faults.stall_after:
            request.end = "stalled"
            self._over(request)
            return
        first = request.emitted
        last = first + tokens >= request.ask.max_tokens
        tokens = min(tokens, request.ask.max_tokens - first)
        request.emitted += tokens
        broken = self._broken(request)
        request.sent_ns.append(self._write(request, first, tokens, last and not broken, now))
        request.chunk_tokens.append(tokens)
        for observer in self._observers:
            observer.chunk(request, tokens)
        if broken:
            self._break(request, broken)
        elif last:
            request.end = "finished"
            whole = None if request.ask.stream else request.answer.whole(request.emitted)
            request.outlet.finish(200, whole)
        if request.end:
            self._over(request)

    def leave(self, request: Request) -> None:
        """The client went away."""
        if request.end is None:
            request.end = "left"
            self._over(request)

    def _write(self, request: Request, first: int, tokens: int, last: bool, now: Callable[[], int]) -> int:
        if not request.ask.stream:
            return now()
        if last and first:
            spent_s, decode_s = (now() - request.received_ns) / 1e9, (now() - request.sent_ns[0]) / 1e9
            request.answer.timings = {"e2e_latency": spent_s, "decode_throughput": first / max(decode_s, 1e-9)}
        data = request.answer.tokens(first, tokens, last=last)
        if not first:
            data = request.answer.opening() + data
        if last:
            data += request.answer.closing(request.emitted)
        return request.outlet.send(data)

    def _broken(self, request: Request) -> End | None:
        if self._faults.error_after is not None and request.emitted >= self._faults.error_after:
            return "error"
        if self._faults.cut_after is not None and request.emitted >= self._faults.cut_after:
            return "cut"
        return None

    def _break(self, request: Request, end: End) -> None:
        request.end = end
        if end == "cut":
            request.outlet.cut()
        elif request.ask.stream:
            request.outlet.send(request.answer.failure("simulated fault: error_after"))
            request.outlet.finish(200, None)
        else:
            request.outlet.finish(500, b'{"object":"error","message":"simulated fault: error_after","code":500}')

    def _over(self, request: Request) -> None:
        for observer in self._observers:
            observer.ended(request)
