"""Quantisation schemes: which module a pattern means, and the bytes of mixed checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decodetop.errors import DataError
from decodetop.floor.config import read_json
from decodetop.floor.formats import BF16, FORMATS, Scheme
from decodetop.floor.model import open_model
from decodetop.floor.patterns import Patterns, expression
from decodetop.floor.quantisation import scheme_of

CONFIGS = Path(__file__).parent / "configs"


@pytest.mark.parametrize(
    ("pattern", "name", "meant"),
    [
        ("lm_head", "lm_head", True),
        ("language_model.lm_head", "lm_head", True),
        ("*.lm_head", "lm_head", True),
        ("gate", "layers.3.mlp.gate", True),
        ("gate", "layers.3.mlp.gate_proj", False),
        ("model.layers.*.self_attn", "layers.17.self_attn.q_proj", True),
        ("model.layers.*.self_attn", "layers.17.mlp.up_proj", False),
        ("model.layers.1.self_attn*", "layers.1.self_attn.q_proj", True),
        ("model.layers.1.self_attn*", "layers.11.self_attn.q_proj", False),
        ("model.layers.0.self_attn.indexer*", "layers.0.self_attn.indexer.wq_b", True),
        ("model.layers.0.self_attn.o_proj", "layers.0.self_attn.o_proj", True),
        ("model.layers.0.self_attn.o_proj", "layers.0.self_attn.q_proj", False),
        ("*.mlp.shared_expert.*", "layers.5.mlp.shared_expert.up_proj", True),
        ("*.mlp.shared_expert.*", "layers.5.mlp.experts.0.up_proj", False),
        ("model.language_model.layers.0.linear_attn*", "layers.0.linear_attn.in_proj_z", True),
        ("backbone.layers.4.mixer.in_proj", "layers.4.mixer.in_proj", True),
        ("re:.*self_attn.*", "layers.0.self_attn.q_proj", True),
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "layers.0.mlp.gate_proj", True),
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "layers.1.mlp.experts.0.gate_proj", False),
        ("re:lm_head", "lm_head", True),
        ("re:(", "lm_head", False),
        ("mtp*", "mtp.layers.0.mlp.up_proj", True),
        ("", "lm_head", False),
    ],
)
def test_what_a_pattern_means(pattern: str, name: str, meant: bool) -> None:
    assert Patterns((pattern,)).match(name) is meant


@pytest.mark.parametrize(
    "text",
    [
        "(.*)*X",
        r"(\w+\.?)+!",
        "((.*)*)*X",
        "(a|.)*!",
        "(?:x*){2,}y",
        "(.+)+?Z",
        r"([a-z]+\.)*!",
        ".*.*.*.*X",
        ".?" * 30 + "X",
        "(.|l)" * 20,
        "x" * 2000,
        "(" * 900,
        "a{99999999999}",
        "(",
        "[",
        "\\",
    ],
)
def test_an_expression_that_may_search_without_end_is_not_followed(text: str) -> None:
    """`(.*)*X` held the whole process, screen and all, for as long as a name is long to the power of two."""
    assert expression(text) is None
    assert not Patterns((f"re:{text}",)).match("layers.0.self_attn.q_proj")
    config = {"quant_method": "fp8", "ignored_layers": [f"re:{text}"]}
    with pytest.raises(DataError, match="no regular expression, or could take for ever"):
        scheme_of(config, None, BF16, "config.json")


@pytest.mark.parametrize(
    "text",
    [
        r".*\.layers\.\d+\.mlp\.experts\.\d+\..*",
        r"model\.layers\.(0|1|[2-9])\.self_attn\..*",
        r"^(?!.*lm_head).*$",
        r".*(q|k|v|o)_proj$",
        r"(model\.)?layers\.\d{1,3}\.mlp\.(gate|up|down)_proj",
        r".*[qkv]_proj.*",
        r"visual.*",
    ],
)
def test_what_checkpoints_write_is_followed(text: str) -> None:
    assert expression(text) is not None


def formats(name: str) -> dict[str, str]:
    """Role -> format of a layer in the middle."""
    path = CONFIGS / name
    model = open_model(path if path.is_dir() else path.with_name(f"{name}.json"))
    middle = len(model.shape.layers) // 2
    return {
        one.role: one.format.name for one in model.weights if one.layer in (middle, None) and one.role != "norm"
    }  # fmt: skip


def test_glm_5_leaves_attention_and_head_alone() -> None:
    """27.2 of its 44.1 GB a step are BF16."""
    found = formats("glm-5-nvfp4")
    assert {found[role] for role in ("attention", "latent", "indexer", "head", "router")} == {"bf16"}
    assert {found[role] for role in ("expert", "shared_expert")} == {"nvfp4"}


def test_qwen_397b_leaves_all_but_the_experts_alone() -> None:
    found = formats("qwen3.5-397b-a17b-nvfp4")
    assert found["expert"] == "nvfp4"
    assert {found[role] for role in ("linear_attention", "shared_expert", "router", "head")} == {"bf16"}


def test_gpt_oss_quantises_experts_only() -> None:
    found = formats("gpt-oss-120b")
    assert found["expert"] == "bf16", "biases come last"
    model = open_model(CONFIGS / "gpt-oss-120b.json")
    names = {one.format.name for one in model.weights if one.role == "expert" and not one.name.endswith("bias")}
    assert names == {"mxfp4"}
    assert {found[role] for role in ("attention", "router", "head")} == {"bf16"}
    assert sum(one.bytes * one.count for one in model.weights) / 2**30 == pytest.approx(60.77, rel=0.001)


def test_kimi_has_four_bit_experts_with_groups_of_32() -> None:
    model = open_model(CONFIGS / "kimi-k2.5.json")
    expert = next(one for one in model.weights if one.role == "expert")
    assert expert.format.bytes_per_weight == 0.5625
    assert formats("kimi-k2.5")["shared_expert"] == "bf16"


def test_deepseek_has_blocks_of_scales() -> None:
    model = open_model(CONFIGS / "deepseek-v3.json")
    expert = next(one for one in model.weights if one.role == "expert")
    assert expert.format.bytes_per_weight == pytest.approx(1.000244, abs=1e-6)
    assert formats("deepseek-v3")["head"] == "bf16"


def mixed_27b() -> dict[str, Any]:
    """Qwen3.6-27B-NVFP4: FP8 attention, 4-bit MLP and head, by module."""
    layers: dict[str, Any] = {"lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}
    for at in range(64):
        base = f"model.language_model.layers.{at}"
        eight = (
            ["linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj"]
            if (at + 1) % 4
            else [f"self_attn.{letter}_proj" for letter in "qkvo"]
        )
        layers |= {f"{base}.{name}": {"quant_algo": "FP8"} for name in eight}
        layers |= {f"{base}.mlp.{half}_proj": {"quant_algo": "W4A16_NVFP4"} for half in ("gate", "up", "down")}
    return {"quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8", "quantized_layers": layers}}


def test_mixed_precision_goes_by_module(tmp_path: Path) -> None:
    import json

    (tmp_path / "config.json").write_text((CONFIGS / "qwen3.5-27b.json").read_text("utf-8"), "utf-8")
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(mixed_27b()), "utf-8")
    model = open_model(tmp_path)
    by_name = {one.name: one.format.name for one in model.weights}
    assert by_name["lm_head"] == by_name["layers.7.mlp.up_proj"] == "w4a16_nvfp4"
    assert by_name["layers.7.self_attn.q_proj"] == by_name["layers.6.linear_attn.out_proj"] == "fp8"
    assert by_name["layers.6.linear_attn.in_proj_b"] == by_name["layers.64.mlp.up_proj"] == "bf16", "mtp is left alone"
    assert model.kv_dtype == "fp8"
    read = sum(one.bytes for one in model.weights if not one.draft and one.role != "embedding")
    four_bit = (64 * 3 * 5120 * 17408 + 248320 * 5120) * 0.5625
    delta_net = 48 * 5120 * (2 * 2048 + 6144 + 6144 + 6144)
    attention = 16 * 5120 * (2 * 6144 + 2 * 1024 + 6144)
    small = 48 * 2 * 5120 * 48 * 2
    assert read == pytest.approx(four_bit + delta_net + attention + small, rel=0.001)


@pytest.mark.parametrize(
    ("config", "role", "per_weight", "kv"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "mlp", 0.5195, None),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "mlp", 0.5156, None),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}, "mlp", 0.578, None),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}, "mlp", 1.0, None),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "head", 2.0, None),
        ({"quant_method": "fbgemm_fp8"}, "attention", 1.0, None),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": "FP8"}, "mlp", 1.0, "fp8"),
        ({"quant_algo": "NVFP4", "ignore": ["lm_head"]}, "expert", 0.5625, None),
    ],
)
def test_schemes(config: dict[str, Any], role: str, per_weight: float, kv: str | None) -> None:
    scheme = scheme_of(config, None, BF16, "x")
    assert scheme.format_of(("layers.0.x",), role).bytes_per_weight == pytest.approx(per_weight, abs=0.0005)
    assert scheme.kv == kv


@pytest.mark.parametrize(
    ("weights", "name"),
    [
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, "fp8"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, "int8"),
        ({"num_bits": 4, "type": "float", "group_size": 16}, "nvfp4"),
        ({"num_bits": 4, "type": "float", "group_size": 32}, "mxfp4"),
        ({"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True}, "int4_g128"),
    ],
)
def test_compressed_tensors_groups(weights: dict[str, Any], name: str) -> None:
    config = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}},
        "ignore": ["lm_head"],
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    }
    scheme = scheme_of(config, None, BF16, "x")
    assert scheme.format_of(("layers.0.mlp.up_proj",), "mlp").name == name
    assert scheme.format_of(("lm_head",), "head").name == "bf16"
    assert scheme.kv == "fp8"
    config["ignore"] = []
    assert scheme_of(config, None, BF16, "x").format_of(("lm_head",), "head").name == name


def test_bytes_per_weight() -> None:
    """Reference notes, section 2.6."""
    assert FORMATS["mxfp4"].bytes_per_weight == 0.53125
    assert FORMATS["nvfp4"].bytes_per_weight == 0.5625
    assert FORMATS["int4"].bytes_per_weight == pytest.approx(0.5195, abs=0.0005)
    assert Scheme().format_of(("lm_head",), "head") is BF16


def test_hf_quant_config_without_its_table_is_refused() -> None:
    with pytest.raises(DataError, match="no table 'quantization'"):
        scheme_of(None, {"producer": {}}, BF16, "x")


def test_the_separate_file_is_read_beside_a_config(tmp_path: Path) -> None:
    assert read_json(CONFIGS / "glm-5-nvfp4" / "hf_quant_config.json")["quantization"]["quant_algo"] == "NVFP4"
    alone = open_model(CONFIGS / "glm-5.json")
    assert alone.quantization is None and open_model(CONFIGS / "glm-5-nvfp4").quantization == "nvfp4"


@pytest.mark.parametrize("pattern", [r"(.*)*X", r"(\w+\.?)+X", r"([a-z_.0-9]+)+$", r"((a|b*)c)+", r"(a{2,}){3}"])
def test_an_expression_that_takes_for_ever_is_refused(pattern: str) -> None:
    assert expression(pattern) is None
    group = {"weights": {"num_bits": 8, "type": "float"}, "targets": ["Linear"]}
    said = {"quant_method": "compressed-tensors", "config_groups": {"g": group}, "ignore": [f"re:{pattern}"]}
    with pytest.raises(DataError, match="could take for ever"):
        scheme_of(said, None, FORMATS["bf16"], "config.json")


@pytest.mark.parametrize(
    "pattern",
    [
        r".*self_attn\.(q|k|v)_proj.*", r"(model\.)?layers\.(\d+)\..*", r".*lm_head", r"[(*]+x",
        r"\(.*\)+", r".*mlp.gate$",
    ],
)  # fmt: skip
def test_expressions_that_checkpoints_hold_are_tried(pattern: str) -> None:
    assert expression(pattern) is not None
