"""A draft model with a checkpoint of its own: its bytes by hand, by formula and by headers, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.errors import DataError
from decodetop.floor.drafting import open_draft
from decodetop.floor.hardware import load, named
from decodetop.floor.reading import FloorReport
from decodetop.flows.floor import Ask, answer, draft_name, from_server, plan_of
from decodetop.server.reading import Flag, Server
from support.checkpoints import write_safetensors

CONFIGS = Path(__file__).parent / "configs"
H200 = named("H200", load())
TARGET = CONFIGS / "llama-3.1-8b.json"
EAGLE3: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 1,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "draft_vocab_size": 32000, "torch_dtype": "float16",
}  # fmt: skip
LAYER = 8192 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336
"""Attention of EAGLE-3 reads the hidden state and the embedding: 2 x 4096."""
EAGLE3_PARAMS = LAYER + 3 * 4096 * 4096 + 32000 * 4096
NORMS = 3 * 4096


def written(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def floor(draft: Path | None, **more: Any) -> FloorReport:
    asked = {"model": TARGET, "draft_steps": 3, "draft_model": draft, "context": 1000, **more}
    return answer(Ask(**asked), H200)


def test_eagle_3_by_its_config(tmp_path: Path) -> None:
    """Three forwards of 1.07 GB each and the KV of one layer; the head is its own, over 32,000 tokens."""
    report = floor(written(tmp_path / "eagle3", EAGLE3))
    kv = 2 * 8 * 128 * 1000 * 2
    assert report.bytes.draft == 3 * (2 * (EAGLE3_PARAMS + NORMS) + kv)
    assert report.model.draft_model == str(tmp_path / "eagle3")
    said = next(line for line in report.assumptions if line.startswith("every draft forward reads"))
    assert (
        said.startswith("every draft forward reads 0.85 GB a GPU of ") and "an EAGLE-3 head, from config.json" in said
    )
    assert not any("read nothing" in line for line in report.assumptions)
    assert report.break_even_accept_length == pytest.approx(report.bytes.total / floor(None).bytes.total, rel=1e-6)


def test_eagle_3_by_its_headers_is_the_same(tmp_path: Path) -> None:
    folder = written(tmp_path / "eagle3", EAGLE3)
    shapes = {
        "midlayer.self_attn.q_proj.weight": [4096, 8192], "midlayer.self_attn.k_proj.weight": [1024, 8192],
        "midlayer.self_attn.v_proj.weight": [1024, 8192], "midlayer.self_attn.o_proj.weight": [4096, 4096],
        "midlayer.mlp.gate_proj.weight": [14336, 4096], "midlayer.mlp.up_proj.weight": [14336, 4096],
        "midlayer.mlp.down_proj.weight": [4096, 14336], "midlayer.input_layernorm.weight": [4096],
        "midlayer.post_attention_layernorm.weight": [4096], "norm.weight": [4096], "fc.weight": [4096, 12288],
        "lm_head.weight": [32000, 4096],
    }  # fmt: skip
    tensors = {name: ("F16", shape) for name, shape in shapes.items()}
    by_formula = floor(folder).bytes.draft
    write_safetensors(folder / "model.safetensors", {**tensors, "d2t": ("I64", [32000]), "t2d": ("I64", [128256])})
    assert floor(folder).bytes.draft == by_formula


def test_eagle_1_reads_the_target_s_head(tmp_path: Path) -> None:
    config = {**EAGLE3, "architectures": ["LlamaForCausalLMEagle"], "draft_vocab_size": None, "torch_dtype": "bfloat16"}
    layer = 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336 + 2 * 4096
    read = layer + 2 * 4096 * 4096 + 128256 * 4096
    assert floor(written(tmp_path / "e", config)).bytes.draft == 3 * (2 * read + 2 * 8 * 128 * 1000 * 2)


def test_a_smaller_model_reads_all_of_itself() -> None:
    """Qwen3-0.6B, head tied: 596 M weights and the KV of 28 layers; split over two GPUs as the target is."""
    one = floor(CONFIGS / "qwen3-0.6b.json", model=CONFIGS / "qwen3-8b.json")
    kv = 28 * 2 * 8 * 128 * 1000 * 2
    assert one.bytes.draft == 3 * (2 * 596049920 + kv)
    two = floor(CONFIGS / "qwen3-0.6b.json", model=CONFIGS / "qwen3-8b.json", tp=2)
    assert one.bytes_low.draft / two.bytes_low.draft == pytest.approx(2)
    assert two.allreduces_per_step == 2 * 36 + 2 + 3 * (2 * 28 + 2)
    assert one.capacity is not None
    alone = floor(None, model=CONFIGS / "qwen3-8b.json").capacity
    assert alone is not None and one.capacity.weights - alone.weights == 2 * 596049920


def test_an_own_draft_layer_is_not_read_beside_another_checkpoint() -> None:
    model = CONFIGS / "qwen3.5-27b.json"
    own, other = (floor(draft, model=model, context=1).bytes.draft for draft in (None, CONFIGS / "qwen3-0.6b.json"))
    assert own == pytest.approx(3 * 2 * (424.7e6 + 1271.4e6), rel=0.001)
    assert other == floor(CONFIGS / "qwen3-0.6b.json", context=1).bytes.draft


def test_without_draft_steps_no_draft_is_read() -> None:
    report = floor(CONFIGS / "qwen3-0.6b.json", draft_steps=None)
    assert report.bytes.draft == 0 and report.model.draft_model is None


def test_the_layer_of_the_speculators_library(tmp_path: Path) -> None:
    plain = {key: value for key, value in EAGLE3.items() if key not in ("architectures", "draft_vocab_size")}
    nested = {"speculators_model_type": "eagle3", "draft_vocab_size": 32000, "transformer_layer_config": plain}
    flat = open_draft(written(tmp_path / "flat", EAGLE3))
    assert sum(one.bytes for one in open_draft(written(tmp_path / "nested", nested)).weights) == sum(
        one.bytes for one in flat.weights
    )


@pytest.mark.parametrize(
    ("change", "word"),
    [({"model_type": "llama99"}, "not supported"), ({"hidden_size": None}, "hidden_size is missing")],
)
def test_a_draft_that_can_not_be_read_is_named(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    with pytest.raises(DataError, match=word):
        floor(written(tmp_path / "bad", {**EAGLE3, **change}))


SERVER = Server(endpoint="http://127.0.0.1:1", engine="sglang", model=str(TARGET), tp=1, speculative_steps=3,
                speculative_draft_tokens=4, speculative_algorithm="EAGLE3")  # fmt: skip


def told(engine: str, **flags: str) -> Server:
    return msgspec.structs.replace(
        SERVER, engine=engine, flags=tuple(Flag(name=name, requested=value) for name, value in flags.items())
    )


@pytest.mark.parametrize("engine", ["sglang", "vllm", "llamacpp"])
def test_each_engine_names_its_draft_its_way(tmp_path: Path, engine: str) -> None:
    folder = str(written(tmp_path / "eagle3", EAGLE3))
    server = {
        "sglang": told("sglang", speculative_draft_model_path=folder),
        "vllm": told("vllm", speculative_config=json.dumps({"method": "eagle3", "model": folder})),
        "llamacpp": told("llamacpp", model_draft=folder),
    }[engine]
    ask = from_server(server, Ask(context=1000))
    assert ask.draft_model == Path(folder) and ask.draft_problem is None
    assert answer(ask, H200, server=server).model.draft_model == folder
    assert plan_of(ask).draft_steps in (3, 4)
    kept = from_server(server, Ask(draft_model=CONFIGS / "qwen3-0.6b.json"))
    assert kept.draft_model == CONFIGS / "qwen3-0.6b.json", "what was asked for goes first"


def test_a_draft_of_the_server_that_is_not_here_costs_its_bytes_only() -> None:
    server = told("sglang", speculative_draft_model_path="someone/EAGLE3-of-another-box")
    ask = from_server(server, Ask())
    assert ask.draft_model is None and ask.draft_problem is not None
    report = answer(ask, H200, server=server)
    assert report.bytes.draft == 0
    assert any(
        line.startswith("the draft model is not counted: someone/EAGLE3-of-another-box is neither a path")
        for line in report.assumptions
    )
    assert any("taken to read nothing" in line for line in report.assumptions)


def test_the_target_under_its_own_name_is_no_other_draft() -> None:
    """SGLang names the target itself where the model has draft layers."""
    own = told("sglang", speculative_draft_model_path=str(TARGET))
    assert draft_name(own) == str(TARGET)
    ask = from_server(own, Ask())
    assert (ask.draft_model, ask.draft_problem) == (None, None)


@pytest.mark.parametrize("said", ["", "{", "[]", '{"model": 7}', '{"method": "ngram"}'])
def test_vllm_s_setting_may_name_none(said: str) -> None:
    assert draft_name(told("vllm", speculative_config=said)) is None
    assert draft_name(msgspec.structs.replace(SERVER, speculative_algorithm=None)) is None
