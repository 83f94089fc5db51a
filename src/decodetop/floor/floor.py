"""The floor of a decode step: a hard lower bound, and what the best known practice makes of it. Pure.

t_phys = max(max(0, bytes_low - cache) / bandwidth, flops / peak)
t_prac = bytes_expected / (eta x bandwidth) + all-reduces + fixed cost of the layers
Reference notes on the decode floor, section 0.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from decodetop.floor import capacity, drafting, load, practice
from decodetop.floor.assumptions import assumptions
from decodetop.floor.formats import Compute
from decodetop.floor.hardware import Card
from decodetop.floor.load import Load
from decodetop.floor.model import Model
from decodetop.floor.practice import Overrides, Practice, Traced
from decodetop.floor.reading import BatchPoint, FloorReport, Hardware, ModelFacts, Parts, Plan

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Times(NamedTuple):
    """Milliseconds a step. `compute_ms` None = the card's peak is not known."""

    phys_ms: float
    prac_ms: float
    memory_ms: float
    compute_ms: float | None
    parts: Parts

    @property
    def bound(self) -> Literal["memory", "compute"]:
        return "compute" if self.compute_ms is not None and self.compute_ms > self.memory_ms else "memory"


def compute(
    model: Model,
    plan: Plan,
    card: Card,
    *,
    traced: Traced | None = None,
    overrides: Overrides = Overrides(),
    sweep: bool = True,
) -> FloorReport:
    """The report without a measurement: no gap, no verdict. Raises UsageError, DataError."""
    kv_dtype, kv_note = kv_dtype_of(model, plan)
    seen = load.of_plan(model, plan, kv_dtype)
    layers = drafting.of(model).layers
    practical = practice.of(model.shape, plan, card, traced, overrides, layers)
    times = times_of(seen, card.hardware, practical)
    tok_s = _tok_s(plan, times.phys_ms)
    held = capacity.of(model, plan, kv_dtype, card.hardware.memory_bytes)
    batches = _batches(model, plan, card, traced, overrides, kv_dtype) if sweep else ()
    return FloorReport(
        bytes=seen.expected,
        flops=sum(seen.flops.values()),
        t_phys_ms=times.phys_ms,
        t_prac_ms=times.prac_ms,
        t_meas_ms=None,
        parts_ms=times.parts,
        weights_share_of_bytes=seen.expected.weights / seen.expected.total,
        gap_ms=None,
        verdict=None,
        params=model.params,
        assumptions=assumptions(model, plan, card, seen, practical, kv_note, held),
        tok_s_at_floor=tok_s,
        bound=times.bound,
        bytes_low=seen.low,
        bytes_high=seen.high,
        t_memory_ms=times.memory_ms,
        t_compute_ms=times.compute_ms,
        experts=seen.experts,
        allreduces_per_step=practice.collectives(model.shape, plan, layers),
        break_even_accept_length=_break_even(model, plan, kv_dtype, seen),
        plan=plan,
        hardware=card.hardware,
        model=_facts(model, kv_dtype),
        constants=practical.constants,
        draft_layers_per_step=plan.draft_steps * len(layers),
        capacity=held,
        batches=batches,
    )


def kv_dtype_of(model: Model, plan: Plan) -> tuple[str, str]:
    """The KV format and how we know it: asked for, declared by the checkpoint, else as the weights are computed in."""
    if plan.kv_dtype is not None and plan.kv_dtype != "auto":
        return plan.kv_dtype, f"KV in {plan.kv_dtype} as given"
    if model.kv_dtype is not None:
        return model.kv_dtype, f"KV in {model.kv_dtype}, as the checkpoint declares (the engine's auto may differ)"
    dtype = "fp16" if model.shape.dtype in ("fp16", "fp32") else "bf16"
    return dtype, f"KV in {dtype}: nothing else is declared"


