"""Bytes and arithmetic under a plan: what is shared, what is whole on every GPU, experts, speculation."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodetop.errors import DataError, UsageError
from decodetop.floor import experts, load
from decodetop.floor.floor import compute, compute_ms_of
from decodetop.floor.hardware import Card, named
from decodetop.floor.hardware import load as cards
from decodetop.floor.model import Model, open_model
from decodetop.floor.reading import FloorReport, Hardware, Plan

CONFIGS = Path(__file__).parent / "configs"
H200 = named("H200", cards())


def model_of(name: str, dtype: str | None = None) -> Model:
    path = CONFIGS / name
    return open_model(path if path.is_dir() else path.with_name(f"{name}.json"), dtype)


def report_of(name: str, card: Card = H200, *, dtype: str | None = None, **plan: object) -> FloorReport:
    made = {"context": 1, **plan}
    return compute(model_of(name, dtype), Plan(**made), card, sweep=False)  # type: ignore[arg-type]


def test_case_1_a_box_at_its_limit() -> None:
    """27B in BF16 on two A6000, three draft steps: the worked example of the reference notes."""
    report = report_of("qwen3.5-27b", named("RTX A6000", cards()), tp=2, draft_steps=3, verify_tokens=4)
    assert report.parts_ms.weights == pytest.approx(33.4, abs=0.05)
    assert report.parts_ms.draft == pytest.approx(6.63, abs=0.02)
    assert report.parts_ms.state == pytest.approx(0.20, abs=0.01)
    assert report.t_phys_ms == pytest.approx(40.2, abs=0.05)
    assert 0.82 <= report.weights_share_of_bytes <= 0.84
    assert report.tok_s_at_floor is None
    assert any("accept length" in line and "not measured" in line for line in report.assumptions)
    known = report_of(
        "qwen3.5-27b", named("RTX A6000", cards()), tp=2, draft_steps=3, verify_tokens=4, accept_length=2.33
    )
    assert known.tok_s_at_floor == pytest.approx(2.33 / 40.18e-3, rel=0.002)


def test_latent_attention_keeps_modules_whole_on_every_gpu() -> None:
    """GLM-5-NVFP4 over 8 GPUs: 5.51 GB if all could be shared, 9.20 GB as engines do it; 44.06 GB in all."""
    report = report_of("glm-5-nvfp4", tp=8)
    assert report.bytes_low.weights / 1e9 == pytest.approx(5.51, abs=0.01)
    assert report.bytes.weights / 1e9 == pytest.approx(9.20, abs=0.01)
    assert report_of("glm-5-nvfp4").bytes.weights / 1e9 == pytest.approx(44.06, abs=0.01)
    assert report.model.kv_dtype == "fp8"


def test_kv_is_whole_where_heads_are_fewer_than_gpus() -> None:
    one, many = (report_of("qwen3-30b-a3b", tp=tp, context=10_000) for tp in (1, 8))
    assert one.bytes.kv == 48 * 2 * 4 * 128 * 10_000 * 2
    assert many.bytes.kv == one.bytes.kv / 4
    latent = report_of("deepseek-v3", tp=8, context=10_000)
    assert latent.bytes.kv == 61 * 576 * 10_000 * 2
    grouped = report_of("deepseek-v3", tp=8, dp_attention=8, batch=8, context=10_000)
    assert grouped.bytes.kv == latent.bytes.kv


def test_attention_groups_hold_whole_attention_weights_and_head() -> None:
    shared, grouped = report_of("deepseek-v3", tp=8), report_of("deepseek-v3", tp=8, dp_attention=8)
    whole = report_of("deepseek-v3")
    # fp32 scales aside: q_b, kv_b and o of 61 layers, and the head
    more = 61 * (1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168) * 7 / 8 + 129280 * 7168 * 2 * 7 / 8
    assert grouped.bytes.weights - shared.bytes.weights == pytest.approx(more, rel=0.001)
    assert grouped.bytes.weights < whole.bytes.weights
    assert any("attention group" in line for line in grouped.assumptions)


def test_pipeline_stages_are_summed() -> None:
    assert report_of("llama-3.1-70b", pp=4).t_phys_ms == pytest.approx(report_of("llama-3.1-70b").t_phys_ms)
    four = report_of("llama-3.1-70b", pp=4)
    assert four.t_prac_ms - report_of("llama-3.1-70b").t_prac_ms == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("count", "top_k", "tokens", "expected"),
    [
        (256, 8, 1, 8), (256, 8, 8, 57.4), (256, 8, 128, 252), (128, 8, 4, 29.1), (128, 4, 16, 51.0),
        (512, 10, 32, 240),        (384, 8, 64, 284), (160, 8, 2, 15.6), (8, 2, 4, 5.5),
    ],
)  # fmt: skip
def test_experts_hit(count: int, top_k: int, tokens: int, expected: float) -> None:
    hit = experts.hit(count, top_k, tokens)
    assert hit.expected == pytest.approx(expected, rel=0.01)
    assert (hit.low, hit.high) == (top_k, min(count, tokens * top_k))


@pytest.mark.parametrize(
    ("count", "ranks", "tokens", "most"),
    [
        (256, 8, 1, 2.55), (256, 8, 4, 6.6), (256, 8, 16, 16.7), (256, 8, 64, 30.3), (256, 4, 1, 3.5),
        (256, 4, 4, 10.4), (256, 4, 16, 29.6), (256, 4, 64, 58),
        (128, 8, 1, 2.5), (128, 8, 4, 6.1), (128, 8, 16, 13.0), (128, 8, 64, 16),
    ],
)  # fmt: skip
def test_the_slowest_rank_of_expert_parallelism(count: int, ranks: int, tokens: int, most: float) -> None:
    """Monte-Carlo figures of the reference notes, section 2.4."""
    assert experts.hit(count, 8, tokens, ranks).expected == pytest.approx(most, rel=0.05)


def test_the_slowest_rank_of_more_experts_than_any_model_has() -> None:
    """The number of ways to hit them is beyond a float."""
    hit = experts.hit(10_000, 8, 64, 2)
    assert 250 < hit.expected < 270
    assert experts.hit(10_000, 10_000, 1, 2).expected == 5000


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 512), st.data())
def test_experts_keep_their_order(count: int, data: st.DataObject) -> None:
    top_k = data.draw(st.integers(1, count))
    ranks = data.draw(st.sampled_from([1, 2, 4, 8]).filter(lambda ranks: count % ranks == 0))
    fewer, more = sorted(data.draw(st.tuples(st.integers(1, 300), st.integers(1, 300))))
    one, two = (experts.hit(count, top_k, tokens, ranks) for tokens in (fewer, more))
    assert one.low <= one.expected <= one.high <= count
    assert one.expected <= two.expected + 1e-9


def test_expert_parallelism_reads_whole_experts() -> None:
    """At batch 1 the slowest of 8 GPUs reads about 2.5 times what tensor parallelism reads."""
    tensor, expert = report_of("deepseek-v3", tp=8), report_of("deepseek-v3", tp=8, ep=8)
    assert expert.experts is not None and expert.experts.low == 1
    moved = expert.bytes.weights - tensor.bytes.weights
    assert moved / 1e9 == pytest.approx((2.6 - 1) * 58 * 3 * 7168 * 2048 / 1e9, rel=0.06)


@pytest.mark.parametrize(
    ("name", "dtype", "steps", "accept"),
    [
        ("qwen3.5-27b", None, 1, 1.066), ("qwen3.5-27b", None, 2, 1.132), ("qwen3.5-27b", None, 3, 1.199),
        ("qwen3.5-122b-a10b", None, 1, 1.49), ("qwen3.5-122b-a10b", None, 2, 1.98),
        ("qwen3.5-122b-a10b", None, 3, 2.45),
        ("qwen3.5-122b-a10b", "fp8", 1, 1.53), ("qwen3.5-122b-a10b", "fp8", 3, 2.56),
    ],
)  # fmt: skip
def test_break_even_accept_length(name: str, dtype: str | None, steps: int, accept: float) -> None:
    report = report_of(name, dtype=dtype, draft_steps=steps, verify_tokens=steps + 1)
    assert report.break_even_accept_length == pytest.approx(accept, rel=0.02)


def test_a_draft_without_draft_layers_reads_nothing_and_says_so() -> None:
    report = report_of("qwen3-8b", draft_steps=3, verify_tokens=4)
    assert report.bytes.draft == 0
    assert any("no draft layers" in line for line in report.assumptions)


def test_arithmetic_bounds_large_batches() -> None:
    """H100 in BF16: at about 295 sequences the arithmetic takes as long as the bytes."""
    card = named("H100 SXM", cards())
    below, above = (report_of("llama-3.1-70b", card, batch=batch) for batch in (200, 400))
    assert (below.bound, above.bound) == ("memory", "compute")
    assert above.t_phys_ms == above.t_compute_ms
    knee = above.t_compute_ms / above.t_memory_ms * 400 if above.t_compute_ms else 0
    assert 400 / (above.t_compute_ms or 1) * above.t_memory_ms == pytest.approx(295, rel=0.03)
    assert knee > 400


def test_formats_have_their_own_peak() -> None:
    card = Hardware(
        name="x", memory=None, bandwidth_gb_s=1, practical_gb_s=1, peak_bf16_tflops=100, peak_fp8_tflops=200,
        peak_fp4_tflops=400,
    )  # fmt: skip
    one = 1e11
    assert compute_ms_of({"bf16": one, "fp8": one, "fp4": one, "int8": one}, card) == pytest.approx(
        1 + 0.5 + 0.25 + 0.5
    )
    plain = Hardware(name="x", memory=None, bandwidth_gb_s=1, practical_gb_s=1, peak_bf16_tflops=100)
    assert compute_ms_of({"bf16": one, "fp8": one, "fp4": one, "int8": one}, plain) == pytest.approx(3.5)
    unknown = Hardware(name="x", memory=None, bandwidth_gb_s=1, practical_gb_s=1)
    assert compute_ms_of({"bf16": one}, unknown) is None


def test_flops_of_a_token() -> None:
    """Two a parameter read, and attention."""
    report = report_of("llama-3.1-8b", context=8192)
    attention = 32 * 4 * 32 * 128 * 8192
    assert report.flops == pytest.approx(2 * 7.505e9 + attention, rel=0.001)
    assert report_of("llama-3.1-8b", context=8192, tp=8).flops == pytest.approx(report.flops / 8)


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        ({"tp": 0}, "tp = 0"),
        ({"tp": 8, "ep": 3}, r"can't be parted in 3 \(ep\)"),
        ({"tp": 8, "dp_attention": 5}, "dp_attention"),
        ({"pp": 99}, "99 stages"),
        ({"tp": 7}, "32 attention heads"),
        ({"tp": 2, "ep": 2}, "without experts"),
        ({"batch": -1}, "batch = -1"),
    ],
)
def test_plans_that_no_engine_runs(plan: dict[str, int], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        load.check(Plan(**plan), model_of("llama-3.1-8b").shape)  # type: ignore[arg-type]


def test_kv_formats() -> None:
    half = report_of("llama-3.1-8b", context=1000, kv_dtype="fp8_e4m3")
    assert half.bytes.kv * 2 == report_of("llama-3.1-8b", context=1000).bytes.kv
    with pytest.raises(DataError, match="KV dtype 'posit8' is not known"):
        report_of("llama-3.1-8b", kv_dtype="posit8")


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "glm-5-nvfp4", "qwen3.5-122b-a10b", "nemotron-3-nano-30b-a3b"]),
    st.sampled_from([1, 2]),
    st.integers(1, 64),
    st.integers(1, 50_000),
)
def test_bounds_keep_their_order_and_parts_sum(name: str, tp: int, batch: int, context: int) -> None:
    report = report_of(name, tp=tp, batch=batch, context=context)
    assert report.bytes_low.total <= report.bytes.total * (1 + 1e-12) <= report.bytes_high.total * (1 + 1e-9)
    assert 0 < report.t_phys_ms <= report.t_prac_ms
    parts = report.parts_ms
    total = parts.weights + parts.kv + parts.state + parts.draft + parts.allreduce + parts.per_layer
    assert total + parts.efficiency + parts.compute == pytest.approx(report.t_prac_ms)
    more = report_of(name, tp=tp, batch=batch + 1, context=context + 1)
    assert more.t_phys_ms >= report.t_phys_ms


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        ({"draft_steps": 3, "verify_tokens": 4, "accept_length": 9.0}, "accept length 9, but .* 4 tokens"),
        ({"draft_steps": 3, "verify_tokens": 4, "accept_length": 0.5}, "1 token or more"),
        ({"accept_length": 0.5}, "1 token or more"),
        ({"draft_steps": 3, "verify_tokens": 1}, "3 draft steps, but 1 token"),
    ],
)
def test_speculation_that_can_not_be_is_refused(plan: dict[str, object], word: str) -> None:
    """An accept length of 9 with 3 drafts gave 2,864 tok/s at the bound."""
    with pytest.raises(UsageError, match=word):
        report_of("llama-3.1-8b", **plan)
