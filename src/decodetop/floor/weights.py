"""Weights by module: names as in the checkpoint (without the model's prefix), parameters, bytes. Pure.

Formulas: reference notes on the decode floor, section 2.1; they hit the published totals of 45 models within 0.01 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from decodetop.floor.formats import Format, Scheme
from decodetop.floor.shape import Attention, Gdn, Indexer, Layer, Mamba2, Mla, Moe, Shape

Role = Literal[
    "embedding", "head", "attention", "kv_proj", "latent", "indexer", "linear_attention", "mlp", "shared_expert",
    "router", "expert", "norm", "draft_proj",
]  # fmt: skip


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """`count` modules alike (the experts of a layer, else 1). `draft` = read by draft forwards only."""

    name: str
    role: Role
    layer: int | None
    params: int
    bytes: float
    format: Format
    count: int = 1
    draft: bool = False


class Piece(msgspec.Struct, frozen=True):
    """A module of a layer before its bytes are known: a matrix, or a vector that no scheme quantises."""

    name: str
    role: Role
    params: int
    count: int = 1
    linear: bool = True


def of_shape(shape: Shape, scheme: Scheme) -> list[Weights]:
    """Every module of the decoder and of its draft layers, in `scheme`'s formats."""
    out = [_priced(Piece("embed_tokens", "embedding", shape.vocab * shape.hidden, linear=False), None, scheme)]
    for number, layer in enumerate(shape.layers):
        out += [_priced(piece, number, scheme) for piece in pieces(shape, layer)]
    out.append(_priced(Piece("norm", "norm", shape.hidden, linear=False), None, scheme))
    if not shape.tied:
        out.append(_priced(Piece("lm_head", "head", shape.vocab * shape.hidden), None, scheme))
    for number, layer in enumerate(shape.draft):
        place = len(shape.layers) + number
        out += [_priced(piece, place, scheme, draft=True) for piece in pieces(shape, layer)]
    if shape.draft:
        projection = Piece("eh_proj", "draft_proj", 2 * shape.hidden * shape.hidden)
        out.append(_priced(projection, len(shape.layers), scheme, draft=True))
    return out


def _priced(piece: Piece, layer: int | None, scheme: Scheme, *, draft: bool = False) -> Weights:
    name = piece.name if layer is None else f"layers.{layer}.{piece.name}"
    names = (name, f"mtp.layers.0.{piece.name}", f"mtp.{piece.name}") if draft else (name,)
    chosen = scheme.format_of(names, piece.role) if piece.linear else scheme.base
    return Weights(
        name=name,
        role=piece.role,
        layer=layer,
        params=piece.params,
        bytes=piece.params * chosen.bytes_per_weight,
        format=chosen,
        count=piece.count,
        draft=draft,
    )


