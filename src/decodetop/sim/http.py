"""HTTP/1.1 on a raw protocol: one request at a time per connection, answers written at once and stamped."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
from collections import deque
from typing import Protocol, cast

import httptools
import msgspec

from decodetop.sim.alarm import MonotonicClock

REASONS = {200: b"OK", 400: b"Bad Request", 401: b"Unauthorized", 404: b"Not Found", 500: b"Internal Server Error"}
JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A whole request; `received_ns` is when its last byte was read."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    body: bytes
    received_ns: int
    keep_alive: bool


class Application(Protocol):
    def handle(self, connection: Connection, incoming: Incoming) -> None: ...

    def gone(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """One client. It is also the outlet of the request it carries."""

    def __init__(self, application: Application, clock: MonotonicClock) -> None:
        self._application = application
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Incoming] = deque()
        self._current: Incoming | None = None
        self._read_ns = 0
        self._new()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        sock: socket.socket = stream.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fd = sock.fileno()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._application.gone(self)

    def data_received(self, data: bytes) -> None:
        self._read_ns = self._clock.now_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.respond(400, b'{"detail":"not HTTP"}')
            self.cut()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        incoming = Incoming(
            method=self._parser.get_method().decode(),
            path=self._url.split(b"?")[0].decode("latin-1"),
            headers=self._headers,
            body=bytes(self._body),
            received_ns=self._read_ns,
            keep_alive=self._parser.should_keep_alive(),
        )
        self._new()
        self._queue.append(incoming)
        self._next()

    def send(self, data: bytes) -> int:
        """Write at once where the kernel takes it; returns CLOCK_MONOTONIC ns just before."""
        now_ns = self._clock.now_ns()
        transport = self._transport
        if transport is None or transport.is_closing():
            return now_ns
        if not transport.get_write_buffer_size():
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                pass  # the kernel's buffer is full: the transport waits for it
            except OSError:
                transport.abort()
                return now_ns
        if data:
            transport.write(data)
        return now_ns

    def respond(self, status: int, body: bytes, kind: bytes = JSON) -> None:
        """A whole answer, gzipped when the client takes it and it is large."""
        extra = b""
        accepts = self._current.headers.get(b"accept-encoding", b"") if self._current else b""
        if len(body) > 10_000 and b"gzip" in accepts:
            body, extra = gzip.compress(body, 1), b"content-encoding: gzip\r\n"
        head = b"HTTP/1.1 %d %s\r\nserver: uvicorn\r\ncontent-length: %d\r\n" % (status, REASONS[status], len(body))
        head += b"content-type: " + kind + b"\r\n" + extra
        self.send(head + b"vary: Origin\r\n\r\n" + body)
        self.release()

    def finish(self, status: int, body: bytes | None) -> None:
        if body is not None:
            self.respond(status, body)
        else:
            self.release()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def release(self) -> None:
        """The current request is answered: take the next, or close when that was the client's last."""
        current, self._current = self._current, None
        if current is not None and not current.keep_alive and self._transport is not None:
            self._transport.close()
        else:
            self._next()

    def _next(self) -> None:
        if self._current is None and self._queue:
            self._current = self._queue.popleft()
            self._application.handle(self, self._current)

    def _new(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()
