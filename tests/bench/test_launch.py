"""The load's own process, started for real: a run, its shares, its warm-up, its end by time or by the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from decodetop.bench import launch
from decodetop.bench.gates import gates
from decodetop.bench.launch import run_load, shares
from decodetop.bench.measure import figures
from decodetop.bench.reading import Environment
from support.loads import Heard, asked, load, plan_for, slow_after
from support.token_server import Seen, Step, TokenServer, completions


async def test_a_whole_run() -> None:
    result, terms, seen = await load(lambda one: completions(one, ttft_s=0.05), warmup_requests=3)
    assert [record.index for record in result.records] == [0, 1, 2, 3]
    assert all(record.fault is None and record.output_tokens == 8 for record in result.records)
    assert (result.partial, result.unfinished, result.source, terms.model) == (False, 0, "usage", "tiny")
    assert result.loop_lag_ms_p99 is not None and result.cpu_percent is not None
    posts = [one for one in seen if one.method == "POST"]
    assert len(posts) == 1 + 3 + 4  # the trial, the warm-up, the load
    assert {len(one.body["prompt"]) for one in posts} == {32}
    firsts = [one.body["prompt"][0] for one in posts]
    assert len(set(firsts)) == len(firsts)  # not one token of a prefix in common, warm-up included
    assert {one.body["model"] for one in posts} == {"tiny"}


async def test_the_same_seed_gives_the_same_prompts_and_another_seed_others() -> None:
    def prompts(seen: list[Seen]) -> list[list[int]]:
        return sorted(one.body["prompt"] for one in seen if one.method == "POST")

    first = prompts((await load(completions))[2])
    assert prompts((await load(completions))[2]) == first
    other = prompts((await load(completions, seed=8))[2])
    assert not {tuple(prompt[:16]) for prompt in first} & {tuple(prompt[:16]) for prompt in other}


async def test_several_processes_share_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "STREAMS_PER_PROCESS", 2)
    result, _, seen = await load(completions, streams=3, requests=7, warmup_requests=3)
    assert [record.index for record in result.records] == list(range(7))
    measured = [tuple(one.body["prompt"]) for one in seen if one.method == "POST"]
    assert len(measured) == 2 + 3 + 7


def test_shares_add_up() -> None:
    whole = plan_for("http://x", streams=1000, requests=1001, warmup_requests=5)
    jobs = shares(whole)
    assert sum(job.plan.streams for job in jobs) == 1000
    assert sum(job.plan.requests for job in jobs) == 1001
    assert sum(job.plan.warmup_requests for job in jobs) == 5
    taken = [job.first_index + n * job.stride for job in jobs for n in range(job.plan.requests)]
    assert sorted(taken) == list(range(1001))


async def test_stopped_keeps_what_finished() -> None:
    stop, heard = asyncio.Event(), Heard()
    async with TokenServer(slow_after(4)) as server:  # the trial, one warm-up, two measured
        plan = plan_for(server.url, requests=50, warmup_requests=1)
        running = asyncio.ensure_future(run_load(plan, None, heard, stop))
        await asyncio.wait_for(heard.under_way.wait(), 60)
        stop.set()
        result = await running
    assert result.partial and len(result.records) == 2 and result.unfinished == 2
    assert figures(result).requests.ok == 2


async def test_stopped_before_the_load_has_no_records() -> None:
    stop, heard = asyncio.Event(), Heard()
    async with TokenServer(slow_after(0)) as server:
        running = asyncio.ensure_future(run_load(plan_for(server.url), None, heard, stop))
        await asked(server)
        stop.set()
        result = await running
    assert result.partial and result.records == [] and heard.terms is None


async def test_a_time_ends_a_run_and_what_is_under_way_drains() -> None:
    result, _, seen = await load(
        lambda one: completions(one, ttft_s=0.05, itl_s=0.01), duration_s=0.5, requests=1_000_000, warmup_requests=0
    )
    assert not result.partial and result.unfinished == 0
    assert all(record.fault is None and record.output_tokens == 8 for record in result.records)
    begin_ns = min(record.write_ns or 0 for record in result.records)
    late_s = max((record.due_ns - begin_ns) / 1e9 for record in result.records)
    assert 2 <= len(result.records) == len([one for one in seen if one.method == "POST"]) - 1
    assert late_s < 5.0  # a loaded test machine
    metrics = figures(result, duration_s=0.5).metrics
    assert metrics.concurrency is not None and 0 < metrics.concurrency <= 2.0


def slowing(*gaps_s: float) -> Callable[[Seen], Iterable[Step]]:
    """After the trial, one gap between tokens after the other; the last stays."""
    left = [gaps_s[0], *gaps_s]

    def script(seen: Seen) -> Iterable[Step]:
        if seen.method != "POST":
            return completions(seen)
        return completions(seen, itl_s=left.pop(0) if len(left) > 1 else left[0])

    return script


@pytest.mark.parametrize(("gaps_s", "rounds", "steady"), [((0.2, 0.1, 0.1), 3, True), ((0.01, 0.1) * 4, 6, False)])
async def test_warm_up_goes_on_until_the_pace_is_steady(gaps_s: tuple[float, ...], rounds: int, steady: bool) -> None:
    shape = {"streams": 1, "requests": 1, "warmup_requests": 1, "warmup_steady": True}
    result, _, seen = await load(slowing(*gaps_s), **shape)
    posts = len([one for one in seen if one.method == "POST"]) - 2  # the trial, the one measured
    assert rounds <= posts <= 6 if steady else posts == rounds
    assert len(result.records) == 1
    if not steady:
        assert result.unsteady is not None and result.unsteady > 0.05
        plan = plan_for("http://x", **shape)
        found = [
            gate
            for gate in gates(plan, result, figures(result), Environment(decodetop="0"))
            if gate.name == "not_steady"
        ]
        assert [gate.severity for gate in found] == ["info"]
