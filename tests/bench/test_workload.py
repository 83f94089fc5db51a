"""Load shapes: a rate fixed ahead, recorded times, real prompts, and goodput under an SLO."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from itertools import islice, pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from decodetop.bench.http import Inbox
from decodetop.bench.load import Load, target
from decodetop.bench.measure import figures
from decodetop.bench.plan import parse_slo
from decodetop.bench.reading import Plan
from decodetop.bench.request import Dialect
from decodetop.bench.wire import Record, Result
from decodetop.bench.workload import Line, Workload, poisson_s, read_lines, replayed_s
from decodetop.errors import DataError, UsageError
from support.token_server import Seen, Step, TokenServer, Wait, completions

MS = 1_000_000


def test_poisson_times_are_fixed_by_the_seed_and_have_the_rate() -> None:
    def of(seed: int, count: int = 4000) -> list[float]:
        return list(islice(poisson_s(seed, 50.0), count))

    times = of(3)
    assert times == of(3) != of(4)
    assert times[:10] == of(3, 10)  # every process of a run computes the same
    gaps = [b - a for a, b in pairwise(times)]
    assert mean(gaps) == pytest.approx(0.02, rel=0.1)
    assert stdev(gaps) == pytest.approx(0.02, rel=0.1)  # an exponential's spread is its mean
    assert min(gaps) >= 0 and times[0] == 0


def test_recorded_times_start_at_nought_and_go_on_after_the_last() -> None:
    lines = [Line(prompt="x", t_s=t) for t in (10.0, 10.5, 12.0)]
    assert list(islice(replayed_s(lines), 5)) == [0.0, 0.5, 2.0, 3.0, 3.5]


def test_no_request_is_due_after_the_time_of_the_plan() -> None:
    lines = tuple(Line(prompt="x", t_s=t) for t in (10.0, 10.5, 12.0))
    plan = Plan(preset="t", endpoint="http://x", duration_s=3.2)
    assert Workload(plan, Dialect(), lines).arrivals_ns(100) == [0, 500_000_000, 2_000_000_000, 3_000_000_000]
    assert Workload(plan, Dialect(), lines).arrivals_ns(2) == [0, 500_000_000]
    at_random = Plan(preset="t", endpoint="http://x", duration_s=20.0, request_rate_s=10.0)
    due_ns = Workload(at_random, Dialect()).arrivals_ns(1_000_000)
    assert due_ns is not None and 100 < len(due_ns) < 300 and due_ns[-1] < 20e9


GOOD = [
    {"prompt": "say hello", "output_tokens": 5},
    {"prompt": "and goodbye"},
]


def written(tmp_path: Path, lines: Iterable[Any]) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def test_real_prompts(tmp_path: Path) -> None:
    lines = read_lines(written(tmp_path, [GOOD[0], "", GOOD[1]]), "completions")
    work = Workload(Plan(preset="t", endpoint="http://x", output_tokens=9), Dialect(), lines)
    assert [json.loads(work.prompt(n, Dialect())[0]) for n in range(3)] == ["say hello", "and goodbye", "say hello"]
    assert [work.output_tokens(n) for n in range(3)] == [5, 9, 5]
    assert work.prompt(0, Dialect())[1].token_ids is False
    warm, dialect = work.prompt(-5, Dialect())
    assert len(json.loads(warm)) == 128 and dialect.token_ids  # warm-up never seeds the cache with a real prompt
    assert work.arrivals_ns(3) is None


def test_a_recorded_arrival_file_makes_up_prompts_of_its_lengths(tmp_path: Path) -> None:
    ours = [{"t_s": 1.0, "input_tokens": 30, "output_tokens": 5}, {"t_s": 1.5, "input_tokens": 7}]
    public = [{"timestamp": 1000, "input_length": 30, "output_length": 5, "hash_ids": [1]}]
    plan = Plan(preset="t", endpoint="http://x", output_tokens=9)
    lines = read_lines(written(tmp_path, ours), "completions")
    assert read_lines(written(tmp_path, public), "chat") == lines[:1]
    work = Workload(plan, Dialect(), lines)
    prompts = [json.loads(work.prompt(n, Dialect())[0]) for n in range(3)]
    assert [len(prompt) for prompt in prompts] == [30, 7, 30]
    assert len({prompt[0] for prompt in prompts}) == 3  # a line that comes again is another prompt
    assert [work.output_tokens(n) for n in range(3)] == [5, 9, 5]
    assert work.arrivals_ns(3) == [0, 500_000_000, 1_000_000_000]
    in_words = Dialect(token_ids=False, words=64)  # of 128 tokens: half a word a token
    spoken = Workload(plan, in_words, lines)
    assert [len(json.loads(spoken.prompt(n, in_words)[0]).split()) for n in range(2)] == [15, 4]


BAD: dict[str, tuple[list[Any], str, str]] = {
    "no JSON": (["{"], "completions", ":1"),
    "a prompt and a length": ([{"prompt": "x", "input_tokens": 3}], "completions", "either prompt or messages"),
    "a length of nothing": ([{"input_tokens": 0}], "completions", "input_tokens 0"),
    "a length of no model": ([{"input_tokens": 10**12}], "completions", "input_tokens"),
    "a trace without a length": ([{"timestamp": 1, "input_length": 2}], "completions", ":1"),
    "neither": ([{}], "completions", "either prompt or messages"),
    "both": ([{"prompt": "x", "messages": []}], "chat", "either prompt or messages"),
    "messages without chat": ([GOOD[0], {"messages": [{"role": "user", "content": "x"}]}], "completions", ":2"),
    "no length": ([{"prompt": "x", "output_tokens": 0}], "completions", "output_tokens 0"),
    "some times": ([{"prompt": "x", "t_s": 1}, {"prompt": "x"}], "completions", "some lines have t_s"),
    "back in time": ([{"prompt": "x", "t_s": 2}, {"prompt": "x", "t_s": 1}], "completions", "back in time"),
    "empty": ([], "completions", "no prompt"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_prompts_file_that_is_wrong_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    lines, api, words = BAD[name]
    with pytest.raises(DataError, match=r"prompts\.jsonl") as caught:
        read_lines(written(tmp_path, lines), api)
    assert words in caught.value.message and caught.value.hint


def test_a_prompts_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't read"):
        read_lines(tmp_path / "none", "chat")


async def run(
    script: Callable[[Seen], Iterable[Step]], due_ms: list[float] | None, lines: tuple[Line, ...] = (), **changes: Any
) -> tuple[list[Record], list[Seen]]:
    async with TokenServer(script) as server:
        fields = {"streams": 1, "requests": 6, "output_tokens": 4, "input_tokens": 4, "timeout_s": 20.0, **changes}
        plan = Plan(preset="t", endpoint=server.url, **fields)
        work = Workload(plan, Dialect(), lines)
        inbox = Inbox(asyncio.get_running_loop(), time.perf_counter_ns)
        load = Load(plan, target(server.url, None), inbox, Dialect(), "m", work)
        await load.open()
        indices = iter(range(plan.requests))
        if due_ms is None:
            await load.run(indices)
        else:
            await load.run_at(indices, [round(at * MS) for at in due_ms])
        load.close()
        return load.records, server.posts


async def test_a_slow_answer_does_not_hold_back_the_requests_after_it() -> None:
    """No coordinated omission: a closed loop would send the second request when the first is answered."""

    def script(seen: Seen) -> Iterable[Step]:
        steps = completions(seen)
        return [Wait(0.5), *steps] if seen.connection == 1 else steps

    records, _ = await run(script, [0, 20, 40, 60, 80, 100])
    assert len(records) == 6 and all(record.fault is None for record in records)
    by_index = sorted(records, key=lambda record: record.index)
    assert [round((record.due_ns - by_index[0].due_ns) / MS) for record in by_index] == [0, 20, 40, 60, 80, 100]
    first_end = by_index[0].end_ns
    assert first_end is not None and all(record.write_ns < first_end for record in by_index[1:])  # type: ignore[operator]
    assert all(record.write_ns >= record.due_ns for record in by_index)  # type: ignore[operator]


async def test_real_prompts_and_their_lengths_are_what_is_sent() -> None:
    lines = (Line(prompt="one", output_tokens=2), Line(prompt="two"))
    records, posts = await run(completions, None, lines, requests=3)
    assert [(post.body["prompt"], post.body["max_tokens"]) for post in posts] == [("one", 2), ("two", 4), ("one", 2)]
    assert [record.fault for record in records] == [None] * 3


def record(index: int, ttft_ms: float, itl_ms: float, **changes: Any) -> Record:
    chunks = [round((ttft_ms + n * itl_ms) * MS) for n in range(11)]
    fields: dict[str, Any] = {"output_tokens": 11, "write_ns": 1, "due_ns": 0, "chunks_ns": chunks, **changes}
    return Record(index=index, **fields)


def test_goodput_counts_the_requests_within_every_bound() -> None:
    records = [
        record(0, 100, 10),
        record(1, 100, 30),  # too slow a token
        record(2, 400, 10),  # too late
        record(3, 100, 10, fault="short_output"),
        record(4, 100, 10, output_tokens=None),  # tokens unknown: no TPOT to hold against the bound
    ]
    result = Result(
        records=records, source="usage", partial=False, unfinished=0, cpu_percent=None, loop_lag_ms_p99=None
    )
    seen = figures(result, {"ttft": 200.0, "tpot": 20.0})
    assert seen.window_s is not None and seen.metrics.goodput_request_s == pytest.approx(1 / seen.window_s)
    assert figures(result).metrics.goodput_request_s is None
    late = figures(result, {"e2e": 250.0}).metrics.goodput_request_s
    assert late == pytest.approx(2 / seen.window_s)


def test_slo_words() -> None:
    assert parse_slo("ttft=200, tpot=20.5") == {"ttft": 200.0, "tpot": 20.5}
    for text in ("ttft", "ttft=x", "speed=3", "ttft=-1", ""):
        with pytest.raises(UsageError, match="--slo"):
            parse_slo(text)
