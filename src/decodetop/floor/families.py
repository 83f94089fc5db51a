"""`config.json` -> `Shape`, for the families whose parameter count is known to come out right.

Keys and their order: reference notes on the decode floor, section 3.1. A family that is not listed is refused: its
formula would be a guess.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from decodetop.errors import DataError
from decodetop.floor.config import Config
from decodetop.floor.formats import DTYPES
from decodetop.floor.shape import EXPERTS_MAX, LAYERS_MAX, Attention, Gdn, Indexer, Layer, Mamba2, Mla, Moe, Shape

GDN_FULL_INTERVAL = 4
SPARSE = "deepseek_sparse_attention"
"""Newer checkpoints name it so; the indexer's keys say the rest, as in those without the list."""
NOPE_INTERVAL = 4
"""Llama-4: every fourth layer attends to everything, the others to their chunk."""


class Family(NamedTuple):
    """What the config does not say. `o_bias`: the bias of q, k and v, where there is one, is of the output too."""

    qkv_bias: bool = False
    o_bias: bool = False
    sinks: bool = False
    qk_norm: Literal["head", "layer"] | None = None
    gate: bool = False
    norms: int = 2
    gated_mlp: bool = True
    tied: bool = False
    shared_gate: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    sliding: Literal["none", "all", "every_other", "pattern", "flag"] = "none"


_DEEPSEEK = Family(router_bias=True)
_QWEN3 = Family(qk_norm="head", o_bias=True)
_GEMMA = Family(norms=4, tied=True, o_bias=True)

FAMILIES: dict[str, Family] = {
    "llama": Family(o_bias=True),
    "mistral": Family(sliding="all"),
    "mixtral": Family(sliding="all"),
    "qwen2": Family(qkv_bias=True, sliding="flag"),
    "qwen2_moe": Family(qkv_bias=True, sliding="flag", shared_gate=True),
    "qwen3": _QWEN3._replace(sliding="flag"),
    "qwen3_moe": _QWEN3._replace(sliding="flag"),
    "qwen3_vl": _QWEN3,
    "qwen3_vl_moe": _QWEN3,
    "qwen3_next": _QWEN3._replace(gate=True, shared_gate=True),
    "qwen3_5": _QWEN3._replace(gate=True),
    "qwen3_5_moe": _QWEN3._replace(gate=True, shared_gate=True),
    "phi3": Family(sliding="all"),
    "gemma": Family(tied=True, o_bias=True),
    "gemma2": _GEMMA._replace(sliding="every_other"),
    "gemma3": _GEMMA._replace(qk_norm="head", sliding="pattern"),
    "deepseek_v2": Family(),
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "kimi_k25": _DEEPSEEK,
    "glm4_moe": Family(router_bias=True),
    "glm_moe_dsa": _DEEPSEEK,
    "gpt_oss": Family(qkv_bias=True, o_bias=True, sinks=True, expert_bias=True, router_bias=True),
    "minimax_m2": Family(qk_norm="layer", router_bias=True),
    "llama4": Family(sliding="pattern", o_bias=True),
    "nemotron_h": Family(gated_mlp=False, router_bias=True),
}

_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
_WIDTH = ("moe_intermediate_size",)

_SPARSE_MLA = ("deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa")
_SPARSE = ("deepseek_v2", "glm4_moe", "qwen2_moe", "qwen3_moe", "qwen3_vl_moe", "qwen3_next", "qwen3_5_moe")

NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(_SPARSE_MLA, (("kv_lora_rank",), _EXPERTS, _WIDTH)),
    **dict.fromkeys(_SPARSE, (_EXPERTS, _WIDTH)),
    **dict.fromkeys(("mixtral", "gpt_oss", "minimax_m2", "llama4"), (_EXPERTS,)),
}
"""Keys (any one of each group) without which the formula would silently be that of another family: a dense model, full
attention, experts as wide as the dense layers."""

NOT_MODELLED = {
    "mimo_v2": "its sliding-window layers have other KV heads than the rest",
    "deepseek_v4": "its compressed attention is not in the formulas",
    "gemma4": "its global layers share K and V and have other head sizes",
    "gemma3n": "its per-layer embeddings and shared KV layers are not in the formulas",
    "minimax_m3": "its attention is not in the formulas",
    "nemotron-nas": "every block has its own widths",
    "step3p7": "its sliding-window layers have other heads than the rest",
    "kimi_k3": "its attention is not in the formulas",
}


def shape_of(config: Config) -> Shape:
    """Raises DataError: a family that is not modelled, a missing key, a figure that can't be."""
    name, family = _family(config)
    for keys in NEEDS.get(name, ()):
        if config.maybe(*keys) is None:
            raise config.wrong(f"{' or '.join(keys)} is missing, which {name} has")
    layers = _layers(config, name, family)
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
        draft=tuple(_draft(config, name, layers)),
    )


def _family(config: Config) -> tuple[str, Family]:
    word = config.word("model_type")
    if word is None:
        raise config.wrong("model_type is missing, so the family of the model is not known")
    name = word.removesuffix("_text")
    if config.data.get("block_configs") is not None:
        name = "nemotron-nas"
    for known, why in NOT_MODELLED.items():
        if name.startswith(known):
            raise _refused(config, word, why)
    if name not in FAMILIES:
        raise _refused(config, word, "its layers are not in the formulas")
    if name == "nemotron_h" and config.word("hybrid_override_pattern") is None:
        raise _refused(config, word, "without hybrid_override_pattern its blocks are not in the formulas")
    return name, FAMILIES[name]


