"""Time per token without the profiler: which statistic, and how long the answers are."""

from __future__ import annotations

import pytest

from decodetop.bench.reading import Metrics, Quantiles
from decodetop.flows.capture_load import INPUT_TOKENS, itl_of, plan_of
from decodetop.flows.capture_profile import FLAG, VARIABLES, vllm_hint
from decodetop.flows.capture_shot import ranks_of
from decodetop.server.reading import Flag, Server


def quantiles(mean: float, p50: float) -> Quantiles:
    return Quantiles(n=100, mean=mean, p50=p50, p90=p50, p99=p50)


def metrics(itl: Quantiles | None, tpot: Quantiles | None) -> Metrics:
    return Metrics(
        ttft_ms=None, itl_ms=itl, icl_ms=quantiles(99.0, 98.0), tpot_ms=tpot, e2e_ms=None,
        output_tok_s=None, request_s=None, accept_length=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("itl", "tpot", "accept", "expected"),
    [
        (quantiles(5.4, 5.1), quantiles(5.3, 5.2), None, 5.1),
        (quantiles(5.4, 5.1), None, 1.0, 5.1),
        (quantiles(2.0, 1.9), quantiles(2.1, 2.2), 3.9, 2.0),  # speculation: only the mean adds up to a step
        (None, quantiles(5.3, 5.2), None, 5.2),
        (None, quantiles(2.1, 2.2), 3.9, 2.1),
        (None, None, None, None),  # a gap between chunks is no time per token
    ],
)
def test_the_time_per_token(
    itl: Quantiles | None, tpot: Quantiles | None, accept: float | None, expected: float | None
) -> None:
    assert itl_of(metrics(itl, tpot), accept) == expected


def test_the_held_load_is_the_measured_one_but_longer() -> None:
    server = Server(endpoint="http://a", served_name="tiny", context_length=16_384)
    short, held = plan_of(server, 4, 7, held=False), plan_of(server, 4, 7, held=True)
    assert (short.streams, short.input_tokens, short.model) == (held.streams, held.input_tokens, held.model)
    assert held.output_tokens > 4 * short.output_tokens and held.warmup_requests == 0 and short.warmup_requests == 4
    tight = plan_of(Server(endpoint="http://a", context_length=300), 1, 7, held=True)
    assert INPUT_TOKENS + tight.output_tokens < 300


@pytest.mark.parametrize(
    ("engine", "sizes", "flags", "ranks"),
    [
        ("sglang", {"tp": 2}, {}, 2),
        ("sglang", {"tp": 4, "pp": 2}, {}, 8),
        ("sglang", {"tp": 8, "dp": 8}, {"enable_dp_attention": "true"}, 8),
        ("sglang", {"tp": 2, "dp": 2}, {}, 4),
        ("vllm", {"tp": 2, "pp": 1, "dp": 2}, {}, 4),
        ("vllm", {}, {}, None),
    ],
)
def test_how_many_ranks_write(engine: str, sizes: dict[str, int], flags: dict[str, str], ranks: int | None) -> None:
    named = tuple(Flag(name=name, resolved=value) for name, value in flags.items())
    assert ranks_of(Server(endpoint="http://a", engine=engine, flags=named, **sizes)) == ranks  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("0.24.0", FLAG, VARIABLES),
        ("0.13.0rc1", FLAG, VARIABLES),
        ("v1.2", FLAG, VARIABLES),
        ("0.12.0", VARIABLES, FLAG),
        ("0.10.2.dev3+g123", VARIABLES, FLAG),
    ],
)
def test_which_option_a_vllm_was_started_without(version: str, has: str, lacks: str) -> None:
    assert has in vllm_hint(version) and lacks not in vllm_hint(version)


def test_a_vllm_that_hides_its_version_is_told_both() -> None:
    for version in (None, "", "main"):
        assert FLAG in vllm_hint(version) and VARIABLES in vllm_hint(version)
