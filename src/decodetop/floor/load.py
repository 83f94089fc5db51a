"""What one GPU has to read and compute in a decode step, under a plan: hard minimum, expected, maximum. Pure.

Sharding rules: reference notes on the decode floor, section 2.3. With pipeline stages a step passes them one after the
other, so bytes and arithmetic are summed over the stages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from decodetop.errors import UsageError
from decodetop.floor import cache, drafting, experts
from decodetop.floor.drafting import Drafting
from decodetop.floor.formats import Compute
from decodetop.floor.model import Model
from decodetop.floor.reading import Bytes, Experts, Plan
from decodetop.floor.shape import Layer, Shape
from decodetop.floor.weights import Role, Weights

Bound = Literal["low", "expected", "high"]

_PER_ATTENTION_GROUP = frozenset({"attention", "kv_proj", "latent", "indexer", "linear_attention"})
_REPLICATED = frozenset({"latent", "indexer", "router", "norm"})
"""Engines keep these whole on every rank; the hard bound shares them all the same."""


class Load(NamedTuple):
    """Bytes per GPU and step; `flops` by the tensor-core format they could use."""

    low: Bytes
    expected: Bytes
    high: Bytes
    flops: dict[Compute, float]
    experts: Experts | None


ACCEPT_SLACK = 0.01
"""A mean that was rounded."""


def check(plan: Plan, shape: Shape) -> None:
    """Raises UsageError for a plan no engine could run."""
    for name in ("tp", "pp", "ep", "dp_attention", "batch", "verify_tokens"):
        if getattr(plan, name) < 1:
            raise UsageError(f"{name} = {getattr(plan, name)}: at least 1 is needed", "see --help")
    for name in ("ep", "dp_attention"):
        if plan.tp % getattr(plan, name):
            raise UsageError(f"{plan.tp} GPUs can't be parted in {getattr(plan, name)} ({name})", "it must divide --tp")
    _check_speculation(plan)
    if plan.pp > len(shape.layers):
        raise UsageError(f"{len(shape.layers)} layers can't be parted in {plan.pp} stages", "lower --pp")
    groups = plan.tp // plan.dp_attention
    if shape.attention is not None and shape.attention.heads % groups:
        raise UsageError(
            f"{shape.attention.heads} attention heads can't be parted over {groups} GPUs", "engines refuse it too"
        )
    if plan.ep > 1 and shape.moe is None:
        raise UsageError("expert parallelism without experts", "leave --ep out: the model is dense")


def _check_speculation(plan: Plan) -> None:
    """Raises UsageError: a step gives the token it would have given anyway, and at most those verified beside it."""
    if plan.draft_steps and plan.verify_tokens < 2:
        raise UsageError(
            f"{plan.draft_steps} draft steps, but 1 token verified", "leave verify_tokens out for one more"
        )
    accepted = plan.accept_length
    if accepted is None:
        return
    if accepted < 1:
        raise UsageError(f"accept length {accepted:g}: a step gives 1 token or more", "the server's metrics tell it")
    if plan.verify_tokens > 1 and accepted > plan.verify_tokens + ACCEPT_SLACK:
        what = f"accept length {accepted:g}, but a sequence puts {plan.verify_tokens} tokens through a step"
        raise UsageError(what, "one of the two (or draft_steps) is of another server")


def of_plan(model: Model, plan: Plan, kv_dtype: str) -> Load:
    """Raises UsageError, DataError."""
    check(plan, model.shape)
    shape = model.shape
    moe = shape.moe
    tokens = plan.batch * plan.verify_tokens
    hit = experts.hit(moe.experts, moe.top_k, tokens, plan.ep) if moe else None
    main = [one for one in model.weights if _read(one, shape) and not one.draft]
    draft = drafting.of(model)
    other = draft.shape.moe
    drafted = experts.hit(other.experts, other.top_k, plan.batch, plan.ep) if other else None
    head = [one for one in main if one.role == "head" or (shape.tied and one.role == "embedding")]
    head = head if draft.target_head else []
    sequences = math.ceil(plan.batch / plan.dp_attention)
    kv = sequences * _kv(shape, shape.layers, plan, kv_dtype)
    state = sequences * sum(cache.layer_state(shape, layer, plan.tp // plan.dp_attention) for layer in shape.layers)
    draft_kv = sequences * _kv(draft.shape, draft.layers, plan, kv_dtype)

    def bytes_of(bound: Bound) -> Bytes:
        once = _sum(draft.weights, plan, draft.shape, bound, drafted) + _sum(head, plan, shape, bound, None) + draft_kv
        return Bytes(
            weights=_sum(main, plan, shape, bound, hit),
            kv=kv,
            state=state,
            draft=plan.draft_steps * once if draft.weights else 0.0,
        )

    flops = _flops(main, draft, head, plan, shape)
    return Load(bytes_of("low"), bytes_of("expected"), bytes_of("high"), flops, hit)


def _read(one: Weights, shape: Shape) -> bool:
    """A step reads rows of the embedding table only, unless it is the head too."""
    return one.role != "embedding" or shape.tied


def _kv(shape: Shape, layers: Sequence[Layer], plan: Plan, dtype: str) -> float:
    groups = plan.tp // plan.dp_attention
    return sum(cache.layer_kv(shape, layer, plan.context, dtype, groups) for layer in layers)


def _sum(weights: Sequence[Weights], plan: Plan, shape: Shape, bound: Bound, hit: Experts | None) -> float:
    total = 0.0
    for one in weights:
        if one.role == "expert" and hit is not None:
            total += one.bytes * getattr(hit, bound) / (plan.tp / plan.ep)
        else:
            total += one.bytes * one.count / shards(one.role, plan, shape, bound)
    return total


def shards(role: Role, plan: Plan, shape: Shape, bound: Bound) -> float:
    """Over how many GPUs a module is shared. `low` shares whatever could be."""
    groups = plan.tp // plan.dp_attention
    if bound != "low":
        if role in _REPLICATED:
            return 1
        if role == "kv_proj":
            return min(groups, shape.kv_heads)
        if role in ("head", "embedding") and plan.dp_attention > 1:
            return 1
    return groups if role in _PER_ATTENTION_GROUP else plan.tp


def _flops(
    main: Sequence[Weights], draft: Drafting, head: Sequence[Weights], plan: Plan, shape: Shape
) -> dict[Compute, float]:
    """Of the least loaded arrangement: two per parameter and token, and attention."""
    out: dict[Compute, float] = {}

    def add(weights: Sequence[Weights], tokens: float, shape: Shape) -> None:
        top_k = shape.moe.top_k if shape.moe else 1
        for one in weights:
            if one.role == "norm":
                continue
            times = top_k if one.role == "expert" else one.count
            per_rank = tokens / plan.dp_attention if one.role in _PER_ATTENTION_GROUP else tokens
            spread = plan.tp if one.role == "expert" else shards(one.role, plan, shape, "low")
            out[one.format.compute] = out.get(one.format.compute, 0.0) + 2.0 * one.params * times * per_rank / spread

    tokens = plan.batch * plan.verify_tokens
    add(main, tokens, shape)
    add(draft.weights, plan.draft_steps * plan.batch, draft.shape)
    add(head, plan.draft_steps * plan.batch, shape)
    attention = sum(cache.attention_flops(shape, layer, plan.context) for layer in shape.layers)
    out["bf16"] = out.get("bf16", 0.0) + attention * tokens / plan.tp
    return out
