"""GGUF headers: exact bytes of a K-quant mix, shape from the keys, and damaged files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from decodetop.errors import DataError
from decodetop.floor import gguf
from decodetop.floor.floor import compute
from decodetop.floor.hardware import load, named
from decodetop.floor.model import open_model
from decodetop.floor.reading import Plan
from support.checkpoints import write_gguf

F32, Q4_K, Q5_K, Q6_K = 0, 12, 13, 14
KEYS: dict[str, int | float | str | list[str]] = {
    "general.architecture": "llama",
    "llama.block_count": 80,
    "llama.embedding_length": 8192,
    "llama.feed_forward_length": 28672,
    "llama.attention.head_count": 64,
    "llama.attention.head_count_kv": 8,
    "llama.rope.freq_base": 500000.0,
    "tokenizer.ggml.tokens": ["<s>", "a", "b"],
}


def more_bits(at: int, layers: int) -> bool:
    """Which layers llama.cpp's Q4_K_M gives more bits."""
    return at < layers // 8 or at >= 7 * layers // 8 or (at - layers // 8) % 3 == 2


def llama_70b() -> list[tuple[str, int, tuple[int, ...]]]:
    """Llama-3-70B as llama.cpp quantises it to Q4_K_M."""
    h, kv, width, vocab = 8192, 1024, 28672, 128256
    rows: list[tuple[str, int, tuple[int, ...]]] = [
        ("token_embd.weight", Q4_K, (h, vocab)),
        ("output.weight", Q6_K, (h, vocab)),
        ("output_norm.weight", F32, (h,)),
    ]
    for at in range(80):
        high = Q6_K if more_bits(at, 80) else Q4_K
        rows += [
            (f"blk.{at}.attn_q.weight", Q4_K, (h, h)),
            (f"blk.{at}.attn_k.weight", Q4_K, (h, kv)),
            (f"blk.{at}.attn_v.weight", Q6_K if high == Q6_K else Q5_K, (h, kv)),
            (f"blk.{at}.attn_output.weight", Q4_K, (h, h)),
            (f"blk.{at}.ffn_gate.weight", Q4_K, (h, width)),
            (f"blk.{at}.ffn_up.weight", Q4_K, (h, width)),
            (f"blk.{at}.ffn_down.weight", high, (width, h)),
            (f"blk.{at}.attn_norm.weight", F32, (h,)),
            (f"blk.{at}.ffn_norm.weight", F32, (h,)),
        ]
    return rows


def test_llama_70b_in_q4_k_m(tmp_path: Path) -> None:
    """Measured: 68.59 ms a token on an A6000; the floor of the table is 54.99 ms from 42.23 GB."""
    path = tmp_path / "llama-70b.Q4_K_M.gguf"
    write_gguf(path, KEYS, llama_70b())
    model = open_model(path)
    assert (model.source, model.quantization) == ("gguf", "Q4_K")
    assert model.params.total == pytest.approx(70553706496, rel=1e-6)
    report = compute(model, Plan(context=1), named("RTX A6000", load()), sweep=False)
    assert report.bytes.weights / 1e9 == pytest.approx(41.93, rel=0.01)
    assert report.t_phys_ms == pytest.approx(54.99, rel=0.03)
    assert report.t_phys_ms < 68.59
    assert report.bytes.kv == 80 * 2 * 1024 * 2


def test_split_files_are_read_together(tmp_path: Path) -> None:
    rows = llama_70b()
    first, second = (tmp_path / f"m-0000{at}-of-00002.gguf" for at in (1, 2))
    write_gguf(first, KEYS, rows[:300])
    write_gguf(second, {"general.architecture": "llama"}, rows[300:])
    assert open_model(first).params.total == pytest.approx(70553706496, rel=1e-6)
    second.unlink()
    with pytest.raises(DataError, match="can't read"):
        open_model(first)


