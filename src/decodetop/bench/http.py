"""One HTTP/1.1 connection that carries one streamed request after the other. Reads are stamped first, parsed after.

A decode step's tokens reach all streams in the same instant. Parsing inside the read callback would stamp the last of
128 streams some milliseconds late; so the callback only notes bytes and time, and one pass after all reads parses.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

import httptools

from decodetop.bench.events import error_message
from decodetop.bench.reading import Api, ErrorKind
from decodetop.bench.request import Address
from decodetop.bench.sse import SseDecoder
from decodetop.bench.stream import StreamLog
from decodetop.core.reach import root_words
from decodetop.errors import RequestError

Now = Callable[[], int]
"""CLOCK_MONOTONIC in ns, the same clock in every process of the box."""

BODY_MAX_BYTES = 1 << 20
"""Of an answer that is no stream: an error message, or a list of hundreds of models. What is longer is left."""

BARE_MAX_BYTES = 256 << 10
"""In a row that are no body: headers, trailers, words between chunks. No answer of a server has as many."""

LINGER_S = 1.0
"""How long to wait for the end of the HTTP message after the stream said it is done."""


class Exchange:
    """One request and what came back. Stamps in ns of `Now`; None = it never came to that."""

    def __init__(self, api: Api, done: asyncio.Future[None]) -> None:
        self.log = StreamLog(api)
        self.done = done
        self.write_ns: int | None = None
        self.first_byte_ns: int | None = None
        self.end_ns: int | None = None
        self.status: int | None = None
        self.content_type = ""
        self.encoding = ""
        """Of the content, though none was asked for."""
        self.location = ""
        self.body = b""
        self.framed = False
        self.lingers = False
        """The stream said all it will say; its HTTP message has yet to end."""
        self._sse = SseDecoder()
        self._broken = False
        self._events = 0

    @property
    def streaming(self) -> bool:
        """The answer is a stream as far as its head says."""
        plain = any(word in self.content_type for word in ("json", "html"))
        return self.status is not None and 200 <= self.status < 300 and not plain and not self.encoding

    @property
    def full(self) -> bool:
        """It is no stream, and all of it that is wanted is here."""
        return len(self.body) >= BODY_MAX_BYTES

    def take(self, body: bytes, t_ns: int) -> None:
        if self.log.done or self._broken:
            return
        if not self.streaming:
            self.body += body[: BODY_MAX_BYTES - len(self.body)]
            return
        try:
            events = self._sse.feed(body, t_ns)
        except RequestError as error:
            self._broken = True
            self.log.fail("protocol", error.message)
            return
        self._events += len(events)
        for event in events:
            self.log.hear(event)

    def close(self, t_ns: int, whole: bool, why: str) -> None:
        """The answer ended: `whole` = with a complete HTTP message. Says what was wrong with it, if anything."""
        if self.done.done():
            return
        self.end_ns = t_ns
        if self.log.fault is None:
            fault = self._judge(whole, why)
            if fault is not None:
                self.log.fail(*fault)
        self.done.set_result(None)

    def _judge(self, whole: bool, why: str) -> tuple[ErrorKind, str] | None:
        log = self.log
        if self.status is None:
            return "cut", why or "the connection ended without an answer"
        if not 200 <= self.status < 300:
            return "http", f"{self.status}: {self._words()}"
        if self.encoding:
            return "protocol", f"the stream is compressed ({self.encoding}): its tokens would come in blocks"
        if not self.streaming:
            kind = self.content_type.split(";")[0] or "nothing"
            words = error_message(self.body)
            return "protocol", f"the answer is {kind}, not an event stream: {words}"
        if log.done or (whole and (log.finish is not None or log.counts.output is not None)):
            return None if log.stamps_ns else ("protocol", "the stream ended without a token")
        if whole and self._events == 0:
            return "protocol", "the answer holds no event of a stream"
        after = f"after {len(log.stamps_ns)} chunks"
        return "cut", why or f"the stream ended {after} without a finish reason or [DONE]"

    def _words(self) -> str:
        """Why there is no stream, as far as the answer says."""
        if self.encoding and self.body:
            return f"a compressed body ({self.encoding})"
        if self.body:
            return error_message(self.body)
        return f"to {self.location}" if self.location else "no word why"


class Inbox:
    """Reads of all connections of one loop, in order of arrival, parsed in one pass after they are all noted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Now) -> None:
        self.now = now
        self._loop = loop
        self._reads: list[tuple[Connection, bytes, int]] = []

    def put(self, connection: Connection, read: bytes) -> None:
        if not self._reads:
            self._loop.call_soon(self.empty)
        self._reads.append((connection, read, self.now()))

    def empty(self) -> None:
        reads, self._reads = self._reads, []
        for connection, read, t_ns in reads:
            connection.parse(read, t_ns)


