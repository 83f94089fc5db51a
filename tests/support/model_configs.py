"""Configs as checkpoints of every supported family have them, with dimensions that no checkpoint has: for laws."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from decodetop.floor.families import FAMILIES

MLA_FAMILIES = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa")
GDN_FAMILIES = ("qwen3_next", "qwen3_5", "qwen3_5_moe")
EXPERT_KEYS = {
    **dict.fromkeys((*MLA_FAMILIES, "glm4_moe"), "n_routed_experts"),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe", "qwen3_vl_moe", "qwen3_next", "qwen3_5_moe"), "num_experts"),
    **dict.fromkeys(("mixtral", "gpt_oss", "minimax_m2", "llama4"), "num_local_experts"),
}
QUANTISATIONS: tuple[dict[str, Any] | None, ...] = (
    None,
    None,
    {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "re:.*gate$"]},
    {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True},
    {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True},
    {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["*self_attn*", "lm_head"],
        "kv_cache_quant_algo": "FP8",
    },
    {
        "quant_method": "compressed-tensors",
        "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int"}}},
        "ignore": ["lm_head", "re:.*router"],
    },
)


ANY = st.sampled_from(sorted(FAMILIES))


@st.composite
def configs(draw: st.DrawFn, family: st.SearchStrategy[str] = ANY) -> dict[str, Any]:
    """One plausible `config.json`; 16 attention heads, so that eight GPUs can part them."""
    name = draw(family)
    one_of = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    layers = draw(st.integers(1, 12))
    config: dict[str, Any] = {
        "model_type": name, "num_hidden_layers": layers, "num_attention_heads": 16,
        "hidden_size": one_of(512, 2048, 7168),
        "num_key_value_heads": one_of(1, 2, 4, 16), "head_dim": one_of(64, 128, 256),
        "intermediate_size": one_of(1408, 4096), "vocab_size": one_of(32000, 152064),
        "torch_dtype": one_of("bfloat16", "float16", None), "tie_word_embeddings": one_of(True, False, None),
        "attention_bias": one_of(True, False, None), "sliding_window": one_of(None, 128, 4096),
        "use_sliding_window": one_of(True, False), "max_window_layers": one_of(0, 4),
        "quantization_config": one_of(*QUANTISATIONS),
    }  # fmt: skip
    if name in MLA_FAMILIES:
        config |= {
            "kv_lora_rank": 512, "q_lora_rank": one_of(None, 768), "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": one_of(128, 256), "num_key_value_heads": 16,
        }  # fmt: skip
    if name in ("deepseek_v32", "glm_moe_dsa"):
        config |= {"index_topk": one_of(64, 2048), "index_n_heads": 32, "index_head_dim": 128, "q_lora_rank": 768}
    if name in EXPERT_KEYS:
        experts = one_of(8, 64, 256)
        config |= {
            EXPERT_KEYS[name]: experts, "num_experts_per_tok": draw(st.integers(1, 8)), "moe_intermediate_size": 768,
            "n_shared_experts": one_of(0, 1), "first_k_dense_replace": one_of(0, 1, 3),
            "num_nextn_predict_layers": one_of(0, 1),
        }  # fmt: skip
    if name in ("qwen2_moe", "qwen3_next", "qwen3_5_moe"):
        config["shared_expert_intermediate_size"] = 1024
    if name in GDN_FAMILIES:
        config |= {
            "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
            "linear_value_head_dim": 128, "full_attention_interval": one_of(2, 4),
            "mtp_num_hidden_layers": one_of(0, 1),
        }  # fmt: skip
    if name == "llama4":
        config |= {
            "intermediate_size_mlp": 4096,
            "interleave_moe_layer_step": one_of(1, 2),
            "attention_chunk_size": 8192,
        }
    if name == "nemotron_h":
        pattern = draw(st.text(alphabet="M*-E", min_size=layers, max_size=layers))
        config |= {
            "hybrid_override_pattern": pattern, "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128,
            "n_groups": 8, "n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1856,
            "moe_shared_expert_intermediate_size": 3712,
        }  # fmt: skip
    written = {key: value for key, value in config.items() if value is not None or key == "q_lora_rank"}
    return {"model_type": "wrapper", "text_config": written} if draw(st.booleans()) else written
