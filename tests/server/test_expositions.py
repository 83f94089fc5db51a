"""Scrapes of many versions and engines, made by hand after their sources: each must come out as it was meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from decodetop.core.clock import SECOND_NS
from decodetop.server.engines import sglang, sglang_settings, vllm
from decodetop.server.engines.adapter import Facts, Look
from decodetop.server.engines.lmdeploy import WANTED as LMDEPLOY
from decodetop.server.engines.sglang_loads import look_at_loads
from decodetop.server.metrics import parse, spellings, wanted_names
from decodetop.server.probe import ServerProbe
from decodetop.server.rates import History, Tally
from decodetop.server.reading import Server
from support.clock import ManualClock
from support.engine_replay import EngineReplay, Reply

Make = Callable[..., ServerProbe]


def of_sglang(text: str, version: str | None = None) -> Look:
    return sglang.look_at(parse(text, sglang.WANTED), Facts(version=version))


def of_vllm(text: str, draft_tokens: int | None = None) -> Look:
    return vllm.look_at(parse(text, vllm.WANTED), draft_tokens)


def histogram(name: str, labels: str, sum_s: float, count: int) -> str:
    inner = f"{{{labels}}}" if labels else ""
    more = f"{labels}," if labels else ""
    return (
        f'{name}_bucket{{{more}le="0.01"}} 0\n{name}_bucket{{{more}le="+Inf"}} {count}\n'
        f"{name}_sum{inner} {sum_s}\n{name}_count{inner} {count}\n"
    )


OLD_SGLANG = (
    'sglang:num_running_reqs{model_name="m"} 3.0\nsglang:num_queue_reqs{model_name="m"} 1.0\n'
    'sglang:token_usage{model_name="m"} 0.05\nsglang:gen_throughput{model_name="m"} 4827.0\n'
    'sglang:cache_hit_rate{model_name="m"} 0.4\nsglang:spec_accept_length{model_name="m"} 0.0\n'
    'sglang:prompt_tokens_total{model_name="m"} 900.0\nsglang:generation_tokens_total{model_name="m"} 10.0\n'
    + histogram("sglang:time_per_output_token_seconds", 'model_name="m"', 2.0, 100)
    + histogram("sglang:time_to_first_token_seconds", 'model_name="m"', 1.0, 4)
)
RANK = 'engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="{tp}",dp_rank="{dp}"'


def new_sglang(tps: int = 2, dps: int = 2) -> str:
    """0.5.15 and later: every rank tells its capacity, TP rank 0 of each DP rank what runs."""
    lines = []
    for dp in range(dps):
        for tp in range(tps):
            labels = RANK.format(tp=tp, dp=dp)
            lines.append(f"sglang:max_total_num_tokens{{{labels}}} 1000.0")
            lines.append(f'sglang:cuda_graph_passes_total{{{labels},mode="decode_cuda_graph"}} 50.0')
            lines.append(f'sglang:num_retracted_reqs{{{labels},pid="{100 + tp}"}} 1.0')
        labels = RANK.format(tp=0, dp=dp)
        lines += [
            f"sglang:num_running_reqs{{{labels}}} 4.0",
            f'sglang:num_queue_reqs{{{labels},priority=""}} 3.0',
            f'sglang:num_queue_reqs{{{labels},priority="1"}} 2.0',
            f'sglang:num_queue_reqs{{{labels},priority="2"}} 1.0',
            f"sglang:token_usage{{{labels}}} 0.05",
            f"sglang:full_token_usage{{{labels}}} 0.048",
            f"sglang:gen_throughput{{{labels}}} 7090.0",
            f"sglang:fwd_occupancy{{{labels}}} NaN",
            f"sglang:is_cuda_graph{{{labels}}} 0.0",
            f'sglang:realtime_tokens_total{{{labels},mode="decode"}} 600.0',
            f'sglang:realtime_tokens_total{{{labels},mode="prefill_compute"}} 300.0',
            f'sglang:realtime_tokens_total{{{labels},mode="prefill_cache"}} 100.0',
            f"sglang:generation_tokens_total{{{labels}}} 10.0",
            f"sglang:generation_tokens_created{{{labels}}} 1.796e9",
            histogram("sglang:inter_token_latency_seconds", labels, 3.0, 600).rstrip(),
            histogram("sglang:time_to_first_token_seconds", f'{labels},is_streaming="true"', 1.0, 4).rstrip(),
        ]
    return "\n".join(lines) + "\n"


def test_sglang_of_2024() -> None:
    look = of_sglang(OLD_SGLANG, "0.4.1.post7")
    assert (look.running, look.queued, look.kv_usage, look.speculating) == (3, 1, 0.05, False)
    assert look.counters is not None
    # not the counter that moves when a request ends
    assert (look.counters.generated_tokens, look.counters.itl_count) == (104, 100)


@pytest.mark.parametrize(("tps", "dps"), [(1, 1), (2, 1), (8, 1), (1, 4), (2, 4)])
def test_sglang_ranks(tps: int, dps: int) -> None:
    look = of_sglang(new_sglang(tps, dps), "0.5.23")
    assert (look.running, look.queued, look.retracted) == (4 * dps, 3 * dps, dps)
    assert (look.kv_usage, look.kv_capacity_tokens) == (pytest.approx(0.048), 1000 * dps)
    assert look.counters is not None
    assert (look.counters.generated_tokens, look.counters.prompt_tokens) == (600 * dps, 400 * dps)
    assert (look.counters.cached_tokens, look.counters.graph_decode_passes) == (100 * dps, 50 * dps)
    assert (look.counters.ttft_count, look.counters.itl_count) == (4 * dps, 600 * dps)


@pytest.mark.parametrize(
    "written",
    [
        lambda text: text.replace("sglang:", "sglang_"),  # OpenMetrics
        lambda text: text.replace("sglang:", ""),  # a relay that drops the prefix
        lambda text: text.replace("_tokens_total", "_tokens").replace("_passes_total", "_passes"),
        lambda text: "# HELP x y\n" + text.replace("} ", "}\t").replace("\n", " \n"),
        lambda text: text.replace("\n", " 1796000000000\n"),  # a time stamp after each value
        lambda text: "\ufeff" + text + "# EOF\n",
        lambda text: text.replace("\n", "\r\n"),
    ],
)
def test_sglang_otherwise_written(written: Callable[[str], str]) -> None:
    plain, other = of_sglang(new_sglang(), "0.5.23"), of_sglang(written(new_sglang()), "0.5.23")
    assert (other.running, other.queued, other.kv_usage) == (plain.running, plain.queued, plain.kv_usage)
    assert other.counters == plain.counters and other.kv_capacity_tokens == plain.kv_capacity_tokens


def test_its_own_spelling_goes_before_others() -> None:
    text = "sglang:num_running_reqs 4\nsglang_num_running_reqs 9\nnum_running_reqs 9\n"
    assert of_sglang(text).running == 4
    known = spellings(wanted_names(("vllm:generation_tokens_total", "process_start_time_seconds")))
    assert known["vllm_generation_tokens"] == known["generation_tokens_total"] == "vllm:generation_tokens_total"
    assert "process_start_time" not in known and known["process_start_time_seconds"] == "process_start_time_seconds"


VLLM_LABELS = 'engine="{at}",model_name="m"'


def new_vllm(engines: int = 1) -> str:
    lines = ["process_start_time_seconds 1.796e9"]
    for at in range(engines):
        labels = VLLM_LABELS.format(at=at)
        lines += [
            f"vllm:num_requests_running{{{labels}}} 4.0",
            f"vllm:num_requests_waiting{{{labels}}} 2.0",
            f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} 2.0',
            f'vllm:num_requests_waiting_by_reason{{{labels},reason="deferred"}} 5.0',
            f"vllm:kv_cache_usage_perc{{{labels}}} 0.25",
            f"vllm:generation_tokens_total{{{labels}}} 600.0",
            f"vllm:generation_tokens_created{{{labels}}} 1.796e9",
            f"vllm:prompt_tokens_total{{{labels}}} 400.0",
            f"vllm:prefix_cache_hits_total{{{labels}}} 100.0",
            f"vllm:num_preemptions_total{{{labels}}} 1.0",
            f'vllm:request_success_total{{{labels},finished_reason="stop"}} 3.0',
            f'vllm:request_success_total{{{labels},finished_reason="length"}} 1.0',
            f'vllm:cache_config_info{{{labels},block_size="16",num_gpu_blocks="100",cache_dtype="auto"}} 1.0',
            f'vllm:iteration_tokens_total_bucket{{{labels},le="1.0"}} 7.0',
            f"vllm:iteration_tokens_total_sum{{{labels}}} 999.0",
            histogram("vllm:inter_token_latency_seconds", labels, 3.0, 596).rstrip(),
            histogram("vllm:time_to_first_token_seconds", labels, 1.0, 4).rstrip(),
        ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("engines", [1, 4])
@pytest.mark.parametrize("prefix", ["vllm:", "vllm_", ""])
def test_vllm_v1(engines: int, prefix: str) -> None:
    look = of_vllm(new_vllm(engines).replace("vllm:", prefix))
    assert (look.running, look.queued, look.kv_usage) == (4 * engines, 2 * engines, 0.25)
    assert look.kv_capacity_tokens == 1600 * engines
    assert look.counters is not None and look.counters.generated_tokens == 600 * engines
    assert (look.counters.requests, look.counters.preemptions) == (4 * engines, engines)
    assert look.basis == "started 1796000000"


OLD_VLLM = (
    'vllm:num_requests_running{model_name="m"} 2.0\nvllm:num_requests_waiting{model_name="m"} 1.0\n'
    'vllm:num_requests_swapped{model_name="m"} 7.0\nvllm:gpu_cache_usage_perc{model_name="m"} 0.5\n'
    'vllm:cpu_cache_usage_perc{model_name="m"} 0.9\nvllm:avg_generation_throughput_toks_per_s{model_name="m"} 99\n'
    'vllm:prompt_tokens_total{model_name="m"} 40.0\nvllm:generation_tokens_total{model_name="m"} 60.0\n'
    'vllm:tokens_total{model_name="m"} 100.0\nvllm:gpu_prefix_cache_hits_total{model_name="m"} 10\n'
    'vllm:spec_decode_num_accepted_tokens_total{model_name="m"} 30\n'
    'vllm:spec_decode_num_draft_tokens_total{model_name="m"} 60\n'
    'vllm:spec_decode_num_emitted_tokens_total{model_name="m"} 50\nvllm:spec_decode_efficiency{model_name="m"} 0.6\n'
    + histogram("vllm:time_per_output_token_seconds", 'model_name="m"', 1.5, 58)
    + histogram("vllm:time_to_first_token_seconds", 'model_name="m"', 0.5, 2)
)


def test_vllm_v0() -> None:
    look = of_vllm(OLD_VLLM, 3)
    assert (look.running, look.queued, look.kv_usage) == (2, 1, 0.5)
    assert look.counters is not None
    assert (look.counters.generated_tokens, look.counters.cached_tokens) == (60, 10)
    # 60 drafted tokens, 3 a draft: 20 drafts, of which 30 tokens were taken
    assert (look.counters.spec_drafts, look.counters.spec_accepted_tokens) == (20, 30)
    history = History()
    history.push(Tally(t_ns=SECOND_NS, basis="b", counters=look.counters))
    assert history.rates().accept_length == pytest.approx(2.5)
    assert of_vllm(OLD_VLLM).counters is not None and not of_vllm(OLD_VLLM).speculating, "how many a draft is not told"


def test_both_names_of_a_metric_in_one_scrape() -> None:
    """vLLM 0.9.2 to 0.10.2 has the old and the new one."""
    both = new_vllm() + 'vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.9\n'
    both += histogram("vllm:time_per_output_token_seconds", 'engine="0",model_name="m"', 99.0, 596)
    look = of_vllm(both)
    assert look.kv_usage == 0.25 and look.itl is not None and look.itl.sum_s == 3.0


def test_lmdeploy_that_speculates() -> None:
    text = 'lmdeploy:spec_decode_num_drafts_total{model_name="m",engine="0"} 10\n'
    scrape = parse(text.replace("lmdeploy:", "lmdeploy_"), LMDEPLOY)
    assert scrape.total("lmdeploy:spec_decode_num_drafts_total") == 10


LOADS = {
    "version": "0.5.20",
    "loads": [
        {
            "dp_rank": rank,
            "num_running_reqs": 3,
            "num_waiting_reqs": 1,
            "token_usage": 0.2 + 0.2 * rank,
            "max_total_num_tokens": 1000,
            "gen_throughput": 0.0,
            "cache_hit_rate": 0.0,
            "speculative": {"accept_length": 2.5, "accept_rate": 0.6},
        }
        for rank in (0, 1)
    ],
}


def test_sglang_s_loads() -> None:
    look = look_at_loads(LOADS, {})
    assert (look.running, look.queued, look.kv_capacity_tokens) == (6, 2, 2000)
    assert look.kv_usage == pytest.approx(0.3) and look.accept_gauge == 2.5 and look.speculating
    assert look.tok_s is None and look.counters is None, "its throughput is 0 without metrics"
    for odd in ({}, {"loads": None}, {"loads": [1]}, {"loads": [{"num_running_reqs": "x", "token_usage": 7}]}):
        assert look_at_loads(odd, {}).running is None and look_at_loads(odd, {}).kv_usage is None


def json_of(bodies: dict[str, Any]) -> dict[str, Reply]:
    return {path: Reply(200, json.dumps(body).encode()) for path, body in bodies.items()}


def sglang_without_metrics(version: str) -> dict[str, Reply]:
    models = {"data": [{"id": "m", "owned_by": "sglang"}]}
    info = {"version": version, "model_path": "/m", "tp_size": 1, "disable_cuda_graph": False}
    return json_of(
        {"/v1/models": models, "/model_info": {"model_path": "/m"}, "/server_info": info, "/v1/loads": LOADS}
    )


async def only(probe: ServerProbe) -> Server:
    (server,) = (await probe.read()).servers
    return server


async def test_a_new_sglang_without_metrics_is_read_by_its_loads(make_probe: Make, clock: ManualClock) -> None:
    async with EngineReplay(sglang_without_metrics("0.5.20")) as replay:
        server = await only(make_probe(replay.endpoint))
        assert (server.status, server.running, server.queued, server.kv_capacity_tokens) == ("up", 6, 2, 2000)
        assert server.generated_tok_s is None and "--enable-metrics" in server.reasons["generated_tok_s"]
    async with EngineReplay(sglang_without_metrics("0.5.12")) as replay:
        server = await only(make_probe(replay.endpoint))
        assert server.running is None and "/v1/loads" not in replay.paths, "there it waits for the scheduler"


async def test_its_log_tells_the_rate_beside_its_loads(make_probe: Make, clock: ManualClock, tmp_path: Any) -> None:
    path = tmp_path / "sglang.log"
    path.write_text("")
    async with EngineReplay(sglang_without_metrics("0.5.20")) as replay:
        probe = make_probe(replay.endpoint, log=path)
        await only(probe)
        path.write_text(2 * "Decode batch, #running-req: 9, gen throughput (token/s): 99.5, #queue-req: 9\n")
        await clock.advance(1.0)
        server = await only(probe)
    assert (server.running, server.queued, server.generated_tok_s, server.figures_from) == (6, 2, 99.5, "log")


TRTLLM = {"/v1/models": {"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}, "/version": {"version": "1.1.0"}}


async def test_tensorrt_llm_with_its_prometheus_metrics(make_probe: Make) -> None:
    text = 'trtllm_request_success_total{finished_reason="stop",model_name="m"} 3\n'
    text += histogram("trtllm_time_to_first_token_seconds", 'model_name="m"', 1.0, 4)
    replies = json_of(TRTLLM) | {"/prometheus/metrics": Reply(200, text.encode(), "text/plain"), "/metrics": Reply(200)}
    async with EngineReplay(replies) as replay:
        server = await only(make_probe(replay.endpoint))
    assert server.ttft is not None and server.ttft.mean_ms == 250.0 and server.itl is None
    assert server.counters is not None and server.counters.requests == 3
    assert "/metrics" not in replay.paths and "a mean a request" in server.reasons["itl"]


@pytest.mark.parametrize(
    "info",
    [
        {"server_args": {"tp_size": 2, "version": "0.4.2"}, "scheduler_info": {"max_total_num_tokens": 7}},
        {"tp_size": 2, "max_total_num_tokens": 7, "internal_states": {"last_gen_throughput": 1.0}},
        {"tp_size": 2, "max_total_num_tokens": 7, "internal_states": []},
        {"tp_size": "2", "max_total_num_tokens": 7, "internal_states": [{"memory_usage": {"graph": {"decode": 1.0}}}]},
    ],
)
def test_server_info_of_many_shapes(info: dict[str, Any]) -> None:
    facts = sglang_settings.facts_of(info)
    assert (facts.tp, facts.kv_capacity_tokens) == (2, 7)


def test_the_kv_pool_in_bytes() -> None:
    facts = sglang_settings.facts_of(
        {"internal_states": [{"memory_usage": {"kvcache": 82.06, "token_capacity": 597532}}]}
    )
    assert facts.kv_pool_bytes == int(82.06 * 2**30)
    assert sglang_settings.facts_of({"internal_states": [{"memory_usage": {"kvcache": "x"}}]}).kv_pool_bytes is None