def test_experts_and_latent_attention(tmp_path: Path) -> None:
    keys: dict[str, int | float | str] = {
        "general.architecture": "deepseek2", "deepseek2.block_count": 2, "deepseek2.embedding_length": 2048,
        "deepseek2.feed_forward_length": 10944, "deepseek2.attention.head_count": 16, "deepseek2.expert_count": 64,
        "deepseek2.expert_used_count": 6, "deepseek2.expert_feed_forward_length": 1408,
        "deepseek2.attention.kv_lora_rank": 512, "deepseek2.rope.dimension_count": 64,
        "deepseek2.attention.key_length_mla": 192, "deepseek2.attention.value_length_mla": 128,
        "deepseek2.attention.key_length": 576,
    }  # fmt: skip
    path = tmp_path / "model.gguf"
    rows = [
        ("token_embd.weight", Q4_K, (2048, 102400)),
        ("output.weight", Q6_K, (2048, 102400)),
        ("blk.0.ffn_down.weight", Q4_K, (10944, 2048)),
        ("blk.1.ffn_gate_inp.weight", F32, (2048, 64)),
        ("blk.1.ffn_down_exps.weight", Q4_K, (1408, 2048, 64)),
        ("blk.1.ffn_down_shexp.weight", Q4_K, (2816, 2048)),
        ("blk.1.attn_kv_a_mqa.weight", Q4_K, (2048, 576)),
    ]
    write_gguf(path, keys, rows)
    model = open_model(path)
    assert [layer.ffn for layer in model.shape.layers] == ["dense", "moe"]
    assert model.shape.mla is not None and model.shape.mla.latent == 576
    expert = next(one for one in model.weights if one.role == "expert")
    assert (expert.count, expert.bytes) == (64, 1408 * 2048 * 4.5 / 8)
    assert {one.role for one in model.weights} == {
        "embedding", "head", "mlp", "router", "expert", "shared_expert", "latent",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cut", "word"),
    [(0, "ends early"), (3, "ends early"), (30, "ends early"), (400, "ends early")],
)
def test_a_cut_file(tmp_path: Path, cut: int, word: str) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, KEYS, llama_70b()[:5])
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=word):
        open_model(path)


@pytest.mark.parametrize(
    "change",
    [
        {"llama.expert_count": "many"},
        {"llama.expert_count": float("nan")},
        {"llama.expert_count": 2**31},
        {"llama.nextn_predict_layers": float("inf")},
        {"llama.nextn_predict_layers": 80},
        {"llama.block_count": 2**25},
        {"llama.attention.kv_lora_rank": 512, "llama.attention.q_lora_rank": "x", "llama.rope.dimension_count": 64},
        {"llama.expert_count": 8, "llama.expert_used_count": 9},
    ],
    ids=str,
)
def test_counts_that_can_not_be(tmp_path: Path, change: dict[str, int | float | str]) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {**KEYS, **change}, llama_70b()[:5])
    with pytest.raises(DataError, match="is missing or no count that can be") as caught:
        open_model(path)
    assert any(f"key {key} " in caught.value.message for key in change)


def test_lists_in_lists_without_end(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    nested = struct.pack("<IQ", 9, 1) * 5000
    path.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<I", 9) + nested)
    with pytest.raises(DataError, match="nested too deeply"):
        open_model(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGML" + b"\0" * 60)
    with pytest.raises(DataError, match="does not begin with GGUF"):
        open_model(path)
    path.write_bytes(b"GGUF" + (1).to_bytes(4, "little") + b"\0" * 60)
    with pytest.raises(DataError, match="version 1 is not known"):
        open_model(path)
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 60)
    with pytest.raises(DataError, match="can't be"):
        open_model(path)
    write_gguf(path, {**KEYS, "general.architecture": "mamba9"}, llama_70b()[:3])
    with pytest.raises(DataError, match="'mamba9' is not supported"):
        open_model(path)
    write_gguf(path, {"general.architecture": "llama"}, llama_70b()[:3])
    with pytest.raises(DataError, match=r"llama\.embedding_length is missing"):
        open_model(path)
    write_gguf(path, KEYS, [("token_embd.weight", 99, (4, 4))])
    with pytest.raises(DataError, match="type 99"):
        open_model(path)


def test_bits_of_the_types() -> None:
    """Bits per weight of the formats' own table."""
    bits = {name: 8 * size / values for name, values, size in gguf.TYPES.values()}
    expected = {
        "Q8_0": 8.5, "Q6_K": 6.5625, "Q5_K": 5.5, "Q5_0": 5.5, "Q5_1": 6, "Q4_K": 4.5, "Q4_0": 4.5, "Q4_1": 5,
        "IQ4_XS": 4.25, "IQ4_NL": 4.5, "MXFP4": 4.25, "Q3_K": 3.4375, "IQ3_XXS": 3.0625, "Q2_K": 2.625,
        "IQ2_XXS": 2.0625,
    }  # fmt: skip
    assert {name: bits[name] for name in expected} == expected
