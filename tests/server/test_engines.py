"""Adapters on answers of other versions and engines than the recorded ones, as read in their sources."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodetop.server.engines import sglang, sglang_settings, vllm
from decodetop.server.engines.adapter import Facts
from decodetop.server.engines.llamacpp import WANTED as LLAMACPP_WANTED
from decodetop.server.engines.llamacpp import LlamaCpp
from decodetop.server.flags import requested_flags
from decodetop.server.metrics import parse
from decodetop.server.probe import ServerProbe
from decodetop.server.reading import Server
from support.clock import ManualClock
from support.engine_replay import EngineReplay, Reply, read

Make = Callable[..., ServerProbe]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
INFO_FIELDS = (
    "internal_states cuda_graph_config cuda_graph_bs disable_cuda_graph dp_size tp_size attention_backend version "
    "model_path speculative_algorithm launch_command kv_cache_dtype dtype max_total_num_tokens quantization"
)


def found(**info: Any) -> Facts:
    return sglang_settings.facts_of({"version": "0.5.12", "disable_cuda_graph": False, **info})


def test_graph_settings_of_older_sglang() -> None:
    facts = found(cuda_graph_max_bs=160, cuda_graph_bs=[1, 2, 4, 160])
    assert (facts.cuda_graph, facts.cuda_graph_max_batch, facts.cuda_graph_batches) == (True, 160, (1, 2, 4, 160))
    off = found(disable_cuda_graph=True, cuda_graph_max_bs=160)
    assert (off.cuda_graph, off.cuda_graph_max_batch) == (False, None)
    assert off.reasons["cuda_graph_max_batch"] == "graphs are off"


def test_graph_settings_of_the_newest_sglang() -> None:
    facts = found(internal_states=[{"decode_cuda_graph_bs": [1, 8]}])
    assert (facts.cuda_graph_max_batch, facts.cuda_graph_batches) == (8, (1, 8))


def test_data_parallel_totals() -> None:
    facts = found(dp_size=4, max_total_num_tokens=1000, internal_states=[{"effective_max_running_requests_per_dp": 16}])
    assert (facts.dp, facts.kv_capacity_tokens, facts.max_running) == (4, 4000, 64)


def test_decode_has_its_own_attention_backend() -> None:
    assert found(attention_backend="fa3", decode_attention_backend="flashinfer").attention_backend == "flashinfer"


def test_the_launch_command_stands_in_for_the_command_line() -> None:
    command = "python -m sglang.launch_server --tp 2 --api-key 'planted key' --attention-backend fa3"
    facts = found(launch_command=command)
    assert facts.requested == {"tp_size": "2", "api_key": "***", "attention_backend": "fa3"}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(INFO_FIELDS.split()), JSON))
def test_no_server_info_breaks_the_adapter(info: dict[str, Any]) -> None:
    facts = sglang_settings.facts_of(info)
    assert facts.cuda_graph in (True, False, None)


def test_an_old_sglang_counts_by_its_histograms() -> None:
    """Before 0.5.8 nothing else is live; 0.4.3 and before call the histogram otherwise."""
    text = """
sglang:num_running_reqs 3
sglang:generation_tokens_total 100
sglang:prompt_tokens_total 500
sglang:time_to_first_token_seconds_sum 1
sglang:time_to_first_token_seconds_count 4
sglang:time_per_output_token_seconds_sum 2
sglang:time_per_output_token_seconds_count 200
sglang:token_usage 0.05
"""
    look = sglang.look_at(parse(text, sglang.WANTED), Facts(version="0.4.3"))
    assert look.counters is not None and look.counters.generated_tokens == 204
    assert look.kv_usage == 0.05 and look.basis == "histogram"
    new = sglang.look_at(parse(text, sglang.WANTED), Facts(version="0.5.15"))
    assert new.counters is not None and new.counters.generated_tokens == 0.0, "a mode not seen yet has no sample"


def test_an_accept_length_of_zero_is_no_speculation() -> None:
    look = sglang.look_at(parse("sglang:num_running_reqs 1\nsglang:spec_accept_length 0.0\n", sglang.WANTED), Facts())
    assert look.accept_gauge is None and not look.speculating


def test_old_names_of_vllm() -> None:
    text = """
