"""Live figures: from ticks to Progress, and how late a loop is."""

from __future__ import annotations

import asyncio
import time

import pytest
from msgspec import structs

from decodetop.bench.live import progress_of
from decodetop.bench.reading import Plan
from decodetop.bench.text import progress_line
from decodetop.bench.watch import LagMeter
from decodetop.bench.wire import Tick

PLAN = Plan(preset="t", endpoint="http://x", streams=2, requests=4, output_tokens=100)


def tick(**fields: float) -> Tick:
    base = {"elapsed_s": 2.0, "chunks": 100, "tokens": 100, "counted_chunks": 100}
    return Tick(phase="measuring", **{**base, **fields})  # type: ignore[arg-type]


def test_rate_and_time_left() -> None:
    progress = progress_of(PLAN, [tick(done=1, gaps=10, gap_sum_ns=200e6, first_tokens=2, ttft_sum_ns=100e6)])
    assert (progress.output_tok_s, progress.icl_ms_mean, progress.ttft_ms_mean) == (50.0, 20.0, 50.0)
    assert progress.eta_s == pytest.approx(6.0)  # 300 tokens to come at 50 a second
    assert (progress.requests_done, progress.requests_total, progress.phase) == (1, 4, "measuring")


def test_the_steps_to_come_of_a_sweep_count_in_the_time_left() -> None:
    assert progress_of(PLAN, [tick()], step=1, steps=3).eta_s == pytest.approx(6.0 + 2 * 8.0)


def test_the_time_left_of_a_run_that_a_time_ends() -> None:
    timed = structs.replace(PLAN, duration_s=30.0, requests=1_000_000)
    progress = progress_of(timed, [tick(done=3)], step=1, steps=2)
    assert (progress.eta_s, progress.requests_total, progress.duration_s) == (28.0 + 30.0, 0, 30.0)
    assert "3 requests" in progress_line(progress) and "1000000" not in progress_line(progress)
    assert progress_of(timed, [tick(elapsed_s=31.0)]).eta_s == 0.0


def test_chunks_without_a_count_yet_are_taken_to_carry_as_many_tokens_as_the_others() -> None:
    assert progress_of(PLAN, [tick(tokens=40, counted_chunks=10)]).output_tok_s == 200.0
    assert progress_of(PLAN, [tick(tokens=0, counted_chunks=0)]).output_tok_s is None


def test_processes_add_up_and_the_slowest_gives_the_phase() -> None:
    early = Tick(phase="warmup", elapsed_s=1.0)
    late = tick(done=2, failed=1, loop_lag_ms_p99=3.0)
    progress = progress_of(PLAN, [late, early])
    assert (progress.phase, progress.requests_done, progress.errors, progress.loop_lag_ms_p99) == ("warmup", 2, 1, 3.0)
    assert progress.eta_s is None
    assert progress_of(PLAN, []).phase == "starting"


async def test_a_blocked_loop_shows_as_lag() -> None:
    meter = LagMeter(asyncio.get_running_loop(), time.perf_counter_ns)
    assert meter.p99_ms is None
    meter.start()
    await asyncio.sleep(0.03)
    end_ns = time.perf_counter_ns() + 60_000_000
    while time.perf_counter_ns() < end_ns:
        pass
    await asyncio.sleep(0.03)
    meter.stop()
    assert meter.p99_ms is not None and meter.p99_ms > 30
