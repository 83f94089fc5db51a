"""The families whose parameter count is known to come out right, and what their `config.json` does not say. Pure.

A family that is not listed is refused: its formula would be a guess.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from decodetop.errors import DataError
from decodetop.floor.config import Config


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


def family_of(config: Config) -> tuple[str, Family]:
    """Its name and traits. Raises DataError: not supported, or a key is missing that the family has."""
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
    for keys in NEEDS.get(name, ()):
        if config.maybe(*keys) is None:
            raise config.wrong(f"{' or '.join(keys)} is missing, which {name} has")
    return name, FAMILIES[name]


def _refused(config: Config, word: str, why: str) -> DataError:
    known = ", ".join(sorted(FAMILIES))
    return config.wrong(f"model family {word[:60]!r} is not supported: {why}", f"supported are {known}")
