"""A damaged or unknown model says what is wrong, where, and what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodetop.errors import DataError, DecodetopError
from decodetop.floor.config import Config, read_json
from decodetop.floor.model import open_model
from decodetop.floor.of_config import shape_of

CONFIGS = Path(__file__).parent / "configs"
LLAMA = json.loads((CONFIGS / "llama-3.1-8b.json").read_text("utf-8"))
DEEPSEEK = json.loads((CONFIGS / "deepseek-v3.2.json").read_text("utf-8"))


def written(folder: Path, data: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(data), "utf-8")
    return path


@pytest.mark.parametrize(
    "key", ["hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "model_type"]
)
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    path = written(tmp_path, {name: value for name, value in LLAMA.items() if name != key})
    with pytest.raises(DataError, match=f"{re.escape(str(path))}.*{key}.* is missing"):
        open_model(path)


@pytest.mark.parametrize(
    "key",
    [
        *("qk_nope_head_dim", "v_head_dim", "index_n_heads", "num_experts_per_tok"),
        *("kv_lora_rank", "n_routed_experts", "moe_intermediate_size"),  # without: 38 B, 672 B or 5,923 B parameters
    ],
)
def test_a_missing_key_of_a_family_is_named(tmp_path: Path, key: str) -> None:
    path = written(tmp_path, {name: value for name, value in DEEPSEEK.items() if name != key})
    with pytest.raises(DataError, match=f"{key}.* is missing"):
        open_model(path)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"hidden_size": 0}, "at least 1"),
        ({"hidden_size": -4096}, "no count"),
        ({"hidden_size": "4096"}, "no count"),
        ({"hidden_size": True}, "no count"),
        ({"hidden_size": 4096.5}, "no count"),
        ({"hidden_size": 10**15}, "no count"),
        ({"num_hidden_layers": 10**6}, "can't be"),
        ({"num_attention_heads": 31}, "no multiple of 31 heads"),
        ({"num_key_value_heads": 64}, "can't share 64 KV heads"),
        ({"num_key_value_heads": 5}, "can't share 5 KV heads"),
        ({"torch_dtype": "posit16"}, "dtype 'posit16' is not known"),
        ({"model_type": "llama99"}, "'llama99' is not supported"),
        ({"layer_types": ["full_attention"]}, "names 1 layers, the model has 32"),
        ({"layer_types": ["astral_attention"] * 32}, "layer type 'astral_attention'"),
        ({"tie_word_embeddings": "no"}, "neither true nor false"),
        ({"quantization_config": {"quant_method": "quip"}}, "quantisation 'quip' is not known"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP3"}}, "'NVFP3' is not known"),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, "without config_groups"),
        ({"quantization_config": {"quant_method": "awq", "bits": 5}}, "bits = 5"),
        ({"quantization_config": "fp8"}, "quantization_config = 'fp8' is no table"),
        ({"quantization_config": ["fp8"]}, "is no table"),
    ],
)
def test_figures_that_cannot_be(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    path = written(tmp_path, {**LLAMA, **change})
    with pytest.raises(DataError, match=word) as caught:
        open_model(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "change", "word"),
    [
        ("deepseek-v3.2", {"n_routed_experts": 2_000_000_000}, "2000000000 experts can't be"),
        ("qwen3.5-35b-a3b", {"mtp_num_hidden_layers": 100_000}, "100000 draft layers can't be"),
        ("nemotron-3-nano-30b-a3b", {"hybrid_override_pattern": "M" * 100_000}, "100000 layers can't be"),
    ],
)
def test_counts_that_would_fill_the_memory_are_refused(
    tmp_path: Path, name: str, change: dict[str, Any], word: str
) -> None:
    known = json.loads((CONFIGS / f"{name}.json").read_text("utf-8"))
    target = known.get("text_config", known)
    target.update(change)
    with pytest.raises(DataError, match=word):
        open_model(written(tmp_path, known))


@pytest.mark.parametrize(
    ("text", "word"),
    [("", "not JSON"), ("{", "not JSON"), ("[1, 2]", "no JSON object"), ("\x00\xff", "not JSON"), ("[" * 9999, "JSON")],
)
def test_files_that_are_no_config(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, "utf-8")
    with pytest.raises(DataError, match=word):
        open_model(path)


def test_a_path_that_is_not_there_and_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no"):
        open_model(tmp_path / "gone")
    with pytest.raises(DataError, match=r"neither config\.json nor a GGUF"):
        open_model(tmp_path)


def test_python_s_own_infinity_is_read_over(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "time_step_limit": [0.0, float("inf")], "x": float("nan")}), "utf-8")
    assert open_model(path).params.total == 8030261248


values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers()))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(CONFIGS.glob("*.json"))), st.data())
def test_any_value_of_any_key_gives_a_shape_or_a_word(path: Path, data: st.DataObject) -> None:
    config = read_json(path)
    inner = config.get("text_config")
    target = inner if isinstance(inner, dict) else config
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(values)
    try:
        shape = shape_of(Config(config, "x"))
    except DecodetopError as error:
        assert error.message
    else:
        msgspec.json.encode(shape)
