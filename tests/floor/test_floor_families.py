"""Families end to end, each held against arithmetic by hand from its published dimensions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decodetop.errors import DataError
from decodetop.floor.hardware import load, named
from decodetop.floor.model import open_model
from decodetop.floor.reading import FloorReport
from decodetop.flows.floor import Ask, answer

CONFIGS = Path(__file__).parent / "configs"
SPECS = load()


def floor(model: str, gpu: str, **plan: int) -> FloorReport:
    path = CONFIGS / model
    return answer(Ask(model=path if path.is_dir() else path.with_name(f"{model}.json"), **plan), named(gpu, SPECS))  # type: ignore[arg-type]


def test_glm_5_in_nvfp4_keeps_attention_in_16_bit() -> None:
    """44.06 GB a step: 5.51 a GPU if all of it were shared over 8; 9.20 with the latent projections whole on each."""
    report = floor("glm-5-nvfp4", "RTX PRO 6000", tp=8)
    assert report.model.quantization == "nvfp4" and report.model.is_mla and report.model.is_moe
    assert report.bytes_low.weights / 1e9 == pytest.approx(5.51, abs=0.01)
    assert report.bytes.weights / 1e9 == pytest.approx(9.20, abs=0.01)
    assert report.t_phys_ms == pytest.approx(3.07, rel=0.03)
    assert report.allreduces_per_step == 2 * 78 + 2


def test_glm_5_2_may_name_its_layers(tmp_path: Path) -> None:
    """NVIDIA's checkpoints of it list the layers as sparse attention, the maker's do not."""
    known = json.loads((CONFIGS / "glm-5.2.json").read_text("utf-8"))
    kinds = ["deepseek_sparse_attention"] * known["num_hidden_layers"]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**known, "layer_types": kinds}), "utf-8")
    assert open_model(path).shape == open_model(CONFIGS / "glm-5.2.json").shape
    path.write_text(json.dumps({**known, "layer_types": kinds, "index_topk": None}), "utf-8")
    with pytest.raises(DataError, match="without index_topk"):
        open_model(path)


def test_gpt_oss_in_mxfp4() -> None:
    """4 experts of 36 layers in 0.53125 B a weight, the other 1.55 G weights in BF16."""
    report = floor("gpt-oss-120b", "H100 SXM")
    expert = 36 * 4 * 3 * 2880 * 2880
    rest = report.params.active_without_embedding - expert
    assert report.model.quantization == "mxfp4"
    assert report.bytes_low.weights == pytest.approx(0.53125 * expert + 2 * rest, rel=0.005)
    assert report.experts is not None and (report.experts.low, report.experts.high) == (4, 4)
    # half of the layers look back 128 tokens
    assert report.bytes.kv == 2 * 8 * 64 * 2 * (18 * 1024 + 18 * 128)


def test_deepseek_reads_all_latents_on_every_gpu() -> None:
    report = floor("deepseek-v3", "H200", tp=8, context=8192)
    assert report.bytes_low.kv == (512 + 64) * 2 * 61 * 8192, "not divided by the number of GPUs"
    assert report.model.quantization == "fp8_block"
    assert any("whole latent KV" in line for line in report.assumptions)
    # attention groups: each holds its own eighth of the sequences, and whole attention weights
    apart = floor("deepseek-v3", "H200", tp=8, dp_attention=8, batch=8, context=8192)
    assert apart.bytes_low.kv == report.bytes_low.kv
    together = floor("deepseek-v3", "H200", tp=8, batch=8, context=8192)
    assert together.bytes_low.kv == 8 * report.bytes_low.kv
    assert apart.bytes_low.weights > 2 * together.bytes_low.weights


def test_qwen3_next_keeps_a_state_beside_a_quarter_of_the_kv() -> None:
    """36 of 48 layers are gated delta nets: 32 heads x 128 x 128 values of 4 bytes, read and written."""
    report = floor("qwen3-next-80b-a3b", "H200", batch=64)
    assert report.bytes.state == pytest.approx(2 * 64 * 36 * 32 * 128 * 128 * 4, rel=0.02)
    assert report.bytes.kv == 64 * 12 * 2 * 2 * 256 * 2 * 1024
    assert report.bytes.state > report.bytes.kv, "at this batch the state is what calculators forget"
    hit = report.experts
    assert hit is not None and hit.low == 10 and hit.expected == pytest.approx(512 * (1 - (1 - 10 / 512) ** 64))