def times_of(seen: Load, hardware: Hardware, practical: Practice) -> Times:
    per_ms = hardware.bandwidth_gb_s * 1e6
    memory_ms = max(0.0, seen.low.total - hardware.l2_bytes) / per_ms
    compute_ms = compute_ms_of(seen.flops, hardware)
    bytes_ms = seen.expected.total / per_ms
    reached_ms = seen.expected.total / (practical.eta * hardware.practical_gb_s * 1e6)
    beyond_ms = max(0.0, (compute_ms or 0.0) - reached_ms)
    parts = Parts(
        weights=seen.expected.weights / per_ms,
        kv=seen.expected.kv / per_ms,
        state=seen.expected.state / per_ms,
        draft=seen.expected.draft / per_ms,
        allreduce=practical.allreduce_ms,
        per_layer=practical.fixed_ms,
        efficiency=reached_ms - bytes_ms,
        compute=beyond_ms,
    )
    prac_ms = reached_ms + beyond_ms + practical.allreduce_ms + practical.fixed_ms
    return Times(max(memory_ms, compute_ms or 0.0), prac_ms, memory_ms, compute_ms, parts)


def compute_ms_of(flops: dict[Compute, float], hardware: Hardware) -> float | None:
    """At the fastest format each module could use on this card; None when its BF16 peak is not known."""
    bf16 = hardware.peak_bf16_tflops
    if bf16 is None:
        return None
    fp8 = hardware.peak_fp8_tflops or bf16
    peaks = {
        "bf16": bf16,
        "fp8": fp8,
        "fp4": hardware.peak_fp4_tflops or fp8,
        # tensor cores do INT8 at twice BF16 where they do it
        "int8": max(fp8, 2 * bf16),
    }
    return sum(value / (peaks[kind] * 1e9) for kind, value in flops.items())


def _tok_s(plan: Plan, step_ms: float) -> float | None:
    """All sequences together; drafting without an accept length leaves it open."""
    accepted = plan.accept_length if plan.draft_steps or plan.verify_tokens > 1 else 1.0
    return None if accepted is None or step_ms <= 0 else plan.batch * accepted / step_ms * 1e3


def _break_even(model: Model, plan: Plan, kv_dtype: str, seen: Load) -> float | None:
    """Expected bytes of the drafting step over those of a plain one; None without drafting."""
    if not plan.draft_steps and plan.verify_tokens == 1:
        return None
    plain = msgspec.structs.replace(plan, draft_steps=0, verify_tokens=1)
    return seen.expected.total / load.of_plan(model, plain, kv_dtype).expected.total


def _batches(
    model: Model, plan: Plan, card: Card, traced: Traced | None, overrides: Overrides, kv_dtype: str
) -> tuple[BatchPoint, ...]:
    points = []
    for batch in BATCHES:
        at = msgspec.structs.replace(plan, batch=batch)
        practical = practice.of(model.shape, at, card, traced, overrides, drafting.of(model).layers)
        times = times_of(load.of_plan(model, at, kv_dtype), card.hardware, practical)
        points.append(
            BatchPoint(
                batch=batch,
                t_phys_ms=times.phys_ms,
                t_prac_ms=times.prac_ms,
                tok_s=_tok_s(at, times.prac_ms),
                bound=times.bound,
                fits=capacity.of(model, at, kv_dtype, card.hardware.memory_bytes).fits,
            )
        )
    return tuple(points)


def _facts(model: Model, kv_dtype: str) -> ModelFacts:
    shape = model.shape
    return ModelFacts(
        path=model.path,
        family=shape.family,
        source=model.source,
        layers=len(shape.layers),
        quantization=model.quantization,
        kv_dtype=kv_dtype,
        is_moe=shape.moe is not None,
        is_mla=shape.mla is not None,
        draft_layers=len(shape.draft),
        draft_model=model.draft_model.path if model.draft_model is not None else None,
        kv_heads=shape.kv_heads,
    )
