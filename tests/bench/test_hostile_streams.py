"""Streams made to hold a request up, to eat memory or to count backwards."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from decodetop.bench.gates import gates
from decodetop.bench.http import BARE_MAX_BYTES, BODY_MAX_BYTES, Connection, Exchange, Inbox
from decodetop.bench.load import target
from decodetop.bench.measure import figures
from decodetop.bench.reading import Environment
from decodetop.bench.request import head
from decodetop.bench.sse import EVENT_MAX_BYTES, Event, SseDecoder
from decodetop.bench.stream import StreamLog
from decodetop.errors import RequestError
from support.loads import load, plan_for
from support.token_server import HEAD, MODELS, TAIL, Seen, Step, TokenServer, chunk, completions, event, reply

MEMORY_MAX = 4 * EVENT_MAX_BYTES


@asynccontextmanager
async def flooding(first: bytes, over: bytes) -> AsyncIterator[str]:
    """A server that sends `first` and then `over` without end, to whatever is asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            writer.write(first)
            while True:
                writer.write(over)
                await writer.drain()
                await asyncio.sleep(0)
        except ConnectionError:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def asked(url: str, timeout_s: float) -> Exchange:
    aim = target(url, None)
    connection = Connection(aim.where, Inbox(asyncio.get_running_loop(), time.perf_counter_ns), None)
    try:
        return await connection.request("completions", head(aim.where, "GET", "/", 0, None), timeout_s)
    finally:
        connection.close()


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
PING = b": ping\n\n" * 4096
FLOODS: dict[str, tuple[bytes, bytes]] = {
    "comments": (STREAM, PING),
    "comments cut anywhere": (STREAM, b": ping\r\n: p" * 3000),
    "one comment without end": (STREAM + b":", b"x" * 60_000),
    "empty lines": (STREAM, b"\n" * 60_000),
    "events of another kind": (STREAM, b"event: heartbeat\ndata: {}\n\n" * 2000),
    "empty events": (STREAM, b"data: \n\n" * 4000),
    "usage alone": (STREAM, b'data: {"choices":[],"usage":null}\n\n' * 1000),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_what_carries_no_token_does_not_put_the_time_out_off(name: str) -> None:
    tracemalloc.start()
    try:
        async with flooding(*FLOODS[name]) as url:
            exchange = await asyncio.wait_for(asked(url, 0.5), 60)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert exchange.log.fault == ("timeout", "0.5 s passed; no chunks had come")
    assert peak < MEMORY_MAX


ENDLESS: dict[str, tuple[bytes, bytes, str]] = {
    "a data line": (STREAM + b"data: ", b"x" * 60_000, "is longer than 8 MiB"),
    "an event of lines": (STREAM, b"data: xxxxxxxx\n" * 4000, "is longer than 8 MiB"),
    "an event of empty lines": (STREAM, b"data:\n" * 10_000, "is longer than 8 MiB"),
    "a header": (b"HTTP/1.1 200 OK\r\nx-long: ", b"y" * 60_000, "headers do not end"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"x-many: y\r\n" * 5000, "headers do not end"),
    "answers to come": (b"", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 1000, "headers do not end"),
    "words between chunks": (HEAD + b"5;z=", b"z" * 60_000, "headers do not end"),
    "trailers": (HEAD + b"0\r\n", b"x-trailing: y\r\n" * 5000, "headers do not end"),
    "a page": (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n", b"<p>" * 20_000, "not an event stream"),
    "a refusal": (b"HTTP/1.1 500 No\r\ncontent-type: text/plain\r\n\r\n", b"no " * 20_000, "500: no no"),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_what_has_no_end_is_left_long_before_its_time_out(name: str) -> None:
    first, over, words = ENDLESS[name]
    tracemalloc.start()
    try:
        async with flooding(first, over) as url:
            exchange = await asyncio.wait_for(asked(url, 600.0), 120)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert exchange.log.fault is not None and words in exchange.log.fault[1]
    assert exchange.log.fault[0] != "timeout" and peak < MEMORY_MAX
    assert BARE_MAX_BYTES < EVENT_MAX_BYTES and len(exchange.body) <= BODY_MAX_BYTES


def test_long_lived_comments_are_no_long_event() -> None:
    decoder = SseDecoder()
    for _ in range(2 * EVENT_MAX_BYTES // 100_000):
        assert decoder.feed(b": ping\n" * 14_000 + b": pi", 1) == []
        decoder.feed(b"ng\n", 1)
    assert [one.data for one in decoder.feed(b"\ndata: x\n\n", 2)] == [b"x"]


def test_an_event_in_very_many_reads_is_put_together_in_place() -> None:
    """Copied anew for each read it would take an hour."""
    decoder = SseDecoder()
    decoder.feed(b"data: ", 1)
    for _ in range(200_000):
        decoder.feed(b"0123456789", 1)
    (whole,) = decoder.feed(b"\n\n", 9)
    assert len(whole.data) == 2_000_000 and whole.t_ns == 9
    with pytest.raises(RequestError, match="8 MiB"):
        decoder.feed(b"data: " + b"x" * EVENT_MAX_BYTES, 1)


async def test_a_trailer_does_not_change_what_the_answer_is() -> None:
    body = [chunk(event({"choices": [{"text": "a", "finish_reason": "length"}]}))]
    end = b"0\r\ncontent-type: application/json\r\ncontent-encoding: br\r\n\r\n"
    async with TokenServer(lambda seen: [HEAD, *body, end]) as server:
        exchange = await asked(server.url, 30.0)
    assert exchange.log.fault is None and len(exchange.log.stamps_ns) == 1


async def test_the_first_of_hundreds_of_models_is_found() -> None:
    many = [{"id": f"lora-{number}", "object": "model", "permission": ["x" * 400]} for number in range(1000)]

    def script(seen: Seen) -> list[Step]:
        if seen.method == "GET":
            return [reply("200 OK", json.dumps({"data": many}).encode())]
        return list(completions(seen))

    _, terms, _ = await load(script)
    assert terms.model == "lora-0"


# counts


def text(count: int | None, finish: str | None = None) -> dict[str, Any]:
    one: dict[str, Any] = {"choices": [{"index": 0, "text": " w", "finish_reason": finish}]}
    return one if count is None else {**one, "usage": {"prompt_tokens": 4, "completion_tokens": count}}


@pytest.mark.parametrize(
    "counts",
    [[1, 2, 5, 3, 4], [1, 2, 3, 4, 2], [8, 7, 6, 5, 4]],
)
def test_a_count_that_goes_down_is_none_and_is_said(counts: list[int]) -> None:
    log = StreamLog("completions")
    for number, count in enumerate(counts, 1):
        finish = "length" if number == len(counts) else None
        log.hear(Event(json.dumps(text(count, finish)).encode(), number))
    assert log.counts.output is None and log.counts.prompt == 4
    assert "count of output tokens went down, from" in log.doubt


async def test_a_run_against_counts_that_go_down_says_so_and_gives_no_figure_per_token() -> None:
    def script(seen: Seen) -> list[Step]:
        if seen.method == "GET":
            return [MODELS]
        falling = [*range(1, seen.asked), 2]
        events = [event(text(count, "length" if count == 2 and at else None)) for at, count in enumerate(falling)]
        return [HEAD, *(chunk(one) for one in events), TAIL]

    result, _, _ = await load(script)
    seen = figures(result)
    assert seen.metrics.tpot_ms is None and seen.metrics.itl_ms is None and seen.tokens.output is None
    found = {gate.name: gate for gate in gates(plan_for("http://x"), result, seen, Environment(decodetop="0"))}
    assert found["count_impossible"].severity == "suspect"
    assert "went down, from 7 to 2" in found["count_impossible"].detail
