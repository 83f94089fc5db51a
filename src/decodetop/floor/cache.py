"""Bytes of KV cache and recurrent state that one rank reads in a step. Pure.

Formulas: reference notes on the decode floor, section 2.2.
"""

from __future__ import annotations

import math

from decodetop.errors import DataError
from decodetop.floor.formats import FP8_DS_MLA, KV_BYTES, PER_TOKEN_HEAD
from decodetop.floor.shape import Layer, Mla, Shape

DS_MLA_TOKEN_BYTES = 656
"""vLLM's layout of a token: 512 FP8 values, 4 scales of 4 bytes, 64 rope values of 2 bytes."""

INDEX_SCALE_BYTES = 4
"""One scale a token beside 128 FP8 index keys (SGLang's memory pool)."""


HEAD_SCALE_BYTES = 4
"""vLLM's budget of a token and head, for K and for V each."""


def value_bytes(dtype: str) -> float:
    """Raises DataError for a dtype that is not known."""
    known = KV_BYTES.get(dtype.lower())
    if known is None:
        raise DataError(f"KV dtype {dtype[:40]!r} is not known", f"known are {', '.join(KV_BYTES)}, {FP8_DS_MLA}")
    return known


def held_kv(shape: Shape, layer: Layer, context: int, dtype: str, shards: int) -> float:
    """Like `layer_kv`, held instead of read: all latents of sparse attention, a whole chunk once it was full."""
    if layer.mixer == "mla" and shape.mla is not None:
        indexed = shape.indexer.dim + INDEX_SCALE_BYTES if shape.indexer is not None and layer.indexer else 0
        return context * (_latent_bytes(shape.mla, dtype) + indexed)
    seen = context if layer.window is None else min(context, layer.window)
    return seen * _token_kv(shape, layer, dtype, shards)


def layer_kv(shape: Shape, layer: Layer, context: int, dtype: str, shards: int) -> float:
    """Bytes of one sequence in one layer on one of `shards` tensor-parallel ranks."""
    if layer.mixer == "mla" and shape.mla is not None:
        seen = context
        indexed = 0.0
        if shape.indexer is not None:
            seen = min(context, shape.indexer.top_k)
            if layer.indexer:
                indexed = context * (shape.indexer.dim + INDEX_SCALE_BYTES)
        return seen * _latent_bytes(shape.mla, dtype) + indexed
    return _seen(layer, context) * _token_kv(shape, layer, dtype, shards)


def _latent_bytes(mla: Mla, dtype: str) -> float:
    if dtype.lower() == FP8_DS_MLA:
        return DS_MLA_TOKEN_BYTES
    return mla.latent * value_bytes(dtype) + (HEAD_SCALE_BYTES if dtype.lower().endswith(PER_TOKEN_HEAD) else 0)


def _token_kv(shape: Shape, layer: Layer, dtype: str, shards: int) -> float:
    if layer.mixer != "attention" or shape.attention is None:
        return 0.0
    heads = max(1, math.ceil(shape.attention.kv_heads / shards))
    scale = HEAD_SCALE_BYTES if dtype.lower().endswith(PER_TOKEN_HEAD) else 0
    return 2 * heads * (shape.attention.head_dim * value_bytes(dtype) + scale)


def _seen(layer: Layer, context: int) -> int:
    if layer.window is None:
        return context
    return (context - 1) % layer.window + 1 if layer.chunked and context else min(context, layer.window)


def layer_state(shape: Shape, layer: Layer, shards: int) -> float:
    """Recurrent state of one sequence in one layer on one rank: read and written in every step."""
    return 2 * held_state(shape, layer, shards)


def held_state(shape: Shape, layer: Layer, shards: int) -> float:
    if layer.mixer == "gdn" and shape.gdn is not None:
        one = shape.gdn.v_heads * shape.gdn.k_dim * shape.gdn.v_dim * shape.gdn.state_bytes
    elif layer.mixer == "mamba2" and shape.mamba is not None:
        one = shape.mamba.heads * shape.mamba.head_dim * shape.mamba.state * shape.mamba.state_bytes
    else:
        return 0.0
    return one / shards


def attention_flops(shape: Shape, layer: Layer, context: int) -> float:
    """Of one token in one layer over all ranks; the weights' own arithmetic is not in it (section 2.5)."""
    a = shape.attention
    if layer.mixer == "mla" and shape.mla is not None and a is not None:
        seen, indexed = context, 0.0
        if shape.indexer is not None:
            seen = min(context, shape.indexer.top_k)
            indexed = 2.0 * shape.indexer.heads * shape.indexer.dim * context if layer.indexer else 0.0
        return 2.0 * a.heads * (2 * shape.mla.kv_rank + shape.mla.rope) * seen + indexed
    if layer.mixer == "attention" and a is not None:
        return 4.0 * a.heads * a.head_dim * _seen(layer, context)
    if layer.mixer == "gdn" and shape.gdn is not None:
        return 6.0 * shape.gdn.v_heads * shape.gdn.k_dim * shape.gdn.v_dim
    return 0.0
