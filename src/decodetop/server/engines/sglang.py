"""SGLang, 0.4.1 to 0.5.23 as read in its source; 0.5.15 as recorded.

Live are `realtime_tokens_total` (0.5.8+) and the ITL count; `generation_tokens_total` and `prompt_tokens_total` move
when a request ends; `gen_throughput` keeps its last value when idle and `is_cuda_graph` reads 0 while graphs run:
neither is shown. `/health` costs a forward pass, the old `/get_*` names log a warning on each call.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from decodetop.server.client import Answer, NoAnswer
from decodetop.server.engines.adapter import (
    FIGURES,
    NO_SPECULATION,
    Ask,
    Facts,
    Look,
    MetricTable,
    count,
    counted,
    dtype_word,
    first_model,
    gauge,
    histogram,
    impossible,
    odd_count,
    scraped,
    share,
    text_of,
    total,
    whole_of,
)
from decodetop.server.engines.sglang_loads import look_at_loads
from decodetop.server.flags import requested_flags, shown, whole
from decodetop.server.metrics import EMPTY, Histogram, Scrape
from decodetop.server.reading import Counters, Engine

METRICS = MetricTable(
    running=("sglang:num_running_reqs",),
    queued=("sglang:num_queue_reqs",),
    # token_usage is rounded to two digits
    kv_usage=("sglang:full_token_usage", "sglang:token_usage"),
    kv_capacity_tokens=("sglang:max_total_num_tokens",),
    context_length=("sglang:context_len",),
    ttft=("sglang:time_to_first_token_seconds",),
    itl=("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
    counters={
        "requests": ("sglang:num_requests_total",),
        "spec_drafts": ("sglang:spec_verify_calls_total",),
        "graph_decode_passes": ("sglang:cuda_graph_passes_total{mode=decode_cuda_graph}",),
        "eager_decode_passes": ("sglang:cuda_graph_passes_total{mode=decode_none}",),
    },
    also=(
        "sglang:realtime_tokens_total",
        "sglang:generation_tokens_total",
        "sglang:prompt_tokens_total",
        "sglang:cached_tokens_total",
        "sglang:spec_accept_length",
        "sglang:num_used_tokens",
        "sglang:num_retracted_reqs",
    ),
)
WANTED = METRICS.wanted()

_TOLD = (
    "model_path served_model_name revision load_format dtype quantization kv_cache_dtype context_length tp_size "
    "pp_size dp_size ep_size nnodes enable_dp_attention enable_dp_lm_head device base_gpu_id mem_fraction_static "
    "max_running_requests max_total_tokens chunked_prefill_size max_prefill_tokens page_size schedule_policy "
    "schedule_conservativeness num_continuous_decode_steps stream_interval decode_log_interval attention_backend "
    "decode_attention_backend prefill_attention_backend sampling_backend grammar_backend mm_attention_backend "
    "linear_attn_backend moe_runner_backend moe_a2a_backend fp8_gemm_runner_backend fp4_gemm_runner_backend "
    "bf16_gemm_backend disable_cuda_graph disable_cuda_graph_padding disable_decode_cuda_graph "
    "disable_prefill_cuda_graph cuda_graph_max_bs_decode cuda_graph_bs_decode cuda_graph_backend_decode "
    "enable_torch_compile torch_compile_max_bs disable_overlap_schedule disable_radix_cache enable_mixed_chunk "
    "disable_custom_all_reduce enable_mscclpp enable_symm_mem enable_torch_symm_mem enable_nccl_nvls "
    "enable_flashinfer_allreduce_fusion flashinfer_allreduce_fusion_backend enable_fused_moe_sum_all_reduce "
    "enable_fused_qk_norm_rope enable_two_batch_overlap enable_single_batch_overlap speculative_algorithm "
    "speculative_draft_model_path speculative_num_steps speculative_eagle_topk speculative_num_draft_tokens "
    "speculative_adaptive speculative_attention_mode disaggregation_mode enable_hierarchical_cache enable_lora "
    "enable_metrics enable_mfu_metrics enable_metrics_for_all_schedulers skip_server_warmup host port "
    "enable_deterministic_inference trust_remote_code"
)
TOLD = tuple(_TOLD.split())
"""The settings taken from `/server_info`, which also holds `api_key`, `admin_api_key` and `ssl_keyfile_password`."""

BATCHES_MAX = 4096
"""Captured batch sizes of a server; it has some dozens."""

TELLING = (
    "attention_backend",
    "kv_cache_dtype",
    "page_size",
    "max_running_requests",
    "chunked_prefill_size",
    "disable_overlap_schedule",
    "speculative_algorithm",
    "speculative_num_draft_tokens",
)

NO_METRICS = "started without --enable-metrics"
NOT_TOLD = "/server_info did not answer"


class SGLang:
    engine: Engine = "sglang"
    telling: tuple[str, ...] = TELLING

    async def facts(self, ask: Ask, flags: Mapping[str, str] | None) -> Facts:
        models = await ask("/v1/models")
        model = await _either(ask, "/model_info", "/get_model_info")
        entry = first_model(models.json())
        try:
            info = (await _either(ask, "/server_info", "/get_server_info")).object()
        except NoAnswer as no:
            info = {}
            unknown = f"/server_info: {'no answer (it waits for the scheduler)' if no.status == 'hung' else no.message}"
        else:
            unknown = NOT_TOLD
        told = facts_of(info) if info else Facts(reasons=dict.fromkeys(_TOLD_FIELDS, unknown), complete=False)
        return msgspec.structs.replace(
            told,
            model=text_of(model.object().get("model_path")) or told.model,
            served_name=text_of(entry.get("id")) or told.served_name,
            context_length=told.context_length or whole_of(entry.get("max_model_len")),
        )

    async def look(self, ask: Ask, facts: Facts) -> Look:
        answer = await ask("/metrics")
        if answer.code == 404:
            # still there? Both are cheap and run nothing on the GPU; before 0.5.15 the loads wait for the scheduler
            told = await ask("/v1/loads" if _numbers(facts.version) >= [0, 5, 15] else "/model_info")
            return look_at_loads(told.object(), dict.fromkeys(_LIVE_FIELDS, NO_METRICS))
        return look_at(scraped(answer, WANTED), facts)


_FACTS = "version tp pp dp ep quantization weights_dtype kv_dtype attention_backend cuda_graph max_running"
_TOLD_FIELDS = (*_FACTS.split(), "speculative_algorithm")
_LIVE = "running queued kv_usage generated_tok_s prompt_tok_s ttft itl prefix_hit_rate counters"
_LIVE_FIELDS = tuple(_LIVE.split())


def facts_of(info: Mapping[str, Any]) -> Facts:
    """From the body of `/server_info`, by allow-list."""
    info = _flat(info)
    states = info.get("internal_states")
    first = states[0] if isinstance(states, list) and states else states
    state = first if isinstance(first, dict) else {}
    graph = info.get("cuda_graph_config")
    decode = graph.get("decode") if isinstance(graph, dict) else None
    decode = decode if isinstance(decode, dict) else {}
    reasons: dict[str, str] = {}
    dp = whole_of(info.get("dp_size")) or 1
    backend = text_of(info.get("decode_attention_backend")) or text_of(info.get("attention_backend"))
    on, largest, batches = _graphs(info, state, decode, reasons)
    resolved = _resolved(info, state, decode, dp)
    algorithm = text_of(info.get("speculative_algorithm"))
    if algorithm is None:
        reasons["accept_length"] = NO_SPECULATION
    launched = text_of(info.get("launch_command"))
    return Facts(
        version=text_of(info.get("version")),
        model=text_of(info.get("model_path")),
        served_name=text_of(info.get("served_model_name")),
        tp=whole_of(info.get("tp_size")),
        pp=whole_of(info.get("pp_size")),
        dp=dp,
        ep=whole_of(info.get("ep_size")),
        quantization=text_of(info.get("quantization")),
        weights_dtype=dtype_word(info.get("dtype"), "weights_dtype", reasons),
        kv_dtype=dtype_word(info.get("kv_cache_dtype"), "kv_dtype", reasons),
        attention_backend=backend,
        cuda_graph=on,
        cuda_graph_max_batch=largest,
        cuda_graph_batches=batches,
        speculative_algorithm=algorithm,
        speculative_steps=(whole_of(info.get("speculative_num_steps")) or None) if algorithm else None,
        speculative_draft_tokens=whole_of(info.get("speculative_num_draft_tokens")) if algorithm else None,
        context_length=whole_of(info.get("context_length")),
        kv_capacity_tokens=_times(whole_of(info.get("max_total_num_tokens")), dp),
        kv_pool_bytes=_pool_bytes(state),
        max_running=whole_of(resolved.get("max_running_requests")),
        resolved=resolved,
        requested=requested_flags("sglang", _split(launched)) if launched else {},
        reasons=reasons,
    )


def _flat(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Versions nest the arguments or the scheduler's figures in an object of their own, or do not."""
    nested = (info.get(name) for name in ("scheduler_info", "server_args"))
    return {key: value for part in nested if isinstance(part, dict) for key, value in part.items()} | dict(info)


