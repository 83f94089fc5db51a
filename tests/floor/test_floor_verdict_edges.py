"""Verdicts where inputs contradict each other, and over any mix of kernels: no figure that can't be."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodetop.floor import moves, text
from decodetop.floor.evidence import Clocks
from decodetop.floor.floor import compute
from decodetop.floor.hardware import named
from decodetop.floor.measured import measure, traced_of
from decodetop.floor.reading import FloorReport, Plan
from decodetop.floor.verdict import judged
from support.judged import SPECS, config_of, judge, rank

KINDS = ["gemm", "moe", "attention", "linear_attention", "kv_write", "copy", "norm", "communication", "other"]
CLOCKS = [
    None,
    Clocks(),
    Clocks(sm=0, sm_max=0, memory=0, memory_max=0, power_w=0, power_limit_w=0, busy_percent=0),
    Clocks(sm=210, sm_max=1980, memory=405, memory_max=3201, reasons=0x4, power_w=600, power_limit_w=700),
    Clocks(sm=1980, sm_max=1980, memory=3201, memory_max=3201, power_w=200, power_limit_w=700, busy_percent=100.0),
]
MODELS = ["qwen3-8b", "qwen3-30b-a3b", "glm-5-nvfp4", "qwen3.5-27b", "gpt-oss-20b", "nemotron-3-nano-30b-a3b"]
IMPOSSIBLE = re.compile(r"-\d[\d.,]* %|\bnan\b|\binf\b|\b(?:10[6-9]|1[1-9]\d|[2-9]\d\d|\d{4,}) %")
"""A negative share, one beyond the tolerance of kernel times, or no number at all."""


def of(step_ms: float, model: str = "qwen3-8b", tp: int = 1, **kinds: float) -> FloorReport:
    plan = Plan(context=500, tp=tp)
    seen = measure(plan, token_ms=step_ms, steps=rank(**kinds))
    return judged(compute(config_of(model), plan, named("H200", SPECS), sweep=False), seen)


def test_kernels_that_take_longer_than_the_step_are_of_another() -> None:
    """A cast of 9 ms can't be 113 % of a step of 8 ms: trace and time per token are of two loads."""
    verdict = of(8.0, gemm=1.0, copy=9.0).verdict
    assert verdict is not None
    assert (verdict.id, verdict.confidence) == ("not_enough_evidence", "high")
    assert "not of the same step" in verdict.sentence
    assert "the kernels of the trace take 10.0 ms a step, and 8.00 ms were measured" in verdict.because[0]


def test_the_profiled_step_is_its_own() -> None:
    seen = measure(Plan(), steps=rank(gemm=4.0, copy=6.0))
    report = judged(compute(config_of("qwen3-8b"), Plan(), named("H200", SPECS), sweep=False), seen)
    assert report.verdict is not None and report.verdict.id == "copy_bound"


def test_all_reduces_by_the_table_can_not_be_more_than_the_step() -> None:
    plan = Plan(tp=8, batch=256)
    card = named("RTX PRO 6000", SPECS)
    seen = measure(plan, token_ms=5.0)
    verdict = judged(compute(config_of("qwen3-8b"), plan, card, sweep=False), seen).verdict
    assert verdict is not None and verdict.id != "communication_bound"
    assert any("more than the step: the link is another" in one.because for one in verdict.ruled_out)


def test_a_dense_model_has_no_experts_to_read_fewer_of() -> None:
    """Within the jitter of kernel times above the card's bandwidth."""
    report = of(4.0, gemm=3.1)
    assert report.verdict is not None
    words = " ".join((*report.verdict.because, *(one.because for one in report.verdict.ruled_out)))
    assert "at the full bandwidth of the card" in words and "expected bytes" not in words


def test_shares_say_which_step_they_are_of() -> None:
    real, profiled = judge("sgl_tp1_c1", token_ms=5.11), judge("sgl_tp1_c1")
    assert real.verdict is not None and profiled.verdict is not None
    words = "shares are of it, the step breakdown's are of the profiled step"
    assert any(words in line for line in real.verdict.because)
    assert not any(words in line for line in profiled.verdict.because)


@pytest.mark.parametrize("gain", ["weights-4-bit", "more-gpus"])
def test_no_move_gains_more_than_the_step(gain: str) -> None:
    """64 sequences read fewer experts than uniform routing expects: the step shows it."""
    plan = Plan(batch=64)
    report = compute(config_of("qwen3-30b-a3b"), plan, named("H200", SPECS), sweep=False)
    report = judged(report, measure(plan, token_ms=report.t_phys_ms * 1.01))
    found = {move.id: move for move in moves.offered(report, named("H200", SPECS), None, None).moves}
    assert report.t_meas_ms is not None
    assert 0 < (found[gain].gain_ms or 0.0) < report.t_meas_ms


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_mix_of_kernels_gives_a_verdict_with_figures_that_can_be(data: st.DataObject) -> None:
    left, kinds = 10.0, {}
    for name in data.draw(st.lists(st.sampled_from(KINDS), unique=True, max_size=5)):
        kinds[name] = left * data.draw(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]))
        left -= kinds[name]
    steps = rank(**kinds)
    waiting = data.draw(st.sampled_from([None, 0.0, kinds.get("communication", 0.0) * 500]))
    one = steps.ranks[0]
    one = msgspec.structs.replace(
        one,
        graph_launches_per_step=data.draw(st.sampled_from([None, 0, 40])),
        communication_us=msgspec.structs.replace(one.communication_us, waiting=waiting),
        kernels_per_step=data.draw(st.sampled_from([None, 0, 500])),
    )
    draft = data.draw(st.sampled_from([0, 3]))
    plan = Plan(
        tp=data.draw(st.sampled_from([1, 2, 4, 8])),
        batch=data.draw(st.sampled_from([1, 8, 256])),
        context=data.draw(st.sampled_from([1, 500, 100_000])),
        draft_steps=draft,
        verify_tokens=draft + 1,
        accept_length=data.draw(st.sampled_from([None, 1.0, 2.5])),
    )
    measured = measure(
        plan,
        token_ms=data.draw(st.sampled_from([None, 0.001, 1.0, 5.0, 10.0, 30.0])),
        steps=data.draw(st.sampled_from([None, msgspec.structs.replace(steps, ranks=(one,))])),
    )
    card = named(data.draw(st.sampled_from(["H200", "RTX A6000", "B200", "RTX 4090"])), SPECS)
    model = config_of(data.draw(st.sampled_from(MODELS)))
    report = compute(model, plan, card, traced=traced_of(measured.breakdown), sweep=False)
    report = moves.offered(judged(report, measured, data.draw(st.sampled_from(CLOCKS))), card, None, None)
    assert report.verdict is not None
    if report.gap_ms is not None and report.t_meas_ms is not None:
        assert sum(report.gap_ms.values()) == pytest.approx(report.t_meas_ms - report.t_phys_ms)
    for line in (*text.explain(report, 1000), report.verdict.sentence):
        assert not IMPOSSIBLE.search(line), line
