"""Scrapes: which samples count once, which add up, and what a histogram can say."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from decodetop.server.metrics import Histogram, latency, parse, wanted_names
from support.engine_replay import read

WANTED = wanted_names({"m", "m_total", "vllm:num_requests_waiting"}, {"h"})


def test_ranks_count_once_and_data_parallel_shares_add_up() -> None:
    text = """
m{dp_rank="0",tp_rank="1"} 7
m{dp_rank="0",tp_rank="0"} 10
m{dp_rank="1",tp_rank="3"} 99
m{dp_rank="1",tp_rank="2"} 30
"""
    scrape = parse(text, WANTED)
    assert scrape.total("m") == 40 and scrape.mean("m") == 20


def test_the_empty_priority_is_the_total_of_the_others() -> None:
    assert parse('m{priority=""} 5\nm{priority="1"} 2\nm{priority="2"} 3\n', WANTED).total("m") == 5
    assert parse('m{priority="1"} 2\nm{priority="2"} 3\n', WANTED).total("m") == 5


def test_names_are_whole() -> None:
    text = 'vllm:num_requests_waiting{e="0"} 1\nvllm:num_requests_waiting_by_reason{reason="a"} 5\nm_created 1.796e9\n'
    scrape = parse(text, WANTED)
    assert scrape.total("vllm:num_requests_waiting") == 1
    assert not scrape.has("m_created") and not scrape.has("m")


def test_a_value_that_is_no_number_is_unknown() -> None:
    scrape = parse("m NaN\nm_total 3\n", WANTED)
    assert scrape.total("m") is None and scrape.impossible("m") == "NaN" and scrape.total("m_total") == 3
    recorded = parse(read("sglang_tp1_graph", "metrics_loaded.txt").decode(), frozenset({"sglang:fwd_occupancy"}))
    assert recorded.total("sglang:fwd_occupancy") is None and recorded.impossible("sglang:fwd_occupancy") == "NaN"


def test_unreadable_lines_are_counted_and_the_rest_is_read() -> None:
    scrape = parse('m{a="b 3\nm 4\nm{x} \nm_total 5\n', WANTED)
    assert (scrape.total("m"), scrape.total("m_total"), scrape.unreadable) == (4, 5, 2)


@settings(deadline=None)
@given(st.text(alphabet='m_total{}="\\,. \n0123NaNe+-h_bucketle#', max_size=200))
def test_no_text_breaks_it(text: str) -> None:
    scrape = parse(text, WANTED)
    for name in ("m", "m_total"):
        value = scrape.total(name)
        assert value is None or math.isfinite(value)
    scrape.histogram("h")


def test_a_histogram_adds_label_sets_and_subtracts_an_earlier_one() -> None:
    text = """
h_bucket{x="1",le="0.01"} 1
h_bucket{x="1",le="0.02"} 3
h_bucket{x="1",le="+Inf"} 4
h_bucket{x="2",le="0.01"} 1
h_bucket{x="2",le="0.02"} 1
h_bucket{x="2",le="+Inf"} 1
h_sum{x="1"} 0.4
h_sum{x="2"} 0.1
h_count{x="1"} 4
h_count{x="2"} 1
"""
    whole = parse(text, WANTED).histogram("h")
    assert whole == Histogram(sum_s=0.5, count=5, buckets=((0.01, 2), (0.02, 4), (math.inf, 5)))
    earlier = Histogram(sum_s=0.2, count=2, buckets=((0.01, 2), (0.02, 2), (math.inf, 2)))
    assert whole is not None
    late = whole.since(earlier)
    assert (late.count, late.buckets) == (3, ((0.01, 0), (0.02, 2), (math.inf, 3)))


def test_a_quantile_says_only_what_its_bucket_bounds() -> None:
    buckets = ((0.01, 60.0), (0.02, 98.0), (math.inf, 100.0))
    seen = latency(Histogram(sum_s=1.0, count=100.0, buckets=buckets), 2.0)
    assert seen is not None
    assert seen.mean_ms == 10.0 and seen.over_s == 2.0
    assert seen.p50_ms is None, "somewhere in the first bucket: vLLM's ends at 10 ms"
    assert seen.p99_ms is None, "somewhere above the last bound"
    inner = latency(Histogram(sum_s=1.0, count=100.0, buckets=((0.01, 10.0), (0.02, 99.0), (math.inf, 100.0))), None)
    assert inner is not None and (inner.p50_ms, inner.p99_ms) == (20.0, 20.0)


def test_nothing_counted_is_no_latency() -> None:
    assert latency(Histogram(sum_s=0.0, count=0.0), None) is None
    assert latency(Histogram(sum_s=-1.0, count=5.0), None) is None