def pieces(shape: Shape, layer: Layer) -> Iterator[Piece]:
    """The modules of one layer."""
    halves = (layer.mixer != "none") + (layer.ffn != "none")
    yield Piece("norms", "norm", shape.norms * shape.hidden * halves // 2, linear=False)
    yield from _mixer(shape, layer)
    if layer.ffn == "dense":
        block = "mixer" if shape.family == "nemotron_h" else "mlp"
        yield from _mlp(block, "mlp", shape.hidden, shape.dense_width, shape.gated_mlp, shape.mlp_bias)
    elif layer.ffn == "moe" and shape.moe is not None:
        yield from _moe(shape, shape.moe)


def _mixer(shape: Shape, layer: Layer) -> Iterator[Piece]:
    if layer.mixer == "attention" and shape.attention is not None:
        yield from _attention(shape, shape.attention)
    elif layer.mixer == "mla" and shape.mla is not None and shape.attention is not None:
        yield from _mla(shape.hidden, shape.attention.heads, shape.mla)
        if layer.indexer and shape.indexer is not None:
            yield from _indexer(shape.hidden, shape.mla, shape.indexer)
    elif layer.mixer == "gdn" and shape.gdn is not None:
        yield from _gdn(shape, shape.gdn)
    elif layer.mixer == "mamba2" and shape.mamba is not None:
        yield from _mamba2(shape.hidden, shape.mamba)


def _attention(shape: Shape, a: Attention) -> Iterator[Piece]:
    block = "mixer" if shape.family == "nemotron_h" else "self_attn"
    h, q, kv = shape.hidden, a.heads * a.head_dim, a.kv_heads * a.head_dim
    yield Piece(f"{block}.q_proj", "attention", h * q * (2 if a.gate else 1))
    yield Piece(f"{block}.k_proj", "kv_proj", h * kv)
    yield Piece(f"{block}.v_proj", "kv_proj", h * kv)
    yield Piece(f"{block}.o_proj", "attention", q * h)
    small = (q + 2 * kv) * a.qkv_bias + h * a.o_bias + a.heads * a.sinks
    small += {"head": 2 * a.head_dim, "layer": q + kv, None: 0}[a.qk_norm]
    if small:
        yield Piece(f"{block}.vectors", "norm", small, linear=False)


def _mla(h: int, heads: int, m: Mla) -> Iterator[Piece]:
    """Absorbed decode reads W_UK and W_UV: the same bytes as kv_b."""
    if m.q_rank is None:
        yield Piece("self_attn.q_proj", "attention", h * heads * (m.nope + m.rope))
    else:
        yield Piece("self_attn.q_a_proj", "latent", h * m.q_rank)
        yield Piece("self_attn.q_b_proj", "attention", m.q_rank * heads * (m.nope + m.rope))
    yield Piece("self_attn.kv_a_proj_with_mqa", "latent", h * m.latent)
    yield Piece("self_attn.kv_b_proj", "attention", m.kv_rank * heads * (m.nope + m.v))
    yield Piece("self_attn.o_proj", "attention", heads * m.v * h)
    yield Piece("self_attn.vectors", "norm", (m.q_rank or 0) + m.kv_rank, linear=False)


def _indexer(h: int, m: Mla, i: Indexer) -> Iterator[Piece]:
    yield Piece("self_attn.indexer.wq_b", "indexer", (m.q_rank or h) * i.heads * i.dim)
    yield Piece("self_attn.indexer.wk", "indexer", h * i.dim)
    yield Piece("self_attn.indexer.weights_proj", "indexer", h * i.heads)
    yield Piece("self_attn.indexer.k_norm", "norm", 2 * i.dim, linear=False)


def _gdn(shape: Shape, g: Gdn) -> Iterator[Piece]:
    """Qwen3-Next keeps q, k, v, z in one matrix and b, a in another; Qwen3.5 splits them."""
    h, k, v = shape.hidden, g.k_heads * g.k_dim, g.v_heads * g.v_dim
    if shape.family == "qwen3_next":
        yield Piece("linear_attn.in_proj_qkvz", "linear_attention", h * (2 * k + 2 * v))
        yield Piece("linear_attn.in_proj_ba", "linear_attention", 2 * h * g.v_heads)
    else:
        yield Piece("linear_attn.in_proj_qkv", "linear_attention", h * (2 * k + v))
        yield Piece("linear_attn.in_proj_z", "linear_attention", h * v)
        yield Piece("linear_attn.in_proj_b", "linear_attention", h * g.v_heads)
        yield Piece("linear_attn.in_proj_a", "linear_attention", h * g.v_heads)
    yield Piece("linear_attn.out_proj", "linear_attention", v * h)
    yield Piece("linear_attn.vectors", "norm", (2 * k + v) * g.conv + 2 * g.v_heads + g.v_dim, linear=False)


def _mamba2(h: int, m: Mamba2) -> Iterator[Piece]:
    inner, groups = m.heads * m.head_dim, 2 * m.groups * m.state
    yield Piece("mixer.in_proj", "linear_attention", h * (2 * inner + groups + m.heads))
    yield Piece("mixer.out_proj", "linear_attention", inner * h)
    small = (inner + groups) * (m.conv + 1) + 3 * m.heads + inner
    yield Piece("mixer.vectors", "norm", small, linear=False)


def _mlp(block: str, role: Role, h: int, width: int, gated: bool, bias: bool = False) -> Iterator[Piece]:
    if gated:
        yield Piece(f"{block}.gate_proj", role, h * width)
    yield Piece(f"{block}.up_proj", role, h * width)
    yield Piece(f"{block}.down_proj", role, width * h)
    if bias:
        yield Piece(f"{block}.vectors", "norm", (2 if gated else 1) * width + h, linear=False)


def _moe(shape: Shape, m: Moe) -> Iterator[Piece]:
    h = shape.hidden
    block = {"nemotron_h": "mixer", "mixtral": "block_sparse_moe", "minimax_m2": "block_sparse_moe"}.get(
        shape.family, "mlp"
    )
    router = "router" if shape.family in ("gpt_oss", "llama4") else "gate"
    yield Piece(f"{block}.{router}", "router", h * m.experts)
    if m.router_bias:
        yield Piece(f"{block}.{router}.bias", "norm", m.experts, linear=False)
    inner = m.latent or h
    w1, w2, w3 = ("w1", "w2", "w3") if block == "block_sparse_moe" else ("gate_proj", "down_proj", "up_proj")
    names: Sequence[str] = (w1, w3, w2) if shape.gated_mlp else (w3, w2)
    for name in names:
        yield Piece(f"{block}.experts.0.{name}", "expert", inner * m.width, count=m.experts)
    if m.expert_bias:
        yield Piece(f"{block}.experts.0.bias", "expert", 2 * m.width + h, count=m.experts, linear=False)
    if m.latent:
        yield Piece(f"{block}.latent_down_proj", "mlp", h * m.latent)
        yield Piece(f"{block}.latent_up_proj", "mlp", m.latent * h)
    if m.shared:
        shared = "shared_expert" if m.shared_gate or shape.family == "llama4" else "shared_experts"
        yield from _mlp(f"{block}.{shared}", "shared_expert", h, m.shared, shape.gated_mlp)
    if m.shared_gate:
        yield Piece(f"{block}.shared_expert_gate", "router", h)
