"""What the floor takes from a server, and what it refuses to guess."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from decodetop.errors import UsageError
from decodetop.floor.hardware import load, named
from decodetop.flows.floor import Ask, answer, clocks_of, from_server, plan_of
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.server.reading import Flag, Server

CONFIGS = Path(__file__).resolve().parents[1] / "floor" / "configs"
SERVER = Server(
    endpoint="http://127.0.0.1:30000",
    engine="sglang",
    version="0.5.15",
    model=str(CONFIGS / "qwen3-8b.json"),
    tp=2,
    running=4,
    kv_usage=0.5,
    kv_capacity_tokens=8000,
    kv_dtype="bf16",
)


def test_a_server_says_what_was_not_asked_for() -> None:
    ask = from_server(SERVER, Ask(tp=4))
    assert ask == Ask(model=CONFIGS / "qwen3-8b.json", tp=4, batch=4, context=1000, kv_dtype="bf16")
    speculating = msgspec.structs.replace(
        SERVER, speculative_algorithm="NGRAM", speculative_draft_tokens=4, accept_length=3.8
    )
    plan = plan_of(from_server(speculating, Ask()))
    assert (plan.verify_tokens, plan.draft_steps, plan.accept_length) == (4, 0, 3.8)


@pytest.mark.parametrize(
    ("engine", "method", "steps", "tokens", "draft_steps", "verify_tokens"),
    [
        # a trace of vLLM's eagle3 with 3 tokens has 2 sequences as `generation_2(8)`; SGLang's 4 hold the certain one
        ("vllm", "eagle3", None, 3, 3, 4),
        ("vllm", "ngram", None, 3, 0, 4),
        ("sglang", "EAGLE3", 3, 4, 3, 4),
        ("sglang", "NGRAM", None, 4, 0, 4),
        ("llamacpp", "draft model", None, 16, 16, 17),
    ],
)
def test_each_engine_counts_drafted_tokens_its_way(
    engine: str, method: str, steps: int | None, tokens: int, draft_steps: int, verify_tokens: int
) -> None:
    server = msgspec.structs.replace(
        SERVER, engine=engine, speculative_algorithm=method, speculative_steps=steps, speculative_draft_tokens=tokens
    )
    plan = plan_of(from_server(server, Ask()))
    assert (plan.draft_steps, plan.verify_tokens) == (draft_steps, verify_tokens)


def test_attention_groups_only_when_the_server_has_them() -> None:
    eight = msgspec.structs.replace(SERVER, dp=8, tp=8)
    assert from_server(eight, Ask()).dp_attention is None
    grouped = msgspec.structs.replace(eight, flags=(Flag(name="enable_dp_attention", requested="true"),))
    assert from_server(grouped, Ask()).dp_attention == 8


def test_a_model_that_lies_elsewhere_is_not_guessed() -> None:
    with pytest.raises(UsageError, match="neither a path nor in the local cache"):
        from_server(msgspec.structs.replace(SERVER, model="Qwen/Qwen3-8B"), Ask())
    with pytest.raises(UsageError, match="does not say which model"):
        from_server(msgspec.structs.replace(SERVER, model=None), Ask())


def test_weights_quantised_at_load_are_counted_so(tmp_path: Path) -> None:
    card = named("H200", load())
    plain = answer(Ask(model=CONFIGS / "qwen3-8b.json"), card, server=SERVER)
    eight = answer(
        Ask(model=CONFIGS / "qwen3-8b.json"), card, server=msgspec.structs.replace(SERVER, quantization="fp8")
    )
    assert eight.bytes.weights == pytest.approx(plain.bytes.weights - 36 * 192937984, rel=1e-6)
    stored = json.loads((CONFIGS / "qwen3-32b-fp8.json").read_text("utf-8"))
    path = tmp_path / "x.json"
    path.write_text(json.dumps(stored), "utf-8")
    same = answer(Ask(model=path), card, server=msgspec.structs.replace(SERVER, quantization="fp8"))
    assert same.model.quantization == "fp8_block", "the checkpoint's own scheme goes first"


def test_clocks_of_idle_cards_say_nothing() -> None:
    idle = Gpu(index=0, utilization_percent=0.0, sm_clock_mhz=345, sm_clock_max_mhz=1980)
    busy = Gpu(index=1, utilization_percent=99.0, sm_clock_mhz=1980, sm_clock_max_mhz=1980, event_reasons=4)
    slow = Gpu(index=2, utilization_percent=99.0, sm_clock_mhz=1200, sm_clock_max_mhz=1980)
    assert clocks_of(None) is None
    assert clocks_of(GpuReading(gpus=(idle,))) is None
    found = clocks_of(GpuReading(gpus=(idle, busy, slow)))
    assert found is not None and (found.sm, found.reasons) == (1200, None)


def test_moves_follow_the_server_s_flags() -> None:
    card = named("H200", load())
    off = msgspec.structs.replace(SERVER, flags=(Flag(name="disable_cuda_graph", requested="true"),))
    trace = next((CONFIGS.parents[1] / "captures" / "sglang_tp1_nograph" / "prof_c1").glob("*.gz"))
    from decodetop.steps.analyse import analyse

    steps = analyse([trace])
    report = answer(Ask(model=CONFIGS / "qwen3-8b.json", token_ms=19.347), card, steps=steps, server=off)
    assert report.verdict is not None and report.verdict.id == "host_bound"
    assert report.moves[0].set == "remove --disable-cuda-graph"
