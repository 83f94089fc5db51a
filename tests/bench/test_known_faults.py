"""Faults that other load generators were found to have, each kept out by a test: load, prompts, stamps and sizes.

What a stream means is in test_stream.py and the fault matrix; verdicts are in test_verdict.py.
"""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from decodetop.bench import launch
from decodetop.bench.launch import LoadFailed
from decodetop.bench.measure import figures
from decodetop.bench.wire import Result
from support.fault_matrix import BODY, CHAT, EVENTS, ROLE, SPOKEN, delta
from support.loads import load
from support.token_server import DONE, HEAD, MODELS, TAIL, Seen, Step, Wait, chunk, completions, event, reply

NS_PER_S = 1_000_000_000


def posts_of(seen: list[Seen]) -> list[Seen]:
    return [one for one in seen if one.method == "POST"]


def most_at_once(posts: list[Seen]) -> int:
    """Requests that the server had under way at one time, at most."""
    edges = [(post.received_ns, 1) for post in posts] + [(post.sent[-1][0], -1) for post in posts]
    under_way = most = 0
    for _, step in sorted(edges):
        under_way += step
        most = max(most, under_way)
    return most


def test_the_load_process_has_no_http_library_and_no_terminal_in_it() -> None:
    """A shared httpx client was measured to lose half of the rate at 64 streams; a screen's work shows as ITL."""
    code = (
        "import sys, decodetop.bench.worker; print(*(set(sys.modules) & {'httpx', 'aiohttp', 'requests', 'textual'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


async def test_processes_of_one_run_share_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers forked with one seed read each other's prompts from the prefix cache."""
    monkeypatch.setattr(launch, "STREAMS_PER_PROCESS", 1)
    _, _, seen = await load(completions, streams=3, requests=9, warmup_requests=3)
    firsts = [post.body["prompt"][0] for post in posts_of(seen)]
    assert len(firsts) == 3 + 3 + 9 and len(set(firsts)) == len(firsts)  # trials and warm-up included


async def test_warm_up_is_no_burst() -> None:
    """More warm-up requests than streams go one after the other: a queue of them would poison what comes next."""
    _, _, seen = await load(lambda one: completions(one, ttft_s=0.05), streams=2, requests=2, warmup_requests=7)
    assert len(posts_of(seen)) == 1 + 7 + 2 and most_at_once(posts_of(seen)) == 2


async def test_no_pool_holds_streams_back() -> None:
    """Connection pools of 100 made clients report loads they never gave."""
    result, _, seen = await load(
        lambda one: completions(one, ttft_s=3.0 if one.connection > 1 else 0.0),  # the trial has the first
        streams=120,
        requests=120,
        warmup_requests=0,
        output_tokens=2,
        input_tokens=4,
    )
    assert all(record.fault is None for record in result.records)
    assert most_at_once(posts_of(seen)[1:]) == 120


async def test_a_prompt_of_fifty_thousand_tokens_is_sent_whole() -> None:
    result, terms, seen = await load(completions, requests=2, input_tokens=50_000)
    assert {len(post.body["prompt"]) for post in posts_of(seen)} == {50_000}
    assert terms.prompt_tokens == 50_000 and [record.prompt_tokens for record in result.records] == [50_000] * 2


async def test_an_event_longer_than_any_read_buffer() -> None:
    """SGLang's own API repeats the whole text in each event; line readers give up at 64 or 128 KB."""

    def script(seen: Seen) -> Iterable[Step]:
        def meta(total: int, finish: Any) -> dict[str, Any]:
            return {"text": "é" * (total * 200_000), "meta_info": {"completion_tokens": total, "finish_reason": finish}}

        last = seen.asked
        events = [event(meta(total, {"type": "length"} if total == last else None)) for total in range(1, last + 1)]
        return [MODELS] if seen.method == "GET" else [HEAD, *map(chunk, events), chunk(DONE), TAIL]

    result, _, _ = await load(script, api="generate", output_tokens=3, requests=2)
    assert [(record.fault, record.output_tokens, record.chunk_tokens) for record in result.records] == [
        (None, 3, [1, 1, 1])
    ] * 2


async def test_the_time_to_the_end_of_the_stream_is_no_time_of_a_token() -> None:
    """The usage chunk and [DONE] come late from some servers; E2E and TPOT end with the last token."""

    def script(seen: Seen) -> Iterable[Step]:
        if seen.method == "GET":
            return [MODELS]
        return [HEAD, *map(chunk, EVENTS[:-1]), Wait(0.6), chunk(EVENTS[-1] + DONE), TAIL]

    result, _, _ = await load(script, requests=1, streams=1)
    (record,) = result.records
    assert record.end_ns is not None and record.write_ns is not None and record.fault is None
    assert record.end_ns - record.write_ns >= 0.5 * NS_PER_S
    e2e = figures(result).metrics.e2e_ms
    assert e2e is not None and e2e.mean < 500


async def test_a_freeze_of_the_server_is_in_the_figures_of_all_who_came_meanwhile() -> None:
    """Requests due at a rate go out on time; their wait is in their TTFT, not hidden before a later send."""
    until: list[float] = []
    loop = asyncio.get_running_loop()

    def script(seen: Seen) -> Iterable[Step]:
        if seen.method == "GET":
            return [MODELS]
        if not until and seen.connection > 1:
            until.append(loop.time() + 3.0)  # from the first measured request on
        return completions(seen, ttft_s=max(0.0, until[0] - loop.time()) if until else 0.0)

    result, _, _ = await load(script, request_rate_s=20.0, requests=20, warmup_requests=0, seed=5)
    assert all(record.fault is None for record in result.records)
    waits = [record.chunks_ns[0] / NS_PER_S for record in result.records]
    assert sum(wait > 1.0 for wait in waits) >= 10  # a closed loop of two streams would show it in two
    seen = figures(result)
    assert seen.metrics.ttft_ms is not None and seen.metrics.ttft_ms.p99 > 2000
    assert seen.send_delay_ms_p99 is not None and seen.send_delay_ms_p99 < 1000  # a loaded test machine


async def test_usage_is_asked_for_and_where_it_does_not_come_nothing_is_taken_for_it() -> None:
    """The length asked for was taken for the length given: TPOT 0.24 ms instead of 5.17."""

    def script(seen: Seen) -> Iterable[Step]:
        if seen.method == "GET":
            return [MODELS]
        assert seen.body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
        return [HEAD, *map(chunk, EVENTS[:3]), chunk(event({**EMPTY, "choices": [ENDED]}) + DONE), TAIL]

    result, _, _ = await load(script, requests=2)
    made = figures(result)
    assert (made.tokens.output, made.tokens.source, made.metrics.tpot_ms) == (None, "unknown", None)
    assert made.metrics.output_tok_s is None and made.metrics.icl_ms is not None


EMPTY: dict[str, Any] = {"id": "cmpl-1", "object": "text_completion"}
ENDED = {"index": 0, "text": "", "finish_reason": "stop"}


async def test_llamacpps_last_event_has_usage_and_its_own_counts() -> None:
    timings = {"cache_n": 1, "prompt_n": 31, "predicted_n": 8, "draft_n": 6, "draft_n_accepted": 4}
    usage = {"prompt_tokens": 32, "completion_tokens": 8, "total_tokens": 40}
    last = {**CHAT, "choices": [], "usage": usage, "timings": timings}

    def script(seen: Seen) -> Iterable[Step]:
        events = map(event, (ROLE, *SPOKEN, delta("length"), last))
        return [MODELS] if seen.method == "GET" else [HEAD, *map(chunk, events), chunk(DONE), TAIL]

    result, _, _ = await load(script, api="chat", requests=1, streams=1)
    (record,) = result.records
    assert (record.fault, record.output_tokens, record.prompt_tokens, record.cached_tokens) == (None, 8, 32, 1)
    assert record.steps == 4  # whatever its /props says of speculation


async def test_a_compressed_stream_is_a_fault_with_a_word() -> None:
    """It was asked not to be: tokens come when the encoder's buffer is full."""

    def script(seen: Seen) -> Iterable[Step]:
        if seen.method == "GET":
            return [MODELS]
        assert seen.headers["accept-encoding"] == "identity"
        return [reply("200 OK", gzip.compress(BODY + DONE), "text/event-stream", "content-encoding: gzip\r\n")]

    with pytest.raises(LoadFailed, match=r"the stream is compressed \(gzip\)") as caught:
        await load(script)
    assert "proxy" in caught.value.hint


async def test_a_compressed_page_of_an_error_is_not_printed() -> None:
    page = reply("502 Bad Gateway", gzip.compress(b"<h1>bad</h1>"), "text/html", "content-encoding: gzip\r\n")
    result, _, _ = await load(lambda seen: [MODELS] if seen.method == "GET" else [page], requests=1)
    assert [record.message for record in result.records] == ["502: a compressed body (gzip)"]


def test_a_run_without_a_token_has_no_time_to_one() -> None:
    """Empty streams that counted as successes gave a median TTFT of 0."""
    nothing = Result(records=[], source="unknown", partial=False, unfinished=0, cpu_percent=None, loop_lag_ms_p99=None)
    assert figures(nothing).metrics.ttft_ms is None
