"""`config.json` -> `Shape`: the dimensions of each part. Pure.

Keys and their order: reference notes on the decode floor, section 3.1.
"""

from __future__ import annotations

from decodetop.floor.config import Config
from decodetop.floor.families import Family, family_of
from decodetop.floor.formats import DTYPES
from decodetop.floor.layers import draft_of, layers_of
from decodetop.floor.shape import EXPERTS_MAX, Attention, Gdn, Indexer, Mamba2, Mla, Moe, Shape


def shape_of(config: Config) -> Shape:
    """Raises DataError: a family that is not modelled, a missing key, a figure that can't be."""
    name, family = family_of(config)
    layers = layers_of(config, name, family)
    mla = _mla(config)
    dense = any(layer.ffn == "dense" for layer in layers)
    width_keys = ("intermediate_size_mlp", "intermediate_size") if name == "llama4" else ("intermediate_size",)
    dtype = config.word("dtype", "torch_dtype")
    if dtype is not None and dtype.removeprefix("torch.") not in DTYPES:
        raise config.wrong(f"dtype {dtype[:40]!r} is not known", f"known are {', '.join(DTYPES)}")
    return Shape(
        family=name,
        hidden=config.count("hidden_size"),
        vocab=config.count("vocab_size"),
        tied=config.flag("tie_word_embeddings", family.tied),
        layers=tuple(layers),
        dtype=DTYPES[dtype.removeprefix("torch.")] if dtype else "bf16",
        attention=_attention(config, name, family, mla),
        mla=mla,
        indexer=_indexer(config),
        gdn=_gdn(config) if any(layer.mixer == "gdn" for layer in layers) else None,
        mamba=_mamba(config) if any(layer.mixer == "mamba2" for layer in layers) else None,
        moe=_moe(config, name, family) if any(layer.ffn == "moe" for layer in layers) else None,
        dense_width=config.count(*width_keys) if dense else 0,
        gated_mlp=family.gated_mlp,
        mlp_bias=config.flag("mlp_bias"),
        norms=family.norms,
        draft=tuple(draft_of(config, name, layers)),
    )


def _attention(config: Config, name: str, family: Family, mla: Mla | None) -> Attention:
    heads = config.count("num_attention_heads")
    kv_heads = config.count("num_key_value_heads", default=heads)
    hidden = config.count("hidden_size")
    head_dim = config.maybe("head_dim", "attention_head_dim")
    if not head_dim:
        if hidden % heads and mla is None:
            raise config.wrong(f"hidden_size {hidden} is no multiple of {heads} heads, and head_dim is missing")
        head_dim = hidden // heads
    if mla is None and (kv_heads > heads or heads % kv_heads):
        raise config.wrong(f"{heads} attention heads can't share {kv_heads} KV heads")
    bias = config.flag("attention_bias", family.qkv_bias) if mla is None else False
    qk_norm = family.qk_norm
    if name == "glm4_moe":
        qk_norm = "head" if config.flag("use_qk_norm") else None
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        qkv_bias=bias,
        o_bias=bias and family.o_bias,
        sinks=family.sinks,
        gate=config.flag("attn_output_gate", family.gate),
        qk_norm=qk_norm,
    )


def _mla(config: Config) -> Mla | None:
    if config.maybe("kv_lora_rank") is None:
        return None
    return Mla(
        q_rank=config.maybe("q_lora_rank") or None,
        kv_rank=config.count("kv_lora_rank"),
        nope=config.count("qk_nope_head_dim"),
        rope=config.count("qk_rope_head_dim"),
        v=config.count("v_head_dim"),
    )


def _indexer(config: Config) -> Indexer | None:
    if config.maybe("index_topk") is None:
        return None
    return Indexer(
        heads=config.count("index_n_heads"), dim=config.count("index_head_dim"), top_k=config.count("index_topk")
    )


def _gdn(config: Config) -> Gdn:
    return Gdn(
        k_heads=config.count("linear_num_key_heads"),
        v_heads=config.count("linear_num_value_heads"),
        k_dim=config.count("linear_key_head_dim"),
        v_dim=config.count("linear_value_head_dim"),
        conv=config.count("linear_conv_kernel_dim", default=4),
        state_bytes=_state_bytes(config, "mamba_ssm_dtype"),
    )


def _mamba(config: Config) -> Mamba2:
    return Mamba2(
        heads=config.count("mamba_num_heads"),
        head_dim=config.count("mamba_head_dim"),
        state=config.count("ssm_state_size"),
        groups=config.count("n_groups", default=1),
        conv=config.count("conv_kernel", default=4),
        state_bytes=_state_bytes(config, "mamba_ssm_cache_dtype"),
    )


def _state_bytes(config: Config, key: str) -> int:
    word = (config.word(key) or "float32").removeprefix("torch.")
    return 4 if DTYPES.get(word, "fp32") == "fp32" else 2


def _moe(config: Config, name: str, family: Family) -> Moe:
    width = config.count("moe_intermediate_size", "intermediate_size")
    shared = config.maybe("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim")
    if shared is None:
        shared = width if name == "llama4" else (config.maybe("n_shared_experts") or 0) * width
    experts = config.count("n_routed_experts", "num_experts", "num_local_experts")
    top_k = config.count("num_experts_per_tok", "experts_per_token", "top_k_experts")
    if experts > EXPERTS_MAX:
        raise config.wrong(f"{experts} experts can't be")
    if top_k > experts:
        raise config.wrong(f"{top_k} experts per token of {experts} can't be")
    return Moe(
        experts=experts,
        top_k=top_k,
        width=width,
        shared=shared,
        shared_gate=family.shared_gate and shared > 0,
        router_bias=family.router_bias,
        expert_bias=family.expert_bias,
        latent=config.maybe("moe_latent_size"),
    )
