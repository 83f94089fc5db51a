"""Odd values of a checkpoint's quantisation: bytes that are right, or one line that says which value is wrong where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from decodetop.errors import DataError
from decodetop.floor.cache import layer_kv
from decodetop.floor.floor import compute
from decodetop.floor.formats import BF16, Scheme
from decodetop.floor.hardware import load, named
from decodetop.floor.model import open_model
from decodetop.floor.quantisation import scheme_of
from decodetop.floor.reading import Plan

CONFIGS = Path(__file__).parent / "configs"
H200 = named("H200", load())


def scheme(**config: Any) -> Scheme:
    return scheme_of(config, None, BF16, "config.json")


def per_weight(found: Scheme, name: str = "layers.3.mlp.up_proj", role: str = "mlp") -> float:
    return found.format_of((name,), role).bytes_per_weight


def tensors(weights: Any, targets: Any = ("Linear",), **more: Any) -> Scheme:
    groups = {"group_0": {"weights": weights, "targets": list(targets)}}
    return scheme(**{"quant_method": "compressed-tensors", "config_groups": groups, **more})


@pytest.mark.parametrize("group", [-7, 0, 10**9, 10**30, "128", True, 1.5, [128]])
def test_a_group_size_that_can_not_be_is_said(group: object) -> None:
    """-7 was taken for one scale a channel, true for a scale a weight: 19.8 GB of a model of 4.9."""
    for make in (
        lambda: scheme(quant_method="gptq", bits=4, group_size=group),
        lambda: scheme(quant_method="awq", bits=4, q_group_size=group),
        lambda: tensors({"num_bits": 4, "type": "int", "group_size": group}),
        lambda: tensors({"num_bits": 4, "type": "float", "group_size": group}),
        lambda: scheme(quant_method="modelopt", quant_algo="NVFP4", group_size=group),
        lambda: scheme(
            quant_method="modelopt",
            quant_algo="MIXED_PRECISION",
            quantized_layers={"lm_head": {"quant_algo": "W4A8_AWQ", "group_size": group}},
        ),
    ):
        with pytest.raises(DataError, match=r"^config\.json: .*group_size = .* can't be") as caught:
            make()
        assert caught.value.hint and "\n" not in str(caught.value)


@pytest.mark.parametrize("group", [None, -1])
def test_no_group_is_a_scale_a_channel(group: int | None) -> None:
    assert per_weight(scheme(quant_method="gptq", bits=4, group_size=group)) == 0.5
    assert per_weight(tensors({"num_bits": 4, "type": "int", "group_size": group})) == 0.5


@pytest.mark.parametrize("bits", [0, 1, 5, 6, 16, 17, -4, "4", True, None])
def test_bits_that_no_format_has_are_named_as_they_stand(bits: object) -> None:
    with pytest.raises(DataError, match=f"gptq with bits = {bits!r} is not known"):
        scheme(quant_method="gptq", bits=bits, group_size=128)
    with pytest.raises(DataError, match=f"weights of {bits!r} bits of type 'int' are not known"):
        tensors({"num_bits": bits, "type": "int"})


def test_three_bits_are_three_eighths() -> None:
    assert per_weight(scheme(quant_method="gptq", bits=3, group_size=64)) == 3 / 8 + 2 / 64
    assert per_weight(scheme(quant_method="gptq", bits=3, group_size=64, sym=False)) == 3 / 8 + (2 + 3 / 8) / 64


@pytest.mark.parametrize("block", [[0, 0], [-1, 4], [128], [128, 128, 128], "x", [128.0, 128], [True, True], {}, 128])
def test_a_block_that_can_not_be_is_said(block: object) -> None:
    """[0, 0] was taken for a scale a tensor, [true, true] for a scale a weight: 37 GB instead of 9."""
    with pytest.raises(DataError, match=r"weight_block_size = .* can't be"):
        scheme(quant_method="fp8", weight_block_size=block)
    with pytest.raises(DataError, match=r"block_structure = .* can't be"):
        tensors({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": block})


def test_blocks_have_a_scale_each() -> None:
    assert per_weight(scheme(quant_method="fp8", weight_block_size=[64, 128])) == 1 + 4 / (64 * 128)
    assert per_weight(scheme(quant_method="fp8", weight_block_size=None)) == 1
    blocks = {"num_bits": 8, "type": "float", "strategy": "block"}
    assert per_weight(tensors(blocks)) == 1 + 4 / 128**2
    assert per_weight(tensors({**blocks, "block_structure": [64, 64]})) == 1 + 4 / 64**2


def test_floats_with_groups_have_their_scales() -> None:
    """MXFP8 and MXFP4 have a byte for 32 weights, NVFP4 one for 16."""
    assert per_weight(tensors({"num_bits": 8, "type": "float", "group_size": 32})) == 1 + 1 / 32
    assert per_weight(tensors({"num_bits": 4, "type": "float", "group_size": 32})) == 0.5 + 1 / 32
    assert per_weight(tensors({"num_bits": 4, "type": "float", "group_size": 16})) == 0.5 + 1 / 16
    assert per_weight(scheme(quant_method="modelopt", quant_algo="NVFP4", group_size=32)) == 0.5 + 1 / 32
    with pytest.raises(DataError, match="4 bit floats without a group size of 16 or 32"):
        tensors({"num_bits": 4, "type": "float"})


def test_modelopt_s_integers_have_their_own_groups() -> None:
    layers = {"model.layers.3.mlp.up_proj": {"quant_algo": "W4A8_AWQ", "group_size": 64}, "lm_head": "FP8"}
    found = scheme(quant_method="modelopt", quant_algo="MIXED_PRECISION", quantized_layers=layers)
    assert per_weight(found) == 0.5 + 2 / 64
    assert per_weight(found, "layers.4.mlp.up_proj") == 2
    assert per_weight(found, "lm_head", "head") == 1
    assert per_weight(scheme(quant_method="modelopt", quant_algo="INT4_AWQ", group_size=128)) == 0.5 + 2 / 128
    zeros = scheme(quant_method="modelopt", quant_algo="INT4_AWQ", group_size=128, has_zero_point=True)
    assert per_weight(zeros) == 0.5 + 2.5 / 128


def test_awq_without_zero_points_has_none() -> None:
    assert per_weight(scheme(quant_method="awq", bits=4, group_size=128, zero_point=False)) == 0.5 + 2 / 128
    assert per_weight(scheme(quant_method="awq", bits=4, group_size=128)) == 0.5 + 2.5 / 128


def test_groups_of_a_checkpoint_go_by_their_targets() -> None:
    """Attention in FP8, MLP in NVFP4, what is ignored as it is; a group for activations alone quantises no weight."""
    groups = {
        "attention": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}},
        "rest": {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}},
        "kv": {"targets": ["LlamaAttention"], "weights": None, "input_activations": {"num_bits": 8}},
    }
    found = scheme(
        quant_method="compressed-tensors",
        config_groups=groups,
        ignore=["lm_head", "re:.*layers\\.0\\..*", "model.layers.1.mlp.down_proj"],
    )
    assert per_weight(found, "layers.3.self_attn.q_proj", "attention") == 1
    assert per_weight(found) == 0.5625
    assert per_weight(found, "layers.0.mlp.up_proj") == per_weight(found, "layers.1.mlp.down_proj") == 2
    assert per_weight(found, "lm_head", "head") == 2
    assert found.name == "fp8 + nvfp4"


def test_one_name_is_a_list_of_one_and_other_things_are_none() -> None:
    """`ignore: "lm_head"` was passed over, and the head counted in 8 bit."""
    eight = {"num_bits": 8, "type": "float"}
    assert per_weight(tensors(eight, ignore="lm_head"), "lm_head", "head") == 2
    assert per_weight(tensors(eight, ignore=None), "lm_head", "head") == 1
    for wrong in (7, {"lm_head": True}, [7], [None]):
        with pytest.raises(DataError, match=r"ignore = .* is no list of names"):
            tensors(eight, ignore=wrong)


def test_weights_kept_sparse_are_not_guessed() -> None:
    eight = {"num_bits": 8, "type": "float"}
    for more in (
        {"sparsity_config": {"format": "sparse-24-bitmask", "sparsity_structure": "2:4"}},
        {"format": "marlin-24"},
    ):
        with pytest.raises(DataError, match="kept sparse"):
            tensors(eight, **more)
    dense = {"sparsity_config": {"format": "dense", "sparsity_structure": "unstructured"}}
    assert per_weight(tensors(eight, **dense)) == 1


def test_gptq_s_exceptions_by_module_count() -> None:
    dynamic = {
        r"-:.*\.3\.mlp\.up_proj": {},
        r"+:.*\.4\.mlp.*": {"bits": 8, "group_size": 32},
        r".*lm_head": {"bits": 8},
    }
    found = scheme(quant_method="gptq", bits=4, group_size=128, sym=True, dynamic=dynamic)
    assert per_weight(found) == 2
    assert per_weight(found, "layers.4.mlp.up_proj") == 1 + 2 / 32
    assert per_weight(found, "layers.5.mlp.up_proj") == 0.5 + 2 / 128
    with pytest.raises(DataError, match="dynamic"):
        scheme(quant_method="gptq", bits=4, dynamic=["x"])
    with pytest.raises(DataError, match="could take for ever"):
        scheme(quant_method="gptq", bits=4, dynamic={"-:(.*)*X": {}})


@pytest.mark.parametrize("method", ["quip", "bitsandbytes", "torchao", "hqq", "quark", 7, [], {}, "x" * 500])
def test_a_scheme_that_is_not_known_is_named(method: object) -> None:
    with pytest.raises(DataError, match=r"^config\.json: quantisation '.{0,40}' is not known") as caught:
        scheme(quant_method=method)
    assert "its headers hold the bytes" in caught.value.hint


def test_an_empty_table_declares_nothing() -> None:
    assert scheme_of({}, None, BF16, "x") == Scheme(base=BF16)


@pytest.mark.parametrize(
    ("said", "kv"),
    [
        ({"num_bits": 8, "type": "float", "strategy": "attn_head"}, "fp8"),
        ({"num_bits": 8, "type": "int", "strategy": "tensor"}, "int8"),
        ({"num_bits": 4, "type": "float", "group_size": 16}, "fp4"),
        ({"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}, "fp8_per_token_head"),
        ({"num_bits": 3, "type": "int"}, "int3"),
        (None, None),
    ],
)
def test_kv_formats_that_a_checkpoint_declares(said: object, kv: str | None) -> None:
    assert tensors({"num_bits": 8, "type": "float"}, kv_cache_scheme=said).kv == kv


@pytest.mark.parametrize(
    ("word", "kv"), [("FP8", "fp8"), ("NVFP4", "fp4"), ("INT8", "int8"), ("FP7", "fp7"), (None, None)]
)
def test_kv_words_of_modelopt(word: str | None, kv: str | None) -> None:
    assert scheme(quant_method="modelopt", quant_algo="FP8", kv_cache_quant_algo=word).kv == kv


def test_modelopt_may_quantise_the_kv_only() -> None:
    found = scheme(quant_method="modelopt", quant_algo=None, kv_cache_quant_algo="FP8")
    assert (found.kv, found.default, found.name) == ("fp8", None, None)
    with pytest.raises(DataError, match="quant_algo 'None' is not known"):
        scheme(quant_method="modelopt")


def test_a_kv_format_that_is_not_known_costs_its_word_only(tmp_path: Path) -> None:
    """It was passed over in silence, and KV counted in 16 bit."""
    known = json.loads((CONFIGS / "llama-3.1-8b.json").read_text("utf-8"))
    said = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP7"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**known, "quantization_config": said}), "utf-8")
    with pytest.raises(DataError, match="KV dtype 'fp7' is not known"):
        compute(open_model(path), Plan(), H200, sweep=False)
    assert compute(open_model(path), Plan(kv_dtype="fp8"), H200, sweep=False).model.kv_dtype == "fp8"


def test_scales_a_head_and_token_are_read_too() -> None:
    """vLLM keeps 4 bytes a token and head for K and for V beside 8 bit values; one a head is nothing."""
    shape = open_model(CONFIGS / "qwen3-8b.json").shape
    one = shape.layers[0]
    assert layer_kv(shape, one, 1000, "fp8", 1) == 1000 * 2 * 8 * 128
    assert layer_kv(shape, one, 1000, "fp8_per_token_head", 1) == 1000 * 2 * 8 * (128 + 4)
    assert layer_kv(shape, one, 1000, "int8_per_token_head", 2) == 1000 * 2 * 4 * (128 + 4)
    for word, same in (("bfloat16", "bf16"), ("float16", "fp16"), ("nvfp4", "fp4"), ("FP8", "fp8")):
        assert layer_kv(shape, one, 7, word, 1) == layer_kv(shape, one, 7, same, 1)
