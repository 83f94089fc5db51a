"""What one GPU must hold at least, and whether it can: weights, KV and state of the plan beside its memory. Pure.

A hard bound as the bytes of a step are: whatever could be shared is shared, stages hold alike, and activations, graphs
and the driver's own part take nothing. So what does not fit here fits nowhere, and what fits may still be refused.
"""

from __future__ import annotations

import math

from decodetop.floor import cache, drafting
from decodetop.floor.load import shards
from decodetop.floor.model import Model
from decodetop.floor.reading import Capacity, Plan


def of(model: Model, plan: Plan, kv_dtype: str, memory: float | None) -> Capacity:
    """Bytes; `memory` = of one GPU, None where it is not known. Raises DataError for a KV format that is not known."""
    shape, groups = model.shape, plan.tp // plan.dp_attention
    main = [one for one in model.weights if not one.draft]
    parts = [(shape, shape.layers, main)]
    if plan.draft_steps:  # engines leave the draft layers in the file otherwise
        draft = drafting.of(model)
        parts.append((draft.shape, draft.layers, [*draft.weights]))
    weights = kv = state = 0.0
    for shape, layers, loaded in parts:
        weights += sum(one.bytes * one.count / shards(one.role, plan, shape, "low") for one in loaded) / plan.pp
        kv += sum(cache.held_kv(shape, layer, plan.context, kv_dtype, groups) for layer in layers) / plan.pp
        state += sum(cache.held_state(shape, layer, groups) for layer in layers) / plan.pp
    sequences = math.ceil(plan.batch / plan.dp_attention)
    total = weights + sequences * (kv + state)
    return Capacity(
        weights=weights,
        kv=sequences * kv,
        state=sequences * state,
        total=total,
        memory=memory,
        fits=None if memory is None else total <= memory,
        sequences=None if memory is None or not kv + state else _room(memory - weights, kv + state, plan.dp_attention),
    )


def _room(left: float, sequence: float, groups: int) -> int:
    """Sequences whose cache fits in what the weights leave, over all attention groups."""
    return max(0, math.floor(left / sequence)) * groups