vllm:num_requests_running{engine="0"} 1
vllm:num_requests_waiting{engine="0"} 2
vllm:gpu_cache_usage_perc{engine="0"} 0.25
vllm:time_per_output_token_seconds_sum{engine="0"} 3
vllm:time_per_output_token_seconds_count{engine="0"} 30
vllm:generation_tokens_total{engine="0"} 40
"""
    look = vllm.look_at(parse(text, vllm.WANTED))
    assert (look.running, look.queued, look.kv_usage) == (1, 2, 0.25)
    assert look.itl is not None and look.itl.count == 30


def test_data_parallel_vllm() -> None:
    text = """
vllm:num_requests_running{engine="0"} 1
vllm:num_requests_running{engine="1"} 2
vllm:kv_cache_usage_perc{engine="0"} 0.2
vllm:kv_cache_usage_perc{engine="1"} 0.4
vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="100"} 1
vllm:cache_config_info{engine="1",block_size="16",num_gpu_blocks="100"} 1
"""
    look = vllm.look_at(parse(text, vllm.WANTED))
    assert (look.running, look.kv_usage, look.kv_capacity_tokens) == (3, pytest.approx(0.3), 3200)


def test_a_share_outside_of_one_is_not_shown() -> None:
    look = vllm.look_at(parse("vllm:num_requests_running 1\nvllm:kv_cache_usage_perc -0.5\n", vllm.WANTED))
    assert look.kv_usage is None and look.reasons["kv_usage"] == "the engine reports -0.5, which can't be"


@pytest.mark.parametrize("odd", ["-3", "+Inf", "-Inf", "1e300"])
def test_figures_that_can_not_be_are_unknown(odd: str) -> None:
    look = vllm.look_at(parse(f"vllm:num_requests_running {odd}\nvllm:generation_tokens_total {odd}\n", vllm.WANTED))
    assert look.running is None and look.reasons["running"].endswith("which can't be")
    assert look.counters.generated_tokens is None


@pytest.mark.parametrize(
    ("flags", "on", "largest"),
    [
        ({}, None, None),
        ({"enforce_eager": "true"}, False, None),
        ({"optimization_level": "0"}, False, None),
        ({"compilation_config": '{"cudagraph_mode": "NONE"}'}, False, None),
        ({"compilation_config.cudagraph_mode": "none"}, False, None),
        ({"compilation_config": '{"cudagraph_mode":"FULL","cudagraph_capture_sizes":[1,8,32]}'}, True, 32),
        ({"cudagraph_capture_sizes": "1 2 64"}, None, 64),
        ({"cuda_graph_sizes": "1,2,16"}, None, 16),
        ({"max_cudagraph_capture_size": "512"}, None, 512),
        ({"compilation_config": "3"}, None, None),
        ({"compilation_config": "{broken"}, None, None),
    ],
)
def test_what_vllm_s_command_line_says_of_graphs(flags: dict[str, str], on: bool | None, largest: int | None) -> None:
    facts = vllm.facts_of(flags)
    assert (facts.cuda_graph, facts.cuda_graph_max_batch) == (on, largest)
    assert ("cuda_graph" in facts.reasons) == (on is None)


def test_what_vllm_s_command_line_says_of_speculation_and_sizes() -> None:
    facts = vllm.facts_of(
        {
            "speculative_config": '{"method":"eagle3","num_speculative_tokens":3,"model":"/d"}',
            "tensor_parallel_size": "4",
            "data_parallel_size": "2",
            "enable_expert_parallel": "true",
            "dtype": "half",
        }
    )
    assert (facts.speculative_algorithm, facts.speculative_draft_tokens) == ("eagle3", 3)
    assert (facts.tp, facts.pp, facts.dp, facts.ep, facts.weights_dtype) == (4, 1, 2, 8, "fp16")
    assert vllm.facts_of({}).speculative_algorithm is None
    assert "speculative_algorithm" in vllm.facts_of(None).reasons and vllm.facts_of(None).tp is None


def slot(task: int, decoded: int, *, busy: bool = True, number: int = 0, listed: bool = True) -> dict[str, Any]:
    told = {"has_next_token": busy, "n_remain": 5, "n_decoded": decoded}
    return {"id": number, "id_task": task, "is_processing": busy, "next_token": [told] if listed else told}


def test_llama_cpp_counts_the_tokens_of_running_tasks() -> None:
    adapter = LlamaCpp()

    def generated(*slots: dict[str, Any]) -> float | None:
        counters = adapter.look_at(list(slots), None).counters
        return None if counters is None else counters.generated_tokens

    assert generated(slot(1, 50)) == 0, "what was before the first look is not known"
    assert generated(slot(1, 80)) == 30
    assert generated(slot(1, 80, busy=False)) == 30
    assert generated(slot(2, 12, listed=False)) == 42, "a new task in the same slot, in the documented form"
    assert generated(slot(2, 20), slot(3, 7, number=1)) == 57
    look = adapter.look_at([slot(2, 20), slot(3, 7, busy=False, number=1)], None)
    assert (look.running, look.queued, look.reasons["queued"]) == (1, None, "started without --metrics")


LLAMACPP = {
    "/v1/models": {"data": [{"id": "/models/m.gguf", "owned_by": "llamacpp"}]},
    "/props": {
        "build_info": "b7000-abc",
        "model_path": "/models/m.gguf",
        "total_slots": 4,
        "default_generation_settings": {"n_ctx": 8192},
        "is_sleeping": False,
    },
    "/slots": [slot(1, 10), slot(2, 10, busy=False, number=1)],
    "/health": {"status": "ok"},
}
LLAMACPP_METRICS = b"""
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
llamacpp:tokens_predicted_total 100
llamacpp:tokens_predicted_seconds_total 2
llamacpp:predicted_tokens_seconds 777
"""


def answers(bodies: dict[str, Any], metrics: bytes | None = None) -> dict[str, Reply]:
    replies = {path: Reply(200, json.dumps(body).encode()) for path, body in bodies.items()}
    return replies if metrics is None else {**replies, "/metrics": Reply(200, metrics, "text/plain")}


async def look(make_probe: Make, replies: dict[str, Reply]) -> tuple[Server, list[str]]:
    async with EngineReplay(replies) as replay:
        (server,) = (await make_probe(replay.endpoint).read()).servers
        return server, replay.paths


async def test_llama_cpp(make_probe: Make) -> None:
    server, paths = await look(make_probe, answers(LLAMACPP, LLAMACPP_METRICS))
    assert (server.status, server.engine, server.version, server.max_running) == ("up", "llamacpp", "b7000-abc", 4)
    assert (server.running, server.queued, server.context_length) == (1, 2, 8192)
    assert server.itl is not None and server.itl.mean_ms == pytest.approx(20.0)
    assert all("?" not in path for path in paths), "a ?model= of a router would load it"


POSITIONS = """
{name}{{{labels}position="1"}} 40
{name}{{{labels}position="0"}} 70
{name}{{{labels}position="2"}} 9
"""


def test_accepted_tokens_by_position_of_the_draft() -> None:
    name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    scrape = parse(POSITIONS.format(name=name, labels="") + "llamacpp:tokens_predicted_total 64\n", LLAMACPP_WANTED)
    counters = LlamaCpp().look_at(None, scrape).counters
    assert counters is not None and counters.spec_accepted_per_position == (70.0, 40.0, 9.0)
    assert counters.finished_tokens == 64.0
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    twice = "".join(POSITIONS.format(name=name, labels=f'engine="{engine}",') for engine in (0, 1))
    counters = vllm.look_at(parse(twice, vllm.WANTED)).counters
    assert counters is not None and counters.spec_accepted_per_position == (140.0, 80.0, 18.0)
    gap = parse(f'{name}{{engine="0",position="1"}} 4\n', vllm.WANTED)
    counters = vllm.look_at(gap).counters
    assert counters is not None and counters.spec_accepted_per_position == ()


async def test_a_sleeping_llama_cpp_is_not_woken(make_probe: Make) -> None:
    asleep = {**LLAMACPP, "/props": {**LLAMACPP["/props"], "is_sleeping": True}}
    server, paths = await look(make_probe, answers(asleep, LLAMACPP_METRICS))
    assert (server.status, server.running) == ("up", 0)
    assert "wake" in server.reasons["itl"] and "/slots" not in paths


async def test_llama_cpp_behind_a_long_prompt_is_busy_and_not_hung(make_probe: Make, clock: ManualClock) -> None:
    replies = {**answers(LLAMACPP), "/slots": Reply(hang=True)}
    async with EngineReplay(replies) as replay:
        probe = make_probe(replay.endpoint)
        reading = asyncio.ensure_future(probe.read())
        while "/slots" not in replay.paths:
            await asyncio.sleep(0)
        await clock.advance(2.0)
        (server,) = (await reading).servers
    assert (server.status, server.running) == ("up", None) and "long prompt" in server.reasons["itl"]


async def test_ollama(make_probe: Make) -> None:
    replies = {
        "/v1/models": {"object": "list", "data": [{"id": "qwen3:8b", "owned_by": "library"}]},
        "/api/version": {"version": "0.32.1"},
        "/api/ps": {
            "models": [
                {
                    "name": "qwen3:8b",
                    "size": 1000,
                    "size_vram": 750,
                    "context_length": 4096,
                    "details": {"quantization_level": "Q4_K_M"},
                }
            ]
        },
    }
    server, _ = await look(make_probe, answers(replies))
    assert (server.engine, server.version, server.model) == ("ollama", "0.32.1", "qwen3:8b")
    assert server.quantization == "Q4_K_M"
    assert {flag.name: flag.resolved for flag in server.flags} == {"share_on_gpu": "75%"}
    assert server.reasons["generated_tok_s"] == "Ollama exports no metrics"
    idle, _ = await look(make_probe, answers({**replies, "/api/ps": {"models": []}}))
    assert (idle.status, idle.model, idle.reasons["model"]) == ("up", None, "no model is loaded")


async def test_tgi(make_probe: Make) -> None:
    info = {"model_id": "m", "router": "text-generation-router", "version": "3.0", "model_dtype": "torch.float16"}
    replies = answers({"/info": info}, b"tgi_batch_current_size 3\ntgi_queue_size 1\n")
    server, _ = await look(make_probe, replies)
    assert (server.engine, server.version, server.running, server.queued, server.weights_dtype) == (
        "tgi",
        "3.0",
        3,
        1,
        "fp16",
    )


async def test_lmdeploy(make_probe: Make) -> None:
    metrics = b"lmdeploy:num_requests_running 2\nlmdeploy:num_requests_waiting 0\nlmdeploy:generation_tokens_total 9\n"
    models = {"/v1/models": {"data": [{"id": "m", "owned_by": "lmdeploy"}]}}
    server, paths = await look(make_probe, answers(models, metrics))
    assert (server.engine, server.running) == ("lmdeploy", 2)
    assert server.counters is not None and server.counters.generated_tokens == 9
    assert "/terminate" not in paths


async def test_tensorrt_llm_s_queues_are_not_drained(make_probe: Make) -> None:
    bodies = {"/v1/models": {"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}, "/version": {"version": "1.1.0"}}
    server, paths = await look(make_probe, answers(bodies, b"[]"))
    assert (server.engine, server.version, server.model) == ("trtllm", "1.1.0", "m")
    assert "/metrics" not in paths and "used up" in server.reasons["running"], "nor are they asked"


async def test_old_names_of_sglang_s_addresses(make_probe: Make) -> None:
    info = read("sglang_ngram_graph", "server_info.json")
    models = {"/v1/models": {"data": [{"id": "m", "owned_by": "sglang"}]}, "/get_model_info": {"model_path": "/m"}}
    replies = answers(models)
    server, _ = await look(make_probe, {**replies, "/get_server_info": Reply(200, info)})
    assert (server.engine, server.model, server.speculative_algorithm) == ("sglang", "/m", "NGRAM")


def test_a_command_line_tells_what_a_locked_server_does_not() -> None:
    flags = requested_flags(
        "sglang", ["python3", "-m", "sglang.launch_server", "--model-path", "/m", "--tp", "2", "--disable-cuda-graph"]
    )
    told = sglang_settings.asked(flags)
    assert (told.model, told.tp, told.cuda_graph) == ("/m", 2, False)
    assert sglang_settings.asked({}).cuda_graph is None, "not asked for: resolved to anything"
