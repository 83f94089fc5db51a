"""Figures of records whose values can be done by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop.bench.gates import gates
from decodetop.bench.measure import figures, merged
from decodetop.bench.reading import Environment, GpuSpan, Plan, ServerSpan
from decodetop.bench.stats import quantile, quantiles
from decodetop.bench.wire import Record, Result

MS = 1_000_000


def record(index: int = 0, chunks_ms: list[float] | None = None, start_ms: float = 0, **changes: Any) -> Record:
    """Chunks at `chunks_ms` after the write, by default the first after 100 ms and one every 20 ms, 8 tokens."""
    chunks = [100 + 20 * n for n in range(8)] if chunks_ms is None else chunks_ms
    base: dict[str, Any] = {
        "index": index,
        "due_ns": round(start_ms * MS) - MS,
        "write_ns": round(start_ms * MS) or 1,
        "chunks_ns": [round(value * MS) for value in chunks],
        "chunk_tokens": [1] * len(chunks),
        "output_tokens": len(chunks),
        "prompt_tokens": 128,
    }
    return Record(**{**base, **changes})


def result(records: list[Record], **changes: Any) -> Result:
    base: dict[str, Any] = {"source": "usage", "partial": False, "unfinished": 0}
    return Result(records=records, **{**base, "cpu_percent": 5.0, "loop_lag_ms_p99": 0.2, **changes})


PLAN = Plan(preset="t", endpoint="http://x", requests=2, output_tokens=8)


def names(seen: Result, plan: Plan = PLAN, environment: Environment | None = None) -> dict[str, str]:
    box = Environment(decodetop="0") if environment is None else environment
    return {gate.name: gate.severity for gate in gates(plan, seen, figures(seen), box)}


def test_one_token_a_chunk() -> None:
    metrics = figures(result([record(), record(1, start_ms=300)])).metrics
    assert metrics.ttft_ms is not None and metrics.ttft_ms.mean == 100 and metrics.ttft_ms.n == 2
    assert metrics.itl_ms is not None and metrics.itl_ms.n == 14 and metrics.itl_ms.p99 == pytest.approx(20)
    assert metrics.tpot_ms is not None and metrics.tpot_ms.mean == pytest.approx(20)
    assert metrics.e2e_ms is not None and metrics.e2e_ms.mean == 240
    window_s = (300 + 240) / 1e3
    assert metrics.output_tok_s == pytest.approx(16 / window_s, rel=1e-6)
    assert metrics.request_s == pytest.approx(2 / window_s, rel=1e-6)


def test_a_run_that_a_time_ends_leaves_the_drain_out_of_every_rate() -> None:
    whole, cut = record(), record(1, start_ms=100)  # the second gets 5 of its 8 tokens before 280 ms
    late = record(2, start_ms=270)  # none
    seen = figures(result([whole, cut, late]), {"e2e": 1e9}, duration_s=0.28)
    assert seen.window_s == pytest.approx(0.28) and seen.tokens.output == 24
    metrics = seen.metrics
    assert metrics.output_tok_s == pytest.approx((8 + 5) / 0.28, rel=1e-6)
    assert metrics.request_s == pytest.approx(1 / 0.28, rel=1e-6) == metrics.goodput_request_s
    assert metrics.concurrency == pytest.approx((240 + 180 + 10) / 280, rel=1e-6)
    assert metrics.ttft_ms is not None and metrics.ttft_ms.n == 3
    unsaid = [record(1, start_ms=100, chunk_tokens=None, output_tokens=16), whole]  # two tokens a chunk, about
    assert figures(result(unsaid), duration_s=0.28).metrics.output_tok_s == pytest.approx((8 + 10) / 0.28, rel=1e-6)
    assert figures(result([whole]), duration_s=9.0).window_s == pytest.approx(0.24)  # it ended before its time


def test_chunks_that_come_in_bursts_say_nothing_of_a_step() -> None:
    held = [100.0, 100.02, 100.03, 100.04, 140.0, 140.01, 140.02, 140.03]
    assert names(result([record(chunks_ms=held)]))["bursts"] == "suspect"
    assert "bursts" not in names(result([record()]))
    assert figures(result([record(chunks_ms=held)])).together == pytest.approx(6 / 7)
    assert figures(result([record(chunks_ms=[100.0])])).together is None
    drafted = record(chunks_ms=held, steps=2)  # 8 tokens in 2 steps, each token a chunk of its own
    assert "bursts" not in names(result([drafted]))


def test_requests_under_way() -> None:
    metrics = figures(result([record(), record(1, start_ms=120), record(2, start_ms=240)])).metrics
    assert metrics.concurrency == pytest.approx(3 * 240 / 480, rel=1e-6)


def test_speculation_chunk_gap_is_not_the_gap_of_a_token() -> None:
    one = record(chunks_ms=[100, 120, 140], chunk_tokens=[4, 4, 2], output_tokens=10)
    metrics = figures(result([one])).metrics
    assert metrics.icl_ms is not None and (metrics.icl_ms.mean, metrics.icl_ms.n) == (20, 2)
    assert metrics.itl_ms is not None and metrics.itl_ms.n == 6
    assert metrics.itl_ms.mean == pytest.approx((4 * 5 + 2 * 10) / 6)
    assert metrics.tpot_ms is not None and metrics.tpot_ms.mean == pytest.approx(40 / 9)


def test_without_the_tokens_of_each_chunk_there_is_no_itl_but_a_tpot() -> None:
    metrics = figures(result([record(), record(1, chunk_tokens=None)])).metrics
    assert metrics.itl_ms is None and metrics.tpot_ms is not None and metrics.icl_ms is not None


def test_without_a_count_there_are_chunk_figures_only() -> None:
    seen = figures(result([record(chunk_tokens=None, output_tokens=None)], source="unknown"))
    assert (seen.tokens.output, seen.metrics.output_tok_s, seen.metrics.tpot_ms) == (None, None, None)
    assert seen.metrics.icl_ms is not None and seen.uncounted == 1


def test_a_failed_request_is_in_no_figure_but_counted() -> None:
    failed = record(1, chunks_ms=[500, 900], fault="cut", message="gone")
    again = record(2, chunks_ms=[], fault="cut", message="gone too")
    late = record(3, chunks_ms=[], fault="timeout", message="slow")
    seen = figures(result([record(), failed, again, late]))
    assert (seen.requests.ok, seen.requests.failed) == (1, 3)
    assert [(error.kind, error.count, error.example) for error in seen.requests.errors] == [
        ("cut", 2, "gone"),
        ("timeout", 1, "slow"),
    ]
    assert seen.metrics.ttft_ms is not None and (seen.metrics.ttft_ms.n, seen.metrics.ttft_ms.mean) == (1, 100)
    assert seen.tokens.output == 8


def test_a_short_answer_is_measured_and_counted_as_a_fault() -> None:
    short = record(1, chunks_ms=[100, 120], fault="short_output")
    seen = figures(result([record(), short]))
    assert (seen.requests.ok, seen.requests.failed, seen.tokens.output) == (1, 1, 10)
    assert seen.metrics.ttft_ms is not None and seen.metrics.ttft_ms.n == 2


def test_nothing_succeeded() -> None:
    seen = figures(result([record(chunks_ms=[], fault="http", message="500")]))
    assert seen.metrics.ttft_ms is None and seen.metrics.output_tok_s is None and seen.window_s is None
    assert names(result([record(chunks_ms=[], fault="http")]))["no_result"] == "invalid"


def test_send_delay_is_due_to_write() -> None:
    delays = [record(n, due_ns=0, write_ns=(n + 1) * MS) for n in range(101)]
    assert figures(result(delays)).send_delay_ms_p99 == pytest.approx(100)


def test_accept_length_of_native_counts() -> None:
    assert figures(result([record(steps=2), record(1, steps=6)])).metrics.accept_length == 2.0
    assert figures(result([record(steps=2), record(1)])).metrics.accept_length is None


def test_merged_processes() -> None:
    whole = merged(
        [
            result([record(2)], cpu_percent=10.0, unfinished=1),
            result([record(0)], cpu_percent=30.0, loop_lag_ms_p99=None, source="unknown", partial=True),
        ]
    )
    assert [one.index for one in whole.records] == [0, 2]
    assert (whole.cpu_percent, whole.loop_lag_ms_p99, whole.unfinished, whole.partial) == (30.0, 0.2, 1, True)
    assert whole.source == "usage"


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_quantile_is_numpys(values: list[float], q: float) -> None:
    assert quantile(sorted(values), q) == pytest.approx(float(np.quantile(values, q)), rel=1e-9, abs=1e-9)


def test_quantiles_of_nothing() -> None:
    assert quantiles([]) is None


CLEAN = [record(), record(1, start_ms=300)]
LONG = [record(), record(1, start_ms=3000)]


def test_a_clean_run_has_an_info_only() -> None:
    assert names(result(CLEAN)) == {"few_requests": "info"}
    many = [record(n, start_ms=300 * n) for n in range(20)]
    assert names(result(many), Plan(preset="t", endpoint="http://x", requests=20, output_tokens=8)) == {}


GATES: dict[str, tuple[Result, str, str]] = {
    "one of two failed": (result([record(), record(1, chunks_ms=[], fault="cut")]), "errors", "invalid"),
    "short": (result([record(), record(1, fault="short_output")]), "short_output", "invalid"),
    "stopped": (result([record()], partial=True), "partial", "suspect"),
    "gave up": (result([record()]), "given_up", "invalid"),
    "a little longer": (result([record(asked_tokens=6), record(1, asked_tokens=8)]), "long_output", "suspect"),
    "much longer": (result([record(asked_tokens=8), record(1, asked_tokens=3)]), "long_output", "invalid"),
    "a count that can't be": (
        result([record(output_tokens=None, doubt="the server counted -5 output tokens"), record(1)]),
        "count_impossible",
        "suspect",
    ),
    "no token counts": (result([record(output_tokens=None), record(1)]), "tokens_unknown", "suspect"),
    "longer prompts": (result([record(prompt_tokens=140), record(1, prompt_tokens=140)]), "prompt_length", "suspect"),
    "cached": (result([record(cached_tokens=100), record(1)]), "cached_tokens", "suspect"),
    "more cached than there was": (result([record(cached_tokens=129), record(1)]), "count_impossible", "invalid"),
    "slow loop": (result(LONG, loop_lag_ms_p99=6.0), "client_bound", "suspect"),
    "very slow loop": (result(LONG, loop_lag_ms_p99=80.0), "client_bound", "invalid"),
    "late sends": (result([record(due_ns=-30 * MS), LONG[1]]), "client_bound", "suspect"),
    "very late sends": (result([record(due_ns=-80 * MS), LONG[1]]), "client_bound", "invalid"),
    "a busy client": (result(LONG, cpu_percent=80.0), "client_bound", "suspect"),
    "a saturated client": (result(LONG, cpu_percent=99.0), "client_bound", "invalid"),
}


@pytest.mark.parametrize("name", GATES)
def test_gates(name: str) -> None:
    seen, gate, severity = GATES[name]
    assert names(seen).get(gate) == severity


def test_more_cached_than_prompt_tokens_is_no_count_at_all() -> None:
    seen = result([record(cached_tokens=500), record(1, cached_tokens=0)])
    assert figures(seen).tokens.cached is None and figures(seen).tokens.prompt == 256
    assert "cached_tokens" not in names(seen)
    assert figures(result([record(cached_tokens=128)])).tokens.cached == 128


def test_an_answer_of_one_token_more_is_not_longer() -> None:
    assert "long_output" not in names(result([record(asked_tokens=7), record(1, asked_tokens=8)]))


def test_of_a_short_run_the_clients_own_figures_say_little() -> None:
    assert "client_bound" not in names(result(CLEAN, cpu_percent=99.0, loop_lag_ms_p99=80.0))
    assert "client_bound" not in names(result(LONG, cpu_percent=60.0, loop_lag_ms_p99=2.0))


def test_what_a_template_or_an_asked_prefix_explains_is_not_cached() -> None:
    assert "cached_tokens" not in names(result([record(cached_tokens=24), record(1, cached_tokens=24)]))
    shared = Plan(preset="t", endpoint="http://x", requests=2, output_tokens=8, shared_prefix_tokens=96)
    assert "cached_tokens" not in names(result([record(cached_tokens=96), record(1, cached_tokens=96)]), shared)


def test_gpu_gates() -> None:
    def of(**fields: Any) -> dict[str, str]:
        return names(result(CLEAN), environment=Environment(decodetop="0", gpus=(GpuSpan(index=1, n=9, **fields),)))

    assert of(sm_clock_mhz_start=1980.0, sm_clock_mhz_end=1620.0)["sm_clock"] == "suspect"
    assert "sm_clock" not in of(sm_clock_mhz_start=1980.0, sm_clock_mhz_end=1950.0)
    assert of(event_reasons=0x20)["throttled"] == "suspect"
    assert of(event_reasons=0x04)["power_cap"] == "info"
    assert of(foreign_pids=(77,))["foreign_process"] == "suspect"
    assert of(event_reasons=0x01) == {"few_requests": "info"}


def test_server_gates() -> None:
    def of(seen: Result, **fields: float) -> dict[str, str]:
        return names(seen, environment=Environment(decodetop="0", server=ServerSpan(**fields)))

    assert of(result(CLEAN), generated_tokens=16.0, requests=2.0) == {"few_requests": "info"}
    assert of(result(CLEAN), generated_tokens=40.0)["server_count"] == "suspect"
    assert of(result(CLEAN), requests=5.0)["other_load"] == "suspect"
    assert "other_load" not in of(result([record()], partial=True), requests=2.0)


def test_the_worst_gate_comes_first() -> None:
    seen = result([record(), record(1, start_ms=3000, fault="short_output")], loop_lag_ms_p99=6.0)
    order = [gate.severity for gate in gates(PLAN, seen, figures(seen), Environment(decodetop="0"))]
    assert order == ["invalid", "suspect", "info"]
