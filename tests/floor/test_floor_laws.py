"""Laws that hold for every model, plan and card: nothing crashes, what must grow grows, parts are the whole."""

from __future__ import annotations

import json
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from decodetop.floor import capacity, load, text
from decodetop.floor.evidence import Clocks
from decodetop.floor.families import FAMILIES
from decodetop.floor.floor import compute
from decodetop.floor.hardware import load as cards
from decodetop.floor.hardware import named
from decodetop.floor.measured import measure
from decodetop.floor.model import Model, open_model
from decodetop.floor.reading import Bytes, FloorReport, Plan
from decodetop.floor.verdict import judged
from support.judged import config_of, rank
from support.model_configs import configs

SPECS = cards()
LAW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CARDS = st.sampled_from([named(spec.name, SPECS) for spec in SPECS])
PARTS = ("weights", "kv", "state", "draft")
EVEN = 1 - 1e-9


def model_of(config: dict[str, Any]) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config), "utf-8")
        return open_model(path)


models = configs().map(model_of)


@st.composite
def plans(draw: st.DrawFn, most: int = 8) -> Plan:
    tp = draw(st.sampled_from([one for one in (1, 2, 4, 8) if one <= most]))
    drafts = draw(st.integers(0, 4))
    return Plan(
        tp=tp,
        dp_attention=draw(st.sampled_from([one for one in (1, 2, 4, 8) if one <= tp])),
        batch=draw(st.integers(1, 600)),
        context=draw(st.integers(1, 200_000)),
        kv_dtype=draw(st.sampled_from([None, "bf16", "fp8", "int8_per_token_head", "nvfp4"])),
        draft_steps=drafts,
        verify_tokens=drafts + 1,
        accept_length=draw(st.sampled_from([None, 1.0])),
    )


def finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(finite, value))
    return not isinstance(value, float) or (math.isfinite(value) and value >= 0)


@pytest.mark.parametrize("family", sorted(FAMILIES))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_family_has_a_floor(family: str, data: st.DataObject) -> None:
    model = model_of(data.draw(configs(st.just(family))))
    report = compute(model, data.draw(plans()), data.draw(CARDS))
    assert model.shape.family == family and finite(msgspec.to_builtins(report))
    assert msgspec.json.decode(msgspec.json.encode(report), type=FloorReport) == report
    assert text.lines(report, 80) and text.explain(report, 80)
    assert 0 < report.params.active_without_embedding <= report.params.active <= report.params.total


@LAW
@given(models, plans(), CARDS)
def test_parts_are_the_whole_and_practice_is_not_below_the_bound(model: Model, plan: Plan, card: Any) -> None:
    report = compute(model, plan, card, sweep=False)
    assert sum(msgspec.to_builtins(report.parts_ms).values()) == pytest.approx(report.t_prac_ms)
    assert report.t_prac_ms >= report.t_phys_ms * EVEN
    assert report.t_phys_ms == max(report.t_memory_ms, report.t_compute_ms or 0.0)
    for part in PARTS:
        low, expected, high = (getattr(one, part) for one in (report.bytes_low, report.bytes, report.bytes_high))
        assert low * EVEN <= expected <= high / EVEN
    held = report.capacity
    assert held is not None and held.total == pytest.approx(held.weights + held.kv + held.state)
    assert held.fits is None or held.fits == (held.total <= (held.memory or 0))


@LAW
@given(models, plans(), st.integers(1, 600), st.integers(1, 200_000))
def test_more_sequences_and_more_context_never_cost_less(model: Model, plan: Plan, batch: int, context: int) -> None:
    """But for a chunk that begins anew: Llama-4's layers read back to its start only."""
    assume(not any(layer.chunked for layer in model.shape.layers))
    card = named("H200", SPECS)
    first, second = sorted((plan.batch, batch)), sorted((plan.context, context))
    less, more = (
        compute(model, msgspec.structs.replace(plan, batch=b, context=c), card, sweep=False)
        for b, c in zip(first, second, strict=True)
    )
    for name in ("bytes_low", "bytes", "bytes_high"):
        for part in PARTS:
            assert getattr(getattr(less, name), part) * EVEN <= getattr(getattr(more, name), part)
    assert less.t_phys_ms * EVEN <= more.t_phys_ms and less.t_prac_ms * EVEN <= more.t_prac_ms
    assert less.flops <= more.flops
    assert less.capacity is not None and more.capacity is not None and less.capacity.total <= more.capacity.total


@LAW
@given(configs(), plans())
def test_wider_weights_and_kv_never_cost_less(config: dict[str, Any], plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config), "utf-8")
        held = [
            load.of_plan(open_model(path, name), plan, "bf16").expected.total
            for name in ("nvfp4", "fp8", "bf16", "fp32")
        ]
        model = open_model(path)
    assert held == sorted(held)
    kv = [load.of_plan(model, plan, name).expected.kv for name in ("fp4", "fp8", "fp8_per_token_head", "bf16", "fp32")]
    assert kv == sorted(kv)


