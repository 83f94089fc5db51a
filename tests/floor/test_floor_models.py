"""Parameters of every model of the reference table, by formula from its config.json."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from decodetop.errors import DataError
from decodetop.floor.config import read_json
from decodetop.floor.model import open_model

HERE = Path(__file__).parent
CONFIGS = HERE / "configs"
RENAMED = {
    "DeepSeek-V3/R1": "deepseek-v3",
    "GLM-4.5/4.6": "glm-4.5",
    "GLM-5/5.1": "glm-5",
    "Qwen3.5/3.6-27B text": "qwen3.5-27b",
}
with (HERE / "models.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


def config_of(name: str) -> Path:
    return CONFIGS / f"{RENAMED.get(name, name.removesuffix(' text').lower())}.json"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["model"]))
def test_parameters(row: dict[str, str]) -> None:
    model = open_model(config_of(row["model"]))
    params = model.params
    assert model.shape.tied == (row["tied_head"] == "yes")
    assert params.total == pytest.approx(int(row["total_params"]), rel=1e-4)
    assert params.active / 1e9 == pytest.approx(float(row["active_params_incl_embedding_billion"]), rel=0.005)
    without = row["active_params_without_embedding_billion"]
    if without:
        assert params.active_without_embedding / 1e9 == pytest.approx(float(without), rel=0.005)


@pytest.mark.parametrize(
    ("name", "kib"),
    [
        ("llama-3.1-8b", 128), ("llama-3.1-70b", 320), ("qwen3-32b", 256), ("qwen3-235b-a22b", 188),
        ("minimax-m2.5", 248), ("llama-4-scout", 192), ("deepseek-v3", 68.6), ("glm-5", 87.75), ("qwen3.5-27b", 64),
        ("qwen3.5-122b-a10b", 24), ("qwen3.5-397b-a17b", 30), ("nemotron-3-nano-30b-a3b", 6),
    ],
)  # fmt: skip
def test_kv_bytes_of_a_token(name: str, kib: float) -> None:
    """KiB per token in BF16 over all layers (reference notes, section 2.2); one token, so no window or top-k cuts."""
    from decodetop.floor.cache import layer_kv

    shape = open_model(CONFIGS / f"{name}.json").shape
    kept = [layer_kv(shape, layer, 1, "bf16", 1) for layer in shape.layers]
    index_keys = sum(layer.indexer for layer in shape.layers) * 132 if shape.indexer else 0
    assert (sum(kept) - index_keys) / 1024 == pytest.approx(kib, rel=0.001)


@pytest.mark.parametrize(
    ("name", "context", "seen"),
    [
        # 18 of 36 layers see 128 tokens
        ("gpt-oss-120b", 10_000, 18 * 128 + 18 * 10_000),
        # every sixth of 48 layers sees everything, the others 1,024
        ("gemma-3-12b", 10_000, 40 * 1024 + 8 * 10_000),
        # every other layer 4,096
        ("gemma-2-9b", 10_000, 21 * 4096 + 21 * 10_000),
        # 36 of 48 layers see their chunk of 8,192 only: 10,000 is 1,808 into the second
        ("llama-4-scout", 10_000, 36 * 1808 + 12 * 10_000),
        ("qwen2.5-7b", 10_000, 28 * 10_000),
    ],
)
def test_windows_cut_the_kv(name: str, context: int, seen: int) -> None:
    from decodetop.floor.cache import layer_kv

    shape = open_model(CONFIGS / f"{name}.json").shape
    assert shape.attention is not None
    token = 2 * shape.attention.kv_heads * shape.attention.head_dim * 2
    assert sum(layer_kv(shape, layer, context, "bf16", 1) for layer in shape.layers) == seen * token


def test_sparse_attention_reads_its_top_tokens_and_all_index_keys() -> None:
    from decodetop.floor.cache import layer_kv

    shape = open_model(CONFIGS / "deepseek-v3.2.json").shape
    assert layer_kv(shape, shape.layers[0], 100_000, "bf16", 8) == 2048 * 576 * 2 + 100_000 * 132
    assert layer_kv(shape, shape.layers[0], 100, "fp8_ds_mla", 8) == 100 * 656 + 100 * 132


@pytest.mark.parametrize(
    ("name", "megabytes"),
    [
        ("qwen3.5-27b", 151),
        ("qwen3.5-122b-a10b", 151),
        ("qwen3.5-397b-a17b", 189),
        ("qwen3-next-80b-a3b", 75.5),
        ("nemotron-3-nano-30b-a3b", 48),
    ],
)
def test_state_of_a_sequence(name: str, megabytes: float) -> None:
    from decodetop.floor.cache import layer_state

    shape = open_model(CONFIGS / f"{name}.json").shape
    moved = sum(layer_state(shape, layer, 1) for layer in shape.layers)
    assert moved / 2 / 1e6 == pytest.approx(megabytes, rel=0.01), "read and written"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("deepseek-v4-flash", "compressed attention"),
        ("gemma-4-26b-a4b", "global layers"),
        ("mimo-v2-flash", "other KV heads"),
        ("nemotron-super-49b", "own widths"),
        ("nemotron-3-ultra", "hybrid_override_pattern"),
        ("minimax-m3", "attention is not in the formulas"),
    ],
)
def test_families_whose_formula_fails_are_refused(name: str, why: str) -> None:
    with pytest.raises(DataError, match=f"not supported.*{why}") as caught:
        open_model(CONFIGS / f"{name}.json")
    assert "supported are" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "more"),
    [
        # q, k, v and output: 4096 + 2 x 1024 + 4096 a layer, as transformers builds them
        ("llama-3.1-8b", 32 * (4096 + 2 * 1024 + 4096)),
        ("qwen3-8b", 36 * (4096 + 2 * 1024 + 4096)),
        ("gemma-2-9b", 42 * (4096 + 2 * 2048 + 3584)),
        # GLM-4.5 has none at the output, and says so itself
        ("glm-4.5", 0),
    ],
)
def test_a_bias_of_attention_is_of_the_output_too(tmp_path: Path, name: str, more: int) -> None:
    known = read_json(CONFIGS / f"{name}.json")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**known, "attention_bias": True}), "utf-8")
    assert open_model(path).params.total - open_model(CONFIGS / f"{name}.json").params.total == more
