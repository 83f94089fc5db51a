"""What the floor takes for granted, in words: every line is something that could be otherwise. Pure."""

from __future__ import annotations

from decodetop.core.words import significant
from decodetop.floor.hardware import Card
from decodetop.floor.load import Load
from decodetop.floor.model import Model
from decodetop.floor.practice import Practice
from decodetop.floor.reading import Capacity, Plan
from decodetop.floor.text import capacity_words

SOURCES = {
    "safetensors": "bytes of the weights from the headers of the safetensors files",
    "gguf": "bytes of the weights from the header of the GGUF file",
    "config": "bytes of the weights from config.json by formula: no weight files were read",
}

ACCEPT_LENGTH = (
    "the step drafts {steps} tokens, and no accept length is given: the ceiling in tok/s needs it; not measured"
)


def assumptions(
    model: Model, plan: Plan, card: Card, seen: Load, practical: Practice, kv_note: str, held: Capacity
) -> tuple[str, ...]:
    out = [SOURCES[model.source] + (f" ({model.quantization})" if model.quantization else "")]
    out += model.notes
    out += _hardware(card)
    out.append(f"{kv_note}; {plan.batch} x {plan.context:,} tokens, each read once a step")
    out.append(capacity_words(held, plan))
    out += _plan(plan, seen)
    if model.shape.mla is not None and plan.tp > plan.dp_attention:
        out.append("every GPU reads the whole latent KV of its sequences, and engines keep latent projections whole")
    out += _experts(plan, seen)
    out += _speculation(model, plan, seen)
    out += [_constant(one.name, one.value, one.unit, one.origin, one.source) for one in practical.constants]
    out += practical.notes
    if not any(one.origin in ("measured", "user") for one in practical.constants):
        out.append("CUDA graphs are on: without them all-reduces and layers cost about three times as much")
    return tuple(out)


def _hardware(card: Card) -> list[str]:
    hardware = card.hardware
    words = f"{hardware.name}: {hardware.bandwidth_gb_s:,.0f} GB/s"
    if hardware.practical_gb_s < hardware.bandwidth_gb_s:
        words += f" bounds, {hardware.practical_gb_s:,.0f} is practice"
    words += f" ({hardware.origin}{f': {hardware.source}' if hardware.source else ''})"
    out = [words, *hardware.notes]
    if hardware.l2_bytes:
        out.append(f"{hardware.l2_bytes / 1e6:.0f} MB of the bytes may stay in the cache: the bound leaves them out")
    if hardware.peak_bf16_tflops is None:
        out.append("the card's arithmetic peak is not known: only bytes bound the step")
    return out


def _plan(plan: Plan, seen: Load) -> list[str]:
    out = []
    if plan.pp > 1:
        out.append(f"the {plan.pp} pipeline stages run one after the other: bytes and times are summed over them")
    if plan.dp_attention > 1:
        out.append("every attention group holds whole attention weights and a head of its own")
    low, expected = seen.low.weights, seen.expected.weights
    if seen.experts is None and expected > 1.01 * low:
        out.append(
            f"the bound shares every module over the GPUs ({low / 1e9:.2f} GB each); engines keep some whole on each "
            f"({expected / 1e9:.2f} GB)"
        )
    return out


def _experts(plan: Plan, seen: Load) -> list[str]:
    if seen.experts is None:
        return []
    hit = seen.experts
    out = [
        f"experts read a layer: at least {hit.low:g}, {hit.expected:.1f} with uniform routing, {hit.high:g} at most; "
        f"the bound takes the least ({seen.low.weights / 1e9:.2f} GB of weights), practice the expected "
        f"({seen.expected.weights / 1e9:.2f} GB)"
    ]
    if plan.ep > 1:
        out.append(f"whole experts on {plan.ep} GPUs: the one with most hits sets the pace")
    if plan.verify_tokens > 1:
        out.append("draft tokens of one sequence route alike, so fewer experts are read than with uniform routing")
    return out


def _speculation(model: Model, plan: Plan, seen: Load) -> list[str]:
    if not plan.draft_steps and plan.verify_tokens == 1:
        return []
    out = []
    if plan.accept_length is None:
        out.append(ACCEPT_LENGTH.format(steps=plan.draft_steps or plan.verify_tokens - 1))
    else:
        out.append(f"accept length {significant(plan.accept_length)} tokens a step, as given")
    other = model.draft_model
    if plan.draft_steps and other is not None:
        once = f"{seen.expected.draft / plan.draft_steps / 1e9:.2f} GB a GPU of {other.path}"
        kind = f", {other.notes[0]}" if other.notes else ""
        source = "config.json by formula" if other.source == "config" else f"its {other.source} headers"
        out.append(f"every draft forward reads {once}{kind}, from {source}; its KV in the target's format")
    elif plan.draft_steps and not model.shape.draft:
        out.append("the model has no draft layers: the draft is taken to read nothing (n-gram); a draft model adds")
    elif plan.draft_steps:
        out.append("every draft forward reads the draft layer and the whole head")
    return out


def _constant(name: str, value: float, unit: str, origin: str, source: str) -> str:
    return f"practice: {name} {significant(value)}{f' {unit}' if unit else ''} ({origin}: {source})"
