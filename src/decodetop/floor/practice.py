"""What practice adds to the hard bound: each constant with its value and where it is from. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from decodetop.floor import links
from decodetop.floor.hardware import Card
from decodetop.floor.reading import Constant, Plan
from decodetop.floor.shape import Layer, Shape

ETA = {"GDDR": 0.91, "HBM": 0.87, "LPDDR": 0.85}
"""Share of the bandwidth that the best kernels reach (reference notes, section 2.10); 0.80 is typical."""
ETA_UNKNOWN = 0.85

LAYER_US_DENSE = 60.0
LAYER_US_MOE = 45.0
LAYER_US_HOPPER = 35.0
KERNEL_US = 2.0
"""A small kernel in a CUDA graph, launch gap included (reference notes, sections 0 and 2.10)."""

_FITTED = "fitted on published decode speeds"


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """From a step breakdown: kernels of a step without collectives."""

    kernels: int


class Practice(msgspec.Struct, frozen=True, kw_only=True):
    """`fixed_ms` = what layers cost beyond their bytes; the constants are in the order shown."""

    eta: float
    allreduce_ms: float
    fixed_ms: float
    constants: tuple[Constant, ...]
    notes: tuple[str, ...] = ()


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """What the user gave, or what was measured on this box before (the names in `measured`, from `source`)."""

    eta: float | None = None
    allreduce_us: float | None = None
    layer_us: float | None = None
    measured: tuple[str, ...] = ()
    source: str = ""

    def constant(self, field: str, name: str, unit: str) -> Constant | None:
        value: float | None = getattr(self, field)
        if value is None:
            return None
        if field in self.measured:
            return Constant(name=name, value=value, unit=unit, origin="measured", source=f"calibration: {self.source}")
        return Constant(name=name, value=value, unit=unit, origin="user", source="given")


def of(
    shape: Shape,
    plan: Plan,
    card: Card,
    traced: Traced | None,
    own: Overrides = Overrides(),
    draft: Sequence[Layer] | None = None,
) -> Practice:
    """`draft` = the layers of a draft forward, the model's own without."""
    draft = shape.draft if draft is None else draft
    notes: list[str] = []
    eta = _eta(card, own)
    reduce, count = _allreduce(shape, plan, card, own, notes, draft)
    fixed_ms, fixed = _fixed(shape, plan, card, traced, own, draft)
    constants = [eta, *([reduce] if count else []), fixed]
    sends_ms = (plan.pp - 1) * links.P2P_US / 1e3
    return Practice(
        eta=eta.value,
        allreduce_ms=count * reduce.value / 1e3 + sends_ms,
        fixed_ms=fixed_ms,
        constants=tuple(constants),
        notes=tuple(notes),
    )


def collectives(shape: Shape, plan: Plan, draft: Sequence[Layer]) -> int:
    """All-reduces (or what stands for them) of one step, draft forwards included."""
    if plan.tp < 2:
        return 0
    halves = sum((layer.mixer != "none") + (layer.ffn != "none") for layer in draft)
    return shape.collectives + plan.draft_steps * (halves + 2 if halves else 0)


def _eta(card: Card, own: Overrides) -> Constant:
    name = "share of the bandwidth that kernels reach"
    own_one = own.constant("eta", name, "")
    if own_one is not None:
        return own_one
    memory = card.hardware.memory or ""
    value = next((value for kind, value in ETA.items() if memory.startswith(kind)), ETA_UNKNOWN)
    source = f"best kernels on {memory}" if memory else "memory type not known"
    return Constant(name=name, value=value, unit="", origin="default", source=source)


def _allreduce(
    shape: Shape, plan: Plan, card: Card, own: Overrides, notes: list[str], draft: Sequence[Layer]
) -> tuple[Constant, int]:
    count = collectives(shape, plan, draft)
    message = plan.batch * plan.verify_tokens * shape.hidden * 2.0 / plan.dp_attention
    cost = links.allreduce(card.hardware, card.arch, card.pcie_gen, plan.tp, message)
    if cost.beyond_table:
        notes.append(f"all-reduce over {plan.tp} GPUs is beyond the table: the figure for the largest number is taken")
    name = f"one all-reduce over {plan.tp} GPUs ({card.hardware.link})"
    table = Constant(name=name, value=cost.us, unit="us", origin="table", source=cost.source)
    return own.constant("allreduce_us", name, "us") or table, count


def _fixed(
    shape: Shape, plan: Plan, card: Card, traced: Traced | None, own: Overrides, draft: Sequence[Layer]
) -> tuple[float, Constant]:
    if own.layer_us is None and traced is not None:
        constant = Constant(
            name=f"one of {traced.kernels} kernels a step",
            value=KERNEL_US,
            unit="us",
            origin="measured",
            source="kernels counted in the trace, about 2 us each",
        )
        return traced.kernels * KERNEL_US / 1e3, constant
    layers = sum((layer.mixer != "none") + (layer.ffn != "none") for layer in shape.layers) / 2
    layers += plan.draft_steps * len(draft)
    name = "a layer beyond its bytes"
    constant = own.constant("layer_us", name, "us") or _layer_default(shape, card, name)
    return layers * constant.value / 1e3, constant


def _layer_default(shape: Shape, card: Card, name: str) -> Constant:
    if shape.moe is not None:
        us, source = LAYER_US_MOE, f"{_FITTED}: 45 to 142 us, the lowest is taken"
    elif card.arch in ("hopper", "blackwell"):
        us = LAYER_US_HOPPER
        source = "recordings of SGLang 0.5.15 and vLLM 0.24 with graphs on H200: 35 to 42 us"
    else:
        us, source = LAYER_US_DENSE, f"{_FITTED}: 54 to 71 us"
    return Constant(name=name, value=us, unit="us", origin="default", source=source)
