"""Rates between polls: slow servers, idle ones, restarts, speculation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodetop.core.clock import SECOND_NS
from decodetop.server.metrics import Histogram
from decodetop.server.rates import FIRST_POLL, RESTARTED, History, Rates, Tally
from decodetop.server.reading import Counters


def tally(t_s: float, tokens: float | None, *, basis: str = "b", per_event: bool = False, **counters: float) -> Tally:
    seen = Counters(generated_tokens=tokens, **counters)
    ttft = Histogram(sum_s=counters.get("ttft_sum_s", 0.0), count=counters.get("ttft_count", 0.0))
    itl = Histogram(sum_s=counters.get("itl_sum_s", 0.0), count=counters.get("itl_count", 0.0))
    return Tally(t_ns=int(t_s * SECOND_NS), basis=basis, counters=seen, ttft=ttft, itl=itl, per_event=per_event)


def after(*tallies: Tally) -> Rates:
    history = History()
    for one in tallies:
        history.push(one)
    return history.rates()


def test_the_first_poll_has_no_rate() -> None:
    rates = after(tally(0, 1000))
    assert rates.generated_tok_s is None and rates.reasons["generated_tok_s"] == FIRST_POLL


def test_the_rate_is_over_the_last_poll() -> None:
    assert after(tally(0, 0), tally(1, 1000), tally(2, 1100)).generated_tok_s == 100


def test_idle_is_zero_at_once_after_a_fast_load() -> None:
    assert after(tally(0, 0), tally(1, 500), tally(2, 1000), tally(3, 1000)).generated_tok_s == 0


def test_a_slow_server_is_averaged_over_a_few_seconds() -> None:
    """12.2 tok/s counted whole: 12, 12, 13 in three polls. One poll alone would be 6 % off."""
    rates = after(tally(0, 0), tally(1, 12), tally(2, 24), tally(3, 37))
    assert rates.generated_tok_s == pytest.approx(37 / 3)


def test_two_polls_close_together_share_their_base() -> None:
    assert after(tally(0, 0), tally(1, 100), tally(1.05, 105)).generated_tok_s == pytest.approx(100.0)
    assert after(tally(0, 0), tally(0.1, 100)).generated_tok_s is None


def test_counters_that_go_back_start_anew() -> None:
    rates = after(tally(0, 1000), tally(1, 10))
    assert rates.generated_tok_s is None and rates.reasons["generated_tok_s"] == RESTARTED
    assert after(tally(0, 1000), tally(1, 10), tally(2, 30)).generated_tok_s == 20
    assert after(tally(0, 1000), tally(1, 2000, basis="other")).generated_tok_s is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 5), st.one_of(st.none(), st.floats(0, 1e6))), min_size=1, max_size=30))
def test_no_sequence_gives_a_negative_rate(steps: list[tuple[float, float | None]]) -> None:
    history, now = History(), 0.0
    for step, tokens in steps:
        now += step
        history.push(tally(now, tokens))
        rate = history.rates().generated_tok_s
        assert rate is None or rate >= 0


def test_latency_is_of_the_interval_then_of_the_whole_life() -> None:
    first = tally(0, 0, itl_sum_s=100.0, itl_count=1000.0, ttft_sum_s=10.0, ttft_count=10.0)
    second = tally(1, 100, itl_sum_s=101.0, itl_count=1100.0, ttft_sum_s=10.0, ttft_count=10.0)
    rates = after(first, second)
    assert rates.itl is not None and (rates.itl.mean_ms, rates.itl.over_s) == (pytest.approx(10.0), 1.0)
    assert rates.ttft is not None and (rates.ttft.mean_ms, rates.ttft.over_s) == (1000.0, None)


def test_first_tokens_are_looked_at_over_a_minute() -> None:
    polls = [tally(t, t * 100, ttft_sum_s=1.0 if t > 0 else 0.0, ttft_count=1.0 if t > 0 else 0.0) for t in range(50)]
    rates = after(*polls)
    assert rates.ttft is not None and (rates.ttft.mean_ms, rates.ttft.count, rates.ttft.over_s) == (1000.0, 1.0, 49.0)


def test_history_is_bounded() -> None:
    history = History()
    for t in range(1000):
        history.push(tally(t, t))
    assert len(history) <= 62


def test_output_events_are_not_tokens() -> None:
    """vLLM with speculation: 100 gaps of 10 ms brought 390 tokens; 2 of them were first tokens of other requests."""
    first = tally(0, 0, per_event=True, spec_drafts=0.0, spec_accepted_tokens=0.0, ttft_count=0.0)
    events = {"itl_sum_s": 1.0, "itl_count": 100.0, "ttft_count": 2.0}
    second = tally(1, 392, per_event=True, spec_drafts=100.0, spec_accepted_tokens=290.0, **events)
    rates = after(first, second)
    assert rates.itl is not None
    assert rates.itl.mean_ms == pytest.approx(1000 / 390) and rates.itl.p50_ms is None
    assert rates.accept_length == pytest.approx(3.9) and rates.accept_recent


def test_prefix_hits() -> None:
    before = tally(0, 0, prompt_tokens=1000.0, cached_tokens=0.0)
    assert after(before).prefix_hit_rate == 0.0
    assert after(before, tally(1, 0, prompt_tokens=1100.0, cached_tokens=75.0)).prefix_hit_rate == 0.75
    assert after(tally(0, 0, prompt_tokens=0.0, cached_tokens=0.0)).prefix_hit_rate is None


def test_a_restart_is_seen_across_a_poll_without_the_counter() -> None:
    assert after(tally(0, 1000), tally(1, None), tally(2, 10)).generated_tok_s is None


def test_stillness_is_counted_from_the_last_token() -> None:
    assert after(tally(0, 0), tally(1, 5)).still_s == 0
    assert after(tally(0, 0), tally(1, 5), tally(2, 5), tally(4, 5)).still_s == 3
    assert after(tally(0, 5, prompt_tokens=1), tally(9, 5, prompt_tokens=2)).still_s == 0, "prefill is work too"
    assert after(tally(0, 5), tally(4, 5)).still_s == 4, "nothing was ever seen to move"
