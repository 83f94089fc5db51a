"""Bytes from safetensors headers: exact, and what the headers know better than config.json."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from decodetop.errors import DataError
from decodetop.floor.model import Model, open_model
from support.checkpoints import write_safetensors, write_sharded

CONFIGS = Path(__file__).parent / "configs"


def folder_of(tmp_path: Path, name: str, **changes: object) -> Path:
    data = {**json.loads((CONFIGS / f"{name}.json").read_text("utf-8")), **changes}
    (tmp_path / "config.json").write_text(json.dumps(data), "utf-8")
    return tmp_path


def dense(layers: int, h: int, q: int, kv: int, width: int, vocab: int) -> dict[str, tuple[str, Sequence[int]]]:
    """A Qwen3 checkpoint in BF16 with a tied head."""
    out: dict[str, tuple[str, Sequence[int]]] = {"model.embed_tokens.weight": ("BF16", (vocab, h))}
    for at in range(layers):
        layer = f"model.layers.{at}"
        shapes = {
            "self_attn.q_proj": (q, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h),
            "self_attn.o_proj": (h, q), "self_attn.q_norm": (128,), "self_attn.k_norm": (128,),
            "mlp.gate_proj": (width, h), "mlp.up_proj": (width, h), "mlp.down_proj": (h, width),
            "input_layernorm": (h,), "post_attention_layernorm": (h,),
        }  # fmt: skip
        out |= {f"{layer}.{name}.weight": ("BF16", shape) for name, shape in shapes.items()}
    return out | {"model.norm.weight": ("BF16", (h,))}


QWEN3_06B = dense(28, 1024, 2048, 1024, 3072, 151936)


def stored(model: Model, *roles: str) -> float:
    return sum(one.bytes * one.count for one in model.weights if not roles or one.role in roles)


def test_bytes_of_all_shards(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qwen3-0.6b")
    write_sharded(folder, QWEN3_06B, 3)
    model = open_model(folder)
    assert model.source == "safetensors"
    assert stored(model) == 2 * 596049920
    assert model.params.total == 596049920
    assert model.notes == ()


def test_the_files_decide_whether_the_head_is_tied(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qwen3-0.6b")
    write_safetensors(folder / "model.safetensors", QWEN3_06B | {"lm_head.weight": ("BF16", (151936, 1024))})
    model = open_model(folder)
    assert not model.shape.tied
    assert model.notes == ("config.json says the head is tied; the files say otherwise",)
    assert stored(model, "head") == 151936 * 1024 * 2


def test_vision_and_draft_layers_are_told_apart(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qwen3-0.6b")
    extra: dict[str, tuple[str, Sequence[int]]] = {
        "visual.blocks.0.attn.qkv.weight": ("BF16", (4096, 4096)),
        "model.layers.28.mlp.down_proj.weight": ("BF16", (1024, 3072)),
        "model.layers.28.embed_tokens.weight": ("BF16", (151936, 1024)),
        "mtp.fc.weight": ("BF16", (1024, 2048)),
    }
    write_safetensors(folder / "model.safetensors", QWEN3_06B | extra)
    model = open_model(folder)
    assert sum(one.bytes for one in model.weights if one.draft) == 2 * (1024 * 3072 + 1024 * 2048)
    assert sum(one.bytes for one in model.weights if not one.draft) == 2 * 596049920


def test_mxfp4_experts_of_gpt_oss(tmp_path: Path) -> None:
    """Blocks of 32 values in 16 bytes and a scale of one; 12.81 GiB in all, as the model card says."""
    folder = folder_of(tmp_path, "gpt-oss-20b")
    h = 2880
    tensors: dict[str, tuple[str, Sequence[int]]] = {
        "model.embed_tokens.weight": ("BF16", (201088, h)),
        "lm_head.weight": ("BF16", (201088, h)),
        "model.norm.weight": ("BF16", (h,)),
    }
    bf16 = {
        "self_attn.q_proj.weight": (4096, h), "self_attn.q_proj.bias": (4096,), "self_attn.k_proj.weight": (512, h),
        "self_attn.k_proj.bias": (512,), "self_attn.v_proj.weight": (512, h), "self_attn.v_proj.bias": (512,),
        "self_attn.o_proj.weight": (h, 4096), "self_attn.o_proj.bias": (h,), "self_attn.sinks": (64,),
        "mlp.router.weight": (32, h), "mlp.router.bias": (32,), "mlp.experts.gate_up_proj_bias": (32, 5760),
        "mlp.experts.down_proj_bias": (32, h), "input_layernorm.weight": (h,), "post_attention_layernorm.weight": (h,),
    }  # fmt: skip
    packed = {
        "gate_up_proj_blocks": (32, 5760, 90, 16), "gate_up_proj_scales": (32, 5760, 90),
        "down_proj_blocks": (32, h, 90, 16), "down_proj_scales": (32, h, 90),
    }  # fmt: skip
    for at in range(24):
        tensors |= {f"model.layers.{at}.{name}": ("BF16", shape) for name, shape in bf16.items()}
        tensors |= {f"model.layers.{at}.mlp.experts.{name}": ("U8", shape) for name, shape in packed.items()}
    write_safetensors(folder / "model.safetensors", tensors)
    model = open_model(folder)
    by_formula = open_model(CONFIGS / "gpt-oss-20b.json")
    assert stored(model) / 2**30 == pytest.approx(12.815, rel=0.001)
    assert stored(model) == pytest.approx(stored(by_formula), rel=1e-6)
    expert = next(one for one in model.weights if one.role == "expert")
    assert (expert.count, expert.format.compute) == (32, "fp4")
    assert stored(model, "router") == pytest.approx(stored(by_formula, "router") + 24 * 32 * 2)


def test_fp8_with_scales_and_int4_experts_are_counted_as_stored(tmp_path: Path) -> None:
    """The latent projections of an MLA layer in FP8 blocks, one layer's experts packed by eight in 32 bits."""
    folder = folder_of(tmp_path, "deepseek-v2-lite", num_hidden_layers=2, quantization_config={"quant_method": "fp8"})
    h, experts, width = 2048, 64, 1408
    tensors: dict[str, tuple[str, Sequence[int]]] = {
        "model.embed_tokens.weight": ("BF16", (102400, h)),
        "lm_head.weight": ("BF16", (102400, h)),
        "model.layers.1.self_attn.kv_a_proj_with_mqa.weight": ("F8_E4M3", (576, h)),
        "model.layers.1.self_attn.kv_a_proj_with_mqa.weight_scale_inv": ("F32", (5, 16)),
        "model.layers.1.mlp.gate.weight": ("BF16", (experts, h)),
        "model.layers.1.mlp.shared_experts.up_proj.weight": ("BF16", (2 * width, h)),
    }
    for at in range(experts):
        expert = f"model.layers.1.mlp.experts.{at}.up_proj"
        tensors[f"{expert}.weight_packed"] = ("I32", (width, h // 8))
        tensors[f"{expert}.weight_scale"] = ("BF16", (width, h // 32))
        tensors[f"{expert}.weight_shape"] = ("I64", (2,))
    write_safetensors(folder / "model.safetensors", tensors)
    model = open_model(folder)
    assert stored(model, "latent") == 576 * h + 4 * 5 * 16
    expert_one = next(one for one in model.weights if one.role == "expert")
    assert (expert_one.count, expert_one.layer) == (64, 1)
    assert expert_one.bytes == width * h / 2 + 2 * width * h / 32 + 16
    assert stored(model, "shared_expert") == 2 * 2 * width * h
    assert stored(model, "router") == 2 * experts * h


def test_a_scheme_that_is_not_known_costs_only_its_name(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qwen3-0.6b", quantization_config={"quant_method": "quip"})
    write_safetensors(folder / "model.safetensors", QWEN3_06B)
    model = open_model(folder)
    assert model.quantization == "quip"
    assert any("'quip' is not known" in note for note in model.notes)


def test_a_scheme_that_is_no_table_costs_only_its_name(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qwen3-0.6b", quantization_config="fp8")
    write_safetensors(folder / "model.safetensors", QWEN3_06B)
    model = open_model(folder)
    assert model.quantization == "unknown"
    assert any("is no table" in note for note in model.notes)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qwen3-0.6b")
    write_sharded(folder, QWEN3_06B, 2)
    second = folder / "model-00002-of-00002.safetensors"
    raw = second.read_bytes()
    for damaged, word in (
        (raw[:4], "no safetensors header"),
        (b"\xff" * 16, "no safetensors header"),
        (raw[:200], "damaged header"),
        (raw.replace(b'"BF16"', b'"BF17"', 1), "unknown type 'BF17'"),
        (raw.replace(b'"shape"', b'"shade"', 1), "has no shape"),
        (raw.replace(b"1024]", b"1025]", 1), "does not have the bytes of its shape"),
        (header({"a": ("BF16", [1 << 40, 1 << 40] + [1 << 40] * 20, [0, 2])}), "can't be that large"),
        (header({"a": ("BF16", [True], [0, 2])}), "has no shape"),
        (header({"a": ("BF16", [1], [0, 2]), "b": ("BF16", [2], [0, 4])}), "tensors overlap"),
    ):
        second.write_bytes(damaged)
        with pytest.raises(DataError, match=word) as caught:
            open_model(folder)
        assert str(second) in caught.value.message
    second.unlink()
    with pytest.raises(DataError, match="can't read"):
        open_model(folder)


def header(tensors: Mapping[str, tuple[str, Sequence[int], Sequence[int]]]) -> bytes:
    """name -> (type, shape, offsets), as they stand in a damaged file."""
    table = {name: {"dtype": one[0], "shape": one[1], "data_offsets": one[2]} for name, one in tensors.items()}
    raw = json.dumps(table).encode()
    return len(raw).to_bytes(8, "little") + raw


def test_the_same_weights_in_another_layout_are_not_counted(tmp_path: Path) -> None:
    """Some makers ship their own layout beside the one engines load."""
    folder = folder_of(tmp_path, "qwen3-0.6b")
    write_safetensors(folder / "model.safetensors", QWEN3_06B)
    write_safetensors(folder / "consolidated.safetensors", {"layers.0.attention.wq.weight": ("BF16", (4096, 4096))})
    assert stored(open_model(folder)) == 2 * 596049920


def test_a_tensor_of_two_files_is_counted_where_the_index_says(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qwen3-0.6b")
    write_sharded(folder, QWEN3_06B, 2)
    copied = {"model.embed_tokens.weight", "model.norm.weight"}
    second = {name: found for at, (name, found) in enumerate(QWEN3_06B.items()) if at % 2 or name in copied}
    write_safetensors(folder / "model-00002-of-00002.safetensors", second)
    assert stored(open_model(folder)) == 2 * 596049920
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(DataError, match="is in another file too"):
        open_model(folder)


def test_four_bit_floats_have_half_a_byte(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qwen3-0.6b")
    rows = {**QWEN3_06B, "model.layers.0.mlp.up_proj.weight": ("F4", (3072, 1024))}
    write_safetensors(folder / "model.safetensors", rows)
    assert stored(open_model(folder)) == 2 * 596049920 - 3072 * 1024 * 3 // 2


@pytest.mark.parametrize("name", ["../other/model.safetensors", "model\0.safetensors", "/etc/passwd"])
def test_an_index_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path, "qwen3-0.6b")
    index = {"weight_map": {"model.norm.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    with pytest.raises(DataError, match="outside its folder"):
        open_model(folder)


def test_weights_dtype_asked_for_goes_by_formula(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qwen3-0.6b")
    write_safetensors(folder / "model.safetensors", QWEN3_06B)
    model = open_model(folder, "fp8")
    assert model.source == "config"
    assert stored(model, "mlp") == 28 * 3 * 1024 * 3072
    shutil.rmtree(folder)