def asked(flags: Mapping[str, str]) -> Facts:
    """What the command line alone says: a flag that was not given may have been resolved to anything."""
    off = flags.get("disable_cuda_graph") == "true"
    return Facts(
        model=flags.get("model_path"),
        served_name=flags.get("served_model_name"),
        tp=whole(flags.get("tp_size")),
        pp=whole(flags.get("pp_size")),
        dp=whole(flags.get("dp_size")),
        ep=whole(flags.get("ep_size")),
        quantization=flags.get("quantization"),
        attention_backend=flags.get("attention_backend"),
        cuda_graph=False if off else None,
        speculative_algorithm=flags.get("speculative_algorithm"),
        context_length=whole(flags.get("context_length")),
        max_running=whole(flags.get("max_running_requests")),
        reasons={"cuda_graph_max_batch": "graphs are off"} if off else {},
    )


def look_at(scrape: Scrape, facts: Facts) -> Look:
    """The live half, from one scrape."""
    reasons: dict[str, str] = {}
    ttft, itl = histogram(scrape, METRICS.ttft), histogram(scrape, METRICS.itl)
    if itl is None and scrape.has(METRICS.running[0]) and not any(scrape.has(f"{name}_count") for name in METRICS.itl):
        itl = EMPTY  # the histogram appears with its first sample
    capacity = count(total(scrape, METRICS.kv_capacity_tokens))
    accept = total(scrape, ("sglang:spec_accept_length",))
    realtime = _has_realtime(scrape, facts.version)
    return Look(
        basis="realtime" if realtime else "histogram",
        running=count(gauge(scrape, METRICS.running, "running", reasons)),
        queued=count(gauge(scrape, METRICS.queued, "queued", reasons)),
        retracted=count(total(scrape, ("sglang:num_retracted_reqs",))),
        kv_usage=_kv_usage(scrape, capacity, reasons),
        kv_capacity_tokens=capacity,
        context_length=count(scrape.mean("sglang:context_len")),
        counters=_counters(scrape, realtime, ttft, itl, reasons),
        ttft=ttft,
        itl=itl,
        # 0.0 without speculation
        accept_gauge=accept if accept else None,
        speculating=bool(accept),
        # renewed every decode_log_interval (40) decode steps; when idle about every 30 s
        gauges_stick=True,
        reasons=reasons,
    )