class Connection(asyncio.Protocol):
    """`open` it, then one `request` at a time. After an answer that closes it, `request` opens it again."""

    def __init__(self, where: Address, inbox: Inbox, tls: ssl.SSLContext | None) -> None:
        self._where = where
        self._inbox = inbox
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self.exchange: Exchange | None = None
        """The request under way."""
        self._parts: list[bytes] = []
        self._ended = False
        self._heading = False
        self._bare = 0
        self._keep = False
        self.used = False
        self.connect_ns: int | None = None
        """How long the last `open` took."""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def open(self) -> None:
        """Raises OSError (ssl errors among them)."""
        loop = asyncio.get_running_loop()
        began_ns = self._inbox.now()
        name = self._where.host if self._tls is not None else None
        await loop.create_connection(
            lambda: self, self._where.host, self._where.port, ssl=self._tls, server_hostname=name
        )
        self.connect_ns = self._inbox.now() - began_ns
        self.used = False

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def request(self, api: Api, payload: bytes, timeout_s: float) -> Exchange:
        """Write `payload` (head and body) and wait for the end of the answer. What goes wrong stands in the log.

        A connection the server had already closed is opened once more: nothing of the request was answered then.
        """
        exchange = await self._ask(api, payload, timeout_s)
        unanswered = exchange.first_byte_ns is None and not self.is_open
        if self.used and unanswered and exchange.log.fault is not None and exchange.log.fault[0] == "cut":
            exchange = await self._ask(api, payload, timeout_s)
        self.used = True
        return exchange

    async def _ask(self, api: Api, payload: bytes, timeout_s: float) -> Exchange:
        loop = asyncio.get_running_loop()
        exchange = Exchange(api, loop.create_future())
        if not self.is_open:
            try:
                await asyncio.wait_for(self.open(), timeout_s)
            except (OSError, TimeoutError) as error:
                exchange.close(self._inbox.now(), False, f"can't connect: {reason(error)}")
                return exchange
        assert self._transport is not None
        self.exchange, self._ended, self._parts, self._bare = exchange, False, [], 0
        self._parser = httptools.HttpResponseParser(self)
        alarm = loop.call_later(timeout_s, self._expire, timeout_s)
        try:
            exchange.write_ns = self._inbox.now()
            self._transport.write(payload)
            await exchange.done
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            alarm.cancel()
            self.exchange = None
        return exchange

    def _expire(self, timeout_s: float) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        self._inbox.empty()
        if exchange.done.done():
            return
        chunks = len(exchange.log.stamps_ns)
        exchange.log.fail("timeout", f"{timeout_s:g} s passed; {chunks or 'no'} chunks had come")
        exchange.close(self._inbox.now(), False, "")
        self.close()

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so

    def data_received(self, data: bytes) -> None:
        self._inbox.put(self, data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._inbox.empty()
        self._transport = None
        exchange = self.exchange
        if exchange is not None:
            # without a length and without chunks the end of the connection is the end of the message
            whole = exchange.status is not None and not exchange.framed and error is None
            exchange.close(self._inbox.now(), whole, f"the connection broke: {reason(error)}" if error else "")

    # what the inbox calls

    def parse(self, read: bytes, t_ns: int) -> None:
        exchange = self.exchange
        if exchange is None or self._parser is None:
            return
        if exchange.first_byte_ns is None:
            exchange.first_byte_ns = t_ns
        try:
            self._parser.feed_data(read)
        except httptools.HttpParserError as error:
            self._leave(exchange, t_ns, f"the answer is not HTTP/1.1: {error}")
            return
        self._bare = 0 if self._parts else self._bare + len(read)
        if self._parts:
            body, self._parts = b"".join(self._parts), []
            exchange.take(body, t_ns)
        if self._ended:
            self._finish(exchange, t_ns)
        elif exchange.full:
            self._leave(exchange, t_ns)
        elif self._bare > BARE_MAX_BYTES:
            self._leave(exchange, t_ns, f"its headers do not end within {BARE_MAX_BYTES >> 10} KiB")
        elif (exchange.log.done or exchange.log.fault is not None) and not exchange.lingers:
            exchange.lingers = True
            asyncio.get_running_loop().call_later(LINGER_S, self._give_up, exchange)

    def _leave(self, exchange: Exchange, t_ns: int, fault: str = "") -> None:
        """Read no more of it. Without `fault` what it has so far says what it is."""
        if fault:
            exchange.log.fail("protocol", fault)
        exchange.close(t_ns, False, "")
        self.close()

    def _finish(self, exchange: Exchange, t_ns: int) -> None:
        exchange.close(t_ns, True, "")
        if not self._keep:
            self.close()

    def _give_up(self, exchange: Exchange) -> None:
        """The stream said all it will say, but the HTTP message does not end."""
        if self.exchange is exchange:
            exchange.close(self._inbox.now(), False, "")
            self.close()

    # what httptools calls

    def on_message_begin(self) -> None:
        self._heading = True

    def on_header(self, name: bytes, value: bytes) -> None:
        exchange = self.exchange
        if exchange is None or not self._heading:
            return  # a trailer: the answer is what its head said
        field = name.lower()
        if field == b"content-type":
            exchange.content_type = value.decode("latin-1").lower()
        elif field == b"content-encoding":
            encoding = value.decode("latin-1").strip().lower()
            exchange.encoding = "" if encoding == "identity" else encoding
        elif field == b"location":
            exchange.location = value.decode("latin-1")
        elif field in (b"content-length", b"transfer-encoding"):
            exchange.framed = True

    def on_headers_complete(self) -> None:
        self._heading = False
        if self.exchange is not None and self._parser is not None:
            self.exchange.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        exchange = self.exchange
        if exchange is not None and exchange.status is not None and exchange.status >= 200:
            self._ended = True
            self._keep = self._parser is not None and self._parser.should_keep_alive()


def reason(error: BaseException | None) -> str:
    """An error's own words, in one line."""
    return "no answer in time" if isinstance(error, TimeoutError) or error is None else root_words(error)
