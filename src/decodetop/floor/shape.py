"""What a model is made of, whatever file said it: the layers, their mixers and what each needs to know. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

LAYERS_MAX = 10_000
EXPERTS_MAX = 10_000
"""No model has more: a larger figure is a damaged file."""

Mixer = Literal["attention", "mla", "gdn", "mamba2", "none"]
Ffn = Literal["dense", "moe", "none"]


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """`window` = tokens of KV it reads at most; `chunked` = it reads back to the start of its chunk only."""

    mixer: Mixer
    ffn: Ffn
    window: int | None = None
    chunked: bool = False
    indexer: bool = False


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """`qk_norm`: one norm a head, or one over all heads of the layer. `gate`: q has a second half that gates."""

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    o_bias: bool = False
    sinks: bool = False
    gate: bool = False
    qk_norm: Literal["head", "layer"] | None = None


class Mla(msgspec.Struct, frozen=True, kw_only=True):
    """Multi-head latent attention; `q_rank` None = the query is not compressed."""

    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    v: int

    @property
    def latent(self) -> int:
        """Values kept per token and layer."""
        return self.kv_rank + self.rope


class Indexer(msgspec.Struct, frozen=True, kw_only=True):
    """DeepSeek sparse attention: picks `top_k` tokens whose latents are read."""

    heads: int
    dim: int
    top_k: int


class Gdn(msgspec.Struct, frozen=True, kw_only=True):
    """Gated delta net; `state_bytes` of one value."""

    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    conv: int
    state_bytes: int = 4


class Mamba2(msgspec.Struct, frozen=True, kw_only=True):
    heads: int
    head_dim: int
    state: int
    groups: int
    conv: int
    state_bytes: int = 4


class Moe(msgspec.Struct, frozen=True, kw_only=True):
    """`width` of an expert, `shared` = width of what every token passes; `latent` = width the experts work in."""

    experts: int
    top_k: int
    width: int
    shared: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    latent: int | None = None


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder. `norms` = norm vectors of a layer with both halves; `draft` = layers of one draft forward (MTP)."""

    family: str
    hidden: int
    vocab: int
    tied: bool
    layers: tuple[Layer, ...]
    dtype: str = "bf16"
    attention: Attention | None = None
    mla: Mla | None = None
    indexer: Indexer | None = None
    gdn: Gdn | None = None
    mamba: Mamba2 | None = None
    moe: Moe | None = None
    dense_width: int = 0
    gated_mlp: bool = True
    mlp_bias: bool = False
    norms: int = 2
    draft: tuple[Layer, ...] = ()

    @property
    def kv_heads(self) -> int:
        return self.attention.kv_heads if self.attention else 1

    @property
    def collectives(self) -> int:
        """All-reduces of one step under tensor parallelism: after each mixer and FFN, embedding and logits."""
        halves = sum((layer.mixer != "none") + (layer.ffn != "none") for layer in self.layers)
        return halves + 2