def _counters(
    scrape: Scrape, realtime: bool, ttft: Histogram | None, itl: Histogram | None, reasons: dict[str, str]
) -> Counters:
    plain = counted(scrape, METRICS, ttft, itl, reasons)
    finished, verified = total(scrape, ("sglang:generation_tokens_total",)), plain.spec_drafts
    accepted = None
    if verified is not None and finished is not None and plain.requests is not None:
        # per verify step one bonus token and the accepted ones; a request's first token comes from its prefill
        accepted = finished - plain.requests - verified
    passes = scrape.has("sglang:cuda_graph_passes_total")
    tokens = _realtime(scrape, reasons) if realtime else _at_end(scrape, ttft, itl, reasons)
    return msgspec.structs.replace(
        plain,
        **tokens,
        spec_accepted_tokens=accepted,
        graph_decode_passes=(plain.graph_decode_passes or 0.0) if passes else None,
        eager_decode_passes=(plain.eager_decode_passes or 0.0) if passes else None,
    )


_TOKENS = ("generated_tokens", "prompt_tokens", "cached_tokens")


def _realtime(scrape: Scrape, reasons: dict[str, str]) -> dict[str, float | None]:
    """By mode; one not seen yet has no sample."""
    name = "sglang:realtime_tokens_total"
    if scrape.impossible(name) is not None:
        for field in _TOKENS:
            odd_count(scrape, (name,), FIGURES[field], reasons)
        return dict.fromkeys(_TOKENS)
    decode, compute, cached = (scrape.total(name, mode=mode) or 0.0 for mode in _MODES)
    return {"generated_tokens": decode, "prompt_tokens": compute + cached, "cached_tokens": cached}