@LAW
@given(models, plans(1), st.sampled_from([2, 4, 8]), st.booleans(), st.data())
def test_parting_a_model_over_gpus_loses_no_byte(
    model: Model, plan: Plan, tp: int, whole_experts: bool, data: st.DataObject
) -> None:
    """All GPUs together read and hold what one would, or more: what is kept whole on each."""
    ep = tp if whole_experts and model.shape.moe is not None else 1
    groups = data.draw(st.sampled_from([one for one in (1, 2, 4, 8) if tp % one == 0]))
    kv_dtype = "bf16"
    parted = msgspec.structs.replace(plan, tp=tp, ep=ep, dp_attention=groups)
    one, many = (load.of_plan(model, at, kv_dtype) for at in (plan, parted))
    for bound in ("low", "expected", "high"):
        alone: Bytes = getattr(one, bound)
        each: Bytes = getattr(many, bound)
        for part in PARTS:
            assert tp * getattr(each, part) >= getattr(alone, part) * EVEN, (bound, part)
    here, there = (capacity.of(model, at, kv_dtype, None) for at in (plan, parted))
    assert tp * there.weights >= here.weights * EVEN and tp * (there.kv + there.state) >= (here.kv + here.state) * EVEN


KINDS = ("gemm", "moe", "attention", "linear_attention", "copy", "communication", "norm", "elementwise")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["qwen3-8b", "glm-5-nvfp4", "qwen3-30b-a3b", "qwen3.5-27b", "gpt-oss-120b"]),
    plans(),
    st.dictionaries(st.sampled_from(KINDS), st.floats(0, 10), max_size=6),
    st.one_of(st.none(), st.floats(0.05, 300)),
    st.one_of(st.none(), st.floats(0.9, 3.0)),
    st.booleans(),
    st.builds(
        Clocks,
        sm=st.integers(1, 2000), sm_max=st.just(1980), memory=st.integers(1, 3300), memory_max=st.just(3201),
        reasons=st.sampled_from([0, 4, 0x40]), power_w=st.floats(1, 700), power_limit_w=st.just(700.0),
        busy_percent=st.floats(0, 100),
    ),
)  # fmt: skip
def test_a_verdict_never_contradicts_its_own_figures(
    name: str,
    plan: Plan,
    kinds: dict[str, float],
    token_ms: float | None,
    near: float | None,
    traced: bool,
    clocks: Clocks,
) -> None:
    scale = 10 / max(10.0, sum(kinds.values()) / 0.999)
    if near is not None:  # a plan whose bound is near what was measured is where figures meet
        bound = compute(config_of(name), plan, named("H200", SPECS), sweep=False).t_phys_ms
        token_ms = max(0.01, near * bound)
    steps = rank(**{kind: ms * scale for kind, ms in kinds.items()}) if traced else None
    seen = measure(plan, token_ms=token_ms, steps=steps)
    report = judged(compute(config_of(name), plan, named("H200", SPECS), sweep=False), seen, clocks)
    verdict = report.verdict
    assert verdict is not None and verdict.sentence
    said = [verdict.sentence, *verdict.because, *(one.because for one in verdict.ruled_out)]
    shares = [float(found.replace(",", "")) for line in said for found in re.findall(r"(-?[\d,.]+) %", line)]
    assert all(-0.05 <= share <= 106 for share in shares), said
    step = report.t_meas_ms
    if step is None or step < report.t_phys_ms:
        assert report.gap_ms is None and verdict.id == "not_enough_evidence"
        assert "%" not in verdict.sentence
    else:
        assert report.gap_ms is not None
        assert sum(report.gap_ms.values()) == pytest.approx(step - report.t_phys_ms, abs=1e-9 * step)
    if verdict.id == "hardware_bound":
        assert step is not None and report.t_phys_ms >= 0.8 * step
    if verdict.id == "memory_bound_near_limit":
        assert step is not None and report.t_prac_ms >= 0.8 * step
    if report.capacity is not None and report.capacity.fits is False and step is not None:
        assert verdict.id == "not_enough_evidence"


def test_a_cache_read_faster_than_the_card_is_of_another_load() -> None:
    """8 ms of KV by the plan, and attention took 6: the trace has fewer sequences or a shorter context."""
    plan = Plan(context=int(8e-3 * 4.8e12 / (36 * 2 * 8 * 128 * 2)))
    seen = measure(plan, token_ms=15.0, steps=rank(gemm=3.5, attention=6.0))
    verdict = judged(compute(config_of("qwen3-8b"), plan, named("H200", SPECS), sweep=False), seen).verdict
    assert verdict is not None and (verdict.id, verdict.confidence) == ("attention_bound", "low")
    said = " ".join((verdict.sentence, *verdict.because))
    assert "133 %" not in said
    assert "less than its cache needs, so the trace is of fewer sequences or a shorter context" in said
