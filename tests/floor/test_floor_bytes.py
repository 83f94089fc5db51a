"""Bytes of quantised checkpoints against a count of another hand.

Each figure is that of the modules which transformers 5.24 builds of the config on torch's meta device: every linear
layer and expert tensor by its shape, quantised or not by rules written apart from ours, scales included.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from decodetop.floor.config import read_json
from decodetop.floor.model import open_model

CONFIGS = Path(__file__).parent / "configs"


@pytest.mark.parametrize(
    ("name", "quantised", "size"),
    [
        ("llama-3.1-8b", {"quant_method": "fp8", "weight_block_size": [128, 128]}, 9082904576),
        ("llama-3.1-8b", {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 5700591616),
        ("llama-3.1-8b", {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}, 6136799232),
        (
            "qwen3-30b-a3b",
            {
                "quant_method": "fp8",
                "weight_block_size": [128, 128],
                "modules_to_not_convert": ["lm_head", "re:.*mlp\\.gate$"],
            },
            31174545408,
        ),
        (
            "gemma-3-27b",
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "g": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True},
                    }
                },
                "ignore": ["lm_head", "re:.*vision_tower.*"],
            },
            16021124608,
        ),
        (
            "gemma-2-9b",
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
                },
                "ignore": ["lm_head", "re:.*self_attn.*"],
            },
            12009503744,
        ),
        (
            "qwen3-next-80b-a3b",
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "exclude_modules": ["lm_head", "*linear_attn*", "*self_attn*", "*mlp.gate", "*shared_expert_gate"],
            },
            47999448576,
        ),
        (
            "qwen3.5-27b",
            {
                "quant_method": "fp8",
                "weight_block_size": [128, 128],
                "modules_to_not_convert": ["lm_head", "re:.*in_proj_[ab]$"],
            },
            29470972928,
        ),
        (
            "gpt-oss-20b",
            {
                "quant_method": "mxfp4",
                "modules_to_not_convert": [
                    "model.layers.*.self_attn",
                    "model.layers.*.mlp.router",
                    "model.embed_tokens",
                    "lm_head",
                ],
            },
            13761264768,
        ),
        (
            "mixtral-8x7b",
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}
                },
                "ignore": ["lm_head", "re:.*block_sparse_moe.gate"],
            },
            46966251520,
        ),
        ("qwen2.5-7b", {"quant_method": "gptq", "bits": 8, "group_size": 128, "sym": True}, 8807902208),
        (
            "nemotron-h-56b",
            {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head", "*mixer.in_proj"]},
            74899964928,
        ),
        (
            "llama-4-scout",
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 128}}
                },
                "ignore": ["re:.*lm_head", "re:.*self_attn", "re:.*router", "re:.*shared_expert"],
            },
            72094525440,
        ),
    ],
)
def test_bytes_of_a_checkpoint(tmp_path: Path, name: str, quantised: dict[str, Any], size: int) -> None:
    config = read_json(CONFIGS / f"{name}.json")
    inner = config.get("text_config")
    if isinstance(inner, dict):
        inner.pop("quantization_config", None)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "quantization_config": quantised}), "utf-8")
    model = open_model(path)
    assert sum(one.bytes * one.count for one in model.weights if not one.draft) == pytest.approx(size, rel=2e-6)
