"""One connection against every framing and fault: what the record of the request says."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from decodetop.bench.http import Connection, Exchange, Inbox
from decodetop.bench.load import Load, target
from decodetop.bench.measure import figures
from decodetop.bench.reading import Api, Plan
from decodetop.bench.request import Address, Dialect
from decodetop.bench.wire import Record, Result
from decodetop.bench.workload import Workload
from support.fault_matrix import BODY, CLOSE_HEAD, ROWS, TOKENS, WHOLE
from support.token_server import Break, Seen, Step, TokenServer, completions

CAPTURES = Path(__file__).parents[1] / "captures"


async def records_of(script: Callable[[Seen], Iterable[Step]], requests: int = 1, **changes: Any) -> list[Record]:
    async with TokenServer(script) as server:
        settings = {"requests": requests, "output_tokens": TOKENS, "input_tokens": 4, "timeout_s": 20.0, "model": "m"}
        plan = Plan(preset="t", endpoint=server.url, **{**settings, **changes})
        inbox = Inbox(asyncio.get_running_loop(), time.perf_counter_ns)
        load = Load(plan, target(server.url, None), inbox, Dialect(), "m", Workload(plan, Dialect()))
        await load.open()
        await load.run(iter(range(requests)))
        load.close()
        return load.records


@pytest.mark.parametrize("name", ROWS)
async def test_fault_matrix(name: str) -> None:
    row = ROWS[name]
    timeout_s = 0.4 if row.fault == "timeout" else 20.0
    (record,) = await records_of(lambda _: row.steps, timeout_s=timeout_s, api=row.api)
    assert (record.fault, record.output_tokens) == (row.fault, row.counted)
    assert row.words in record.message
    if row.fault in (None, "short_output"):
        assert len(record.chunks_ns) == (row.chunks or row.counted or TOKENS)
        assert record.chunks_ns == sorted(record.chunks_ns)


async def test_a_short_answer_is_no_fault_when_it_was_allowed() -> None:
    steps = ROWS["ended early by the model"].steps
    (record,) = await records_of(lambda _: steps, ignore_eos=False)
    assert (record.fault, record.output_tokens, record.finish) == (None, 4, "stop")


def recounted(seen: Seen, count: int) -> list[Step]:
    """As `completions`, its last word another count."""
    end = f'"completion_tokens":{seen.asked}'.encode()
    steps = completions(seen, continuous=False)
    last = steps[-2]
    assert isinstance(last, bytes)
    payload = last.partition(b"\r\n")[2].removesuffix(b"\r\n").replace(b" ", b"").replace(b"data:", b"data: ")
    payload = payload.replace(end, f'"completion_tokens":{count}'.encode())
    assert str(count).encode() in payload
    return [*steps[:-2], b"%x\r\n%b\r\n" % (len(payload), payload), steps[-1]]


@pytest.mark.parametrize("count", [-5, 10**30, 10**9 + 1, 1000 * TOKENS])
async def test_no_figure_is_made_of_a_count_that_cant_be(count: int) -> None:
    found = await records_of(lambda seen: recounted(seen, count), requests=2)
    assert [(record.fault, record.output_tokens, record.chunk_tokens) for record in found] == [(None, None, None)] * 2
    seen = figures(Result(records=found, source="usage", partial=False, unfinished=0, cpu_percent=1, loop_lag_ms_p99=0))
    assert (seen.tokens.output, seen.metrics.output_tok_s, seen.metrics.tpot_ms) == (None, None, None)
    assert seen.doubted == 2 and "output tokens" in seen.doubt


async def test_a_server_that_gives_more_than_asked_is_counted_and_said() -> None:
    (record,) = await records_of(lambda seen: recounted(seen, 3 * TOKENS))
    assert (record.output_tokens, record.asked_tokens) == (3 * TOKENS, TOKENS)


async def test_one_connection_carries_all_requests_and_is_opened_again_when_the_server_closed_it() -> None:
    async def connections(script: Callable[[Seen], Iterable[Step]]) -> int:
        used: list[int] = []

        def noted(seen: Seen) -> Iterable[Step]:
            used.append(seen.connection)
            return script(seen)

        records = await records_of(noted, requests=3)
        assert [record.fault for record in records] == [None] * 3
        return len(set(used))

    assert await connections(lambda _: WHOLE) == 1
    assert await connections(lambda _: [CLOSE_HEAD, BODY, Break()]) == 3
    assert await connections(lambda _: [*WHOLE, Break()]) == 3  # closed without having said so


async def test_stamps_follow_the_servers_own() -> None:
    seen: list[Seen] = []

    def script(one: Seen) -> list[Step]:
        seen.append(one)
        return completions(one, ttft_s=0.1, itl_s=0.03)

    (record,) = await records_of(script)
    assert record.write_ns is not None and record.chunk_tokens == [1] * TOKENS
    sent = [t_ns for t_ns, payload in seen[0].sent if b'"text"' in payload]
    arrived = [record.write_ns + chunk_ns for chunk_ns in record.chunks_ns]
    assert all(there <= here for there, here in zip(sent, arrived, strict=True))
    truth, ours = sent[-1] - sent[0], arrived[-1] - arrived[0]
    assert abs(ours - truth) < 0.5 * truth  # a loaded test machine; benchmarks/client_accuracy.py measures


async def test_what_is_asked() -> None:
    seen: list[Seen] = []

    def script(one: Seen) -> list[Step]:
        seen.append(one)
        return WHOLE

    await records_of(script, requests=2)
    first, second = seen
    assert first.headers["accept-encoding"] == "identity"
    assert (first.method, first.path, first.body["stream"]) == ("POST", "/v1/completions", True)
    assert len(first.body["prompt"]) == 4 and first.body["prompt"] != second.body["prompt"]
    assert first.body["ignore_eos"] is True and "min_tokens" not in first.body


class Recorded(asyncio.Transport):
    """Swallows the request; the test plays the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False

    def write(self, data: Any) -> None:
        return None

    def abort(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing


async def played(path: Path) -> tuple[dict[str, Any], Exchange]:
    """A recording of a real server through a connection, with the recorded times as the clock."""
    recording = json.loads(gzip.decompress(path.read_bytes()))
    route = recording["path"]
    api: Api = "generate" if route == "/generate" else "chat" if "chat" in route else "completions"
    now = 0
    connection = Connection(Address(host="x", port=1, tls=False), Inbox(asyncio.get_running_loop(), lambda: now), None)
    connection.connection_made(Recorded())
    asking = asyncio.ensure_future(connection.request(api, b"", 60.0))
    await asyncio.sleep(0)
    for seconds, piece in recording["events"]:
        now = round(seconds * 1e9)
        connection.data_received(piece.encode())
        await asyncio.sleep(0)
    return recording, await asking


SSE = sorted(CAPTURES.glob("*/sse_*.json.gz"))


@pytest.mark.parametrize("path", SSE, ids=lambda path: f"{path.parent.name}/{path.name[4:-8]}")
async def test_recordings_of_real_servers(path: Path) -> None:
    recording, exchange = await played(path)
    log = exchange.log
    if "sse_err" in path.name and exchange.status != 200:
        assert log.fault is not None and log.fault[0] == "http" and log.fault[1].startswith(f"{exchange.status}: ")
        assert len(log.fault[1]) > 20
        return
    asked = recording["request"].get("max_tokens") or recording["request"]["sampling_params"]["max_new_tokens"]
    assert log.fault is None
    assert len(log.stamps_ns) == asked
    first = next(seconds for seconds, piece in recording["events"] if '"text"' in piece or '" w' in piece)
    assert log.stamps_ns[0] == round(first * 1e9)