def _at_end(
    scrape: Scrape, ttft: Histogram | None, itl: Histogram | None, reasons: dict[str, str]
) -> dict[str, float | None]:
    """Of versions without them: output tokens as the two histograms count them."""
    found: dict[str, float | None] = {"generated_tokens": (itl.count if itl else 0.0) + (ttft.count if ttft else 0.0)}
    if any(figure in reasons for figure in ("itl", "ttft")):
        found["generated_tokens"] = None
        reasons["generated_tok_s"] = reasons.get("itl") or reasons["ttft"]
    for field in _TOKENS[1:]:
        names = (f"sglang:{field}_total",)
        odd_count(scrape, names, FIGURES[field], reasons)
        odd = impossible(scrape, names) is not None
        found[field] = None if odd else total(scrape, names) or 0.0
    return found


_MODES = ("decode", "prefill_compute", "prefill_cache")


def _has_realtime(scrape: Scrape, version: str | None) -> bool:
    """Modes not seen yet have no sample, so the version decides where it is known."""
    return scrape.has("sglang:realtime_tokens_total") or _numbers(version) >= [0, 5, 8]


def _numbers(version: str | None) -> list[int]:
    return [int(part) for part in re.findall(r"\d{1,9}", version or "")[:3]]


def _kv_usage(scrape: Scrape, capacity: int | None, reasons: dict[str, str]) -> float | None:
    used = total(scrape, ("sglang:num_used_tokens",))
    if not scrape.has("sglang:full_token_usage") and used is not None and capacity:
        return used / capacity
    return share(scrape, METRICS.kv_usage, "kv_usage", reasons)


def _graphs(
    info: Mapping[str, Any], state: Mapping[str, Any], decode: Mapping[str, Any], reasons: dict[str, str]
) -> tuple[bool | None, int | None, tuple[int, ...]]:
    """On or off, largest and all captured batch sizes: `cuda_graph_config` (0.5.15+) or the older fields."""
    if decode:
        on: bool | None = decode.get("backend") != "disabled" and info.get("disable_cuda_graph") is not True
    elif isinstance(info.get("disable_cuda_graph"), bool):
        on = not info["disable_cuda_graph"]
    else:
        on, reasons["cuda_graph"] = None, "/server_info does not say"
    if not on:
        reasons["cuda_graph_max_batch"] = "graphs are off" if on is False else reasons["cuda_graph"]
        return on, None, ()
    sizes = decode.get("bs") or info.get("cuda_graph_bs") or state.get("decode_cuda_graph_bs") or ()
    given = sizes if isinstance(sizes, (list, tuple)) and len(sizes) <= BATCHES_MAX else ()
    batches = tuple(size for size in map(whole_of, given) if size)
    largest = whole_of(decode.get("max_bs")) or whole_of(info.get("cuda_graph_max_bs")) or max(batches, default=None)
    return on, largest, batches


def _pool_bytes(state: Mapping[str, Any]) -> int | None:
    """`memory_usage.kvcache` is called GB and is GiB: 82.06 of them are 597,532 tokens of 147,456 bytes."""
    used = state.get("memory_usage")
    gib = used.get("kvcache") if isinstance(used, dict) else None
    return int(gib * 2**30) if isinstance(gib, (int, float)) and 0 < gib < 2**20 else None


def _resolved(info: Mapping[str, Any], state: Mapping[str, Any], decode: Mapping[str, Any], dp: int) -> dict[str, str]:
    extra: dict[str, Any] = {
        "max_running_requests": _times(whole_of(state.get("effective_max_running_requests_per_dp")), dp),
        "cuda_graph_max_bs_decode": decode.get("max_bs", info.get("cuda_graph_max_bs")),
        "cuda_graph_bs_decode": decode.get("bs", info.get("cuda_graph_bs")),
        "cuda_graph_backend_decode": decode.get("backend"),
    }
    values = {name: shown(name, info.get(name) if info.get(name) is not None else extra.get(name)) for name in TOLD}
    return {name: value for name, value in values.items() if value is not None}


async def _either(ask: Ask, new: str, old: str) -> Answer:
    """The old name only where the new one does not exist: it logs a warning on servers that have both."""
    answer = await ask(new)
    return await ask(old) if answer.code == 404 else answer


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _times(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor
