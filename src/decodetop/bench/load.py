"""The load: N streams that each send their next request when the last one ended, and what came back of each."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Sequence

import msgspec

from decodetop.bench.http import Connection, Exchange, Inbox
from decodetop.bench.reading import Plan
from decodetop.bench.request import PATHS, Address, Dialect, address, body, head
from decodetop.bench.wire import Record
from decodetop.bench.workload import Workload
from decodetop.core.outside import plain
from decodetop.core.reach import trust
from decodetop.errors import UsageError

HOPELESS_S = 300.0

BELIEVED_TIMES = 100
"""An answer may be so many times as long as asked, or as its chunks are many: more tokens than that never came."""

PREPARED_MAX_BYTES = 256 << 20
PREPARED_MAX = 20_000
"""Requests; a plan that a time ends may have many more than will ever be sent."""

KEY_MIN = 4
"""A shorter key (`x`, for servers that want any) is no secret, and masking it would eat ordinary words."""

CONNECTS_AT_ONCE = 32
"""Below any listen backlog, so that opening many streams is refused by none."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server as the load needs it. `key` lives in this process only."""

    where: Address
    tls: ssl.SSLContext | None
    key: str | None


def target(endpoint: str, key: str | None) -> Target:
    """Raises UsageError if `endpoint` is no URL, or the key can't stand in a header."""
    where = address(endpoint)
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError("the server's key holds a space, a line break or a letter outside ASCII", "check its source")
    return Target(where=where, tls=trust() if where.tls else None, key=key)


class Load:
    """A plan's requests, measured or warm-up, on connections that stay open between the two."""

    def __init__(
        self, plan: Plan, aim: Target, inbox: Inbox, dialect: Dialect, model: str | None, work: Workload
    ) -> None:
        self.plan = plan
        self.records: list[Record] = []
        self.keep: Callable[[Record], None] | None = None
        """Is given every record as it is made."""
        self.dialect = dialect
        self._aim = aim
        self._inbox = inbox
        self._model = model
        self._work = work
        self._connections: list[Connection] = []
        self._idle: list[Connection] = []
        self._prepared: dict[int, bytes] = {}

    async def open(self) -> None:
        """Connect every stream before any timing. Raises OSError."""
        gate = asyncio.Semaphore(CONNECTS_AT_ONCE)

        async def one() -> Connection:
            async with gate:
                connection = Connection(self._aim.where, self._inbox, self._aim.tls)
                await asyncio.wait_for(connection.open(), self.plan.timeout_s)
                return connection

        self._connections = list(await asyncio.gather(*(one() for _ in range(self.plan.streams))))

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def run(self, indices: Iterator[int], output_tokens: int | None = None) -> None:
        """Closed loop until `indices` is empty; the streams share it. Cancelled = what is under way is dropped.

        `output_tokens` is for warm-up; measured requests have the lengths of their plan.
        """
        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(self._stream(connection, indices, output_tokens))

    async def run_at(self, indices: Iterator[int], due_ns: Sequence[int]) -> None:
        """Open loop: request i is due `due_ns[i]` from now, whatever became of the others; connections as needed."""
        began_ns = self._inbox.now()
        self._idle = list(self._connections)
        async with asyncio.TaskGroup() as group:
            for index in indices:
                if index >= len(due_ns):
                    return  # not due before the plan's time is over
                at_ns = began_ns + due_ns[index]
                while (left_ns := at_ns - self._inbox.now()) > 0:
                    await asyncio.sleep(left_ns / 1e9)
                group.create_task(self._one(index, at_ns))

    async def _one(self, index: int, due_ns: int) -> None:
        if self._idle:
            connection = self._idle.pop()
        else:
            connection = Connection(self._aim.where, self._inbox, self._aim.tls)
            self._connections.append(connection)
        await self._send(connection, index, due_ns, None)
        self._idle.append(connection)

    @property
    def under_way(self) -> list[Exchange]:
        return [one.exchange for one in self._connections if one.exchange is not None]

    async def _stream(self, connection: Connection, indices: Iterator[int], output_tokens: int | None) -> None:
        due_ns = self._inbox.now()
        for index in indices:
            record = await self._send(connection, index, due_ns, output_tokens)
            due_ns = record.end_ns or self._inbox.now()
            if self._hopeless(due_ns):
                return

    async def _send(self, connection: Connection, index: int, due_ns: int, output_tokens: int | None) -> Record:
        asked = self._work.output_tokens(index) if output_tokens is None else output_tokens
        payload = self._prepared.pop(index, None) or self.payload(index, asked)
        exchange = await connection.request(self.plan.api, payload, self.plan.timeout_s)
        record = record_of(exchange, connection, index, due_ns, asked, self.plan)
        record = msgspec.structs.replace(record, message=plain(masked(record.message, self._aim.key)))
        self.records.append(record)
        if self.keep is not None:
            self.keep(record)
        return record

    def _hopeless(self, now_ns: int) -> bool:
        """Nothing but time-outs for minutes: the rest would be no better."""
        waited_ns = now_ns - self.records[0].due_ns
        return waited_ns > HOPELESS_S * 1e9 and all(record.fault == "timeout" for record in self.records)

    async def prepare(self, indices: range) -> None:
        """Build requests ahead, as many as fit, so that no stream waits for another's to be built."""
        size = 0
        for index in indices[:PREPARED_MAX]:
            self._prepared[index] = payload = self.payload(index, self._work.output_tokens(index))
            size += len(payload)
            if size > PREPARED_MAX_BYTES:
                return
            await asyncio.sleep(0)  # a stop, or the parent's end, is heard in between

    def payload(self, index: int, output_tokens: int) -> bytes:
        """Head and body of request `index`."""
        prompt, dialect = self._work.prompt(index, self.dialect)
        text = body(self.plan, self._model, dialect, prompt, output_tokens)
        return head(self._aim.where, "POST", PATHS[self.plan.api], len(text), self._aim.key) + text


def masked(text: str, key: str | None) -> str:
    """`text` from a server without the key it was sent."""
    return text.replace(key, "***") if key is not None and len(key) >= KEY_MIN else text


def record_of(exchange: Exchange, connection: Connection, index: int, due_ns: int, asked: int, plan: Plan) -> Record:
    """What stays of a finished exchange. A well-ended answer of fewer tokens than asked is a fault of its own."""
    log, counts = exchange.log, exchange.log.counts
    fault, message = log.fault or (None, "")
    output, doubt = counts.output, log.doubt
    if output is not None and output > BELIEVED_TIMES * max(asked, len(log.stamps_ns)):
        doubt = (
            doubt or f"the server counted {output:,} output tokens in {len(log.stamps_ns)} chunks, {asked:,} asked for"
        )
        output = None
    if fault is None and plan.ignore_eos and output is not None and output < asked:
        fault, message = "short_output", f"{output} of {asked} tokens (finish reason: {log.finish or 'none'})"
    start_ns = exchange.write_ns
    return Record(
        index=index,
        id=log.id,
        due_ns=due_ns,
        write_ns=start_ns,
        end_ns=exchange.end_ns,
        connect_ns=connection.connect_ns,
        chunks_ns=[] if start_ns is None else [stamp - start_ns for stamp in log.stamps_ns],
        chunk_tokens=list(log.tokens) if log.counted and not doubt else None,
        asked_tokens=asked,
        output_tokens=output,
        prompt_tokens=counts.prompt,
        cached_tokens=counts.cached,
        steps=counts.steps,
        finish=log.finish,
        fault=fault,
        message=message,
        doubt=doubt,
    )
