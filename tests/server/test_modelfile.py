"""What `auto` means for a model, by its own config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from decodetop.server.engines.adapter import AUTO, Facts
from decodetop.server.modelfile import Declared, completed, declared

AUTO_FACTS = Facts(reasons={"weights_dtype": AUTO, "kv_dtype": AUTO})


@pytest.mark.parametrize(
    ("config", "seen"),
    [
        ({"torch_dtype": "bfloat16"}, Declared(dtype="bf16")),
        ({"dtype": "float16"}, Declared(dtype="fp16")),
        ({"torch_dtype": "float32"}, Declared(dtype="fp16")),
        ({"text_config": {"torch_dtype": "bfloat16"}}, Declared(dtype="bf16")),
        (
            {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}},
            Declared(dtype="bf16", quantization="fp8"),
        ),
        (
            {"quantization_config": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}},
            Declared(quantization="nvfp4", kv_quantized=True),
        ),
        ({"quantization_config": "odd", "torch_dtype": 7}, Declared()),
    ],
)
def test_declared(tmp_path: Path, config: dict[str, Any], seen: Declared) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert declared(str(tmp_path)) == seen


@pytest.mark.parametrize("content", [None, "", "{broken", "[]", "\xff"])
def test_no_usable_config(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content, "latin-1")
    assert declared(str(tmp_path)) is None


def test_a_name_that_is_no_folder_is_not_looked_up() -> None:
    assert declared("Qwen/Qwen3-8B") is None and declared("../m") is None


def test_auto_is_filled_in_and_what_was_said_stays() -> None:
    facts = completed(AUTO_FACTS, Declared(dtype="bf16", quantization="fp8"))
    assert (facts.weights_dtype, facts.kv_dtype, facts.quantization, facts.reasons) == ("bf16", "bf16", "fp8", {})
    said = completed(Facts(weights_dtype="fp16", kv_dtype="fp8_e4m3"), Declared(dtype="bf16"))
    assert (said.weights_dtype, said.kv_dtype) == ("fp16", "fp8_e4m3")
    quantised = completed(AUTO_FACTS, Declared(dtype="bf16", kv_quantized=True))
    assert quantised.kv_dtype is None and quantised.reasons == {"kv_dtype": AUTO}