def _refused(config: Config, word: str, why: str) -> DataError:
    known = ", ".join(sorted(FAMILIES))
    return config.wrong(f"model family {word[:60]!r} is not supported: {why}", f"supported are {known}")


def _layers(config: Config, name: str, family: Family) -> list[Layer]:
    pattern = config.word("hybrid_override_pattern")
    if name == "nemotron_h" and pattern is not None:
        if len(pattern) > LAYERS_MAX:
            raise config.wrong(f"hybrid_override_pattern of {len(pattern)} layers can't be")
        return [_block(config, letter) for letter in pattern]
    total = config.count("num_hidden_layers")
    if total > LAYERS_MAX:
        raise config.wrong(f"num_hidden_layers = {total} can't be")
    kinds = config.words("layer_types", total)
    indexers = config.words("indexer_types", total)
    has_indexer = config.maybe("index_topk") is not None
    mla = config.maybe("kv_lora_rank") is not None
    moe = _moe_layers(config, total)
    layers = []
    for at in range(total):
        kind = kinds[at] if kinds else _kind(config, name, family, at)
        window, chunked = _window(config, kind)
        layers.append(
            Layer(
                mixer="gdn" if kind == "linear_attention" else "mla" if mla else "attention",
                ffn="moe" if moe[at] else "dense",
                window=window,
                chunked=chunked,
                indexer=has_indexer and (indexers is None or indexers[at] != "shared"),
            )
        )
    return layers


def _block(config: Config, letter: str) -> Layer:
    """Nemotron-H: a layer is one block."""
    if letter == "M":
        return Layer(mixer="mamba2", ffn="none")
    if letter == "*":
        return Layer(mixer="attention", ffn="none")
    if letter in "-E":
        return Layer(mixer="none", ffn="dense" if letter == "-" else "moe")
    raise config.wrong(f"block {letter!r} of the layer pattern is not known", "known are M, *, - and E")


def _kind(config: Config, name: str, family: Family, at: int) -> str:
    """What a layer attends to where the config has no list."""
    if name in ("qwen3_next", "qwen3_5", "qwen3_5_moe"):
        interval = config.count("full_attention_interval", default=GDN_FULL_INTERVAL)
        return "linear_attention" if (at + 1) % interval else "full_attention"
    if name == "llama4":
        return "chunked_attention" if (at + 1) % NOPE_INTERVAL else "full_attention"
    if family.sliding == "flag":
        first = config.maybe("max_window_layers") or 0
        return "sliding_attention" if config.flag("use_sliding_window") and at >= first else "full_attention"
    if family.sliding == "pattern":
        every = config.count("sliding_window_pattern", default=6)
        return "sliding_attention" if (at + 1) % every else "full_attention"
    sliding = family.sliding == "all" or (family.sliding == "every_other" and at % 2 == 0)
    return "sliding_attention" if sliding else "full_attention"


def _window(config: Config, kind: str) -> tuple[int | None, bool]:
    if kind == "chunked_attention":
        return config.count("attention_chunk_size", default=8192), True
    if kind == "sliding_attention":
        return config.maybe("sliding_window"), False
    if kind == SPARSE and config.maybe("index_topk") is None:
        raise config.wrong(f"layer type {kind!r} without index_topk")
    if kind not in ("full_attention", "linear_attention", SPARSE):
        raise config.wrong(f"layer type {kind[:40]!r} is not known")
    return None, False


def _moe_layers(config: Config, total: int) -> list[bool]:
    if not config.maybe("n_routed_experts", "num_experts", "num_local_experts"):
        return [False] * total
    kinds = config.words("mlp_layer_types", total)
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    listed = config.data.get("moe_layer_freq")
    if isinstance(listed, list):
        return [bool(one) for one in config.counts("moe_layer_freq")[:total]] + [False] * (total - len(listed))
    first = config.maybe("first_k_dense_replace") or 0
    step = config.count("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", default=1)
    dense = set(config.counts("mlp_only_layers"))
    offset = 0 if config.data.get("moe_layer_freq") is not None else 1
    return [at >= first and at not in dense and (at + offset) % step == 0 for at in range(total)]


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


def _draft(config: Config, name: str, layers: list[Layer]) -> list[Layer]:
    """The layers of one draft forward of multi-token prediction; the main model's last kinds of mixer and FFN."""
    pattern = config.word("mtp_hybrid_override_pattern")
    if pattern is not None and config.maybe("num_nextn_predict_layers"):
        if len(pattern) > LAYERS_MAX:
            raise config.wrong(f"{len(pattern)} draft layers can't be")
        return [_block(config, letter) for letter in pattern]
    modules = config.maybe("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    if not modules or name == "nemotron_h":
        return []
    last = next((layer for layer in reversed(layers) if layer.mixer in ("attention", "mla")), None)
    if last is None:
        return []
    count = modules if name.startswith("qwen3_5") else config.count("mtp_transformer_layers", default=1)
    if count > LAYERS_MAX:
        raise config.wrong(f"{count} draft layers can't be")
    return [Layer(mixer=last.mixer, ffn=layers[-1].ffn, indexer=last.indexer)] * count
