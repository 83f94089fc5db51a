"""vLLM, 0.6.6 to 0.33 as read in its source; 0.24 as recorded.

`generation_tokens_total` is live. Over HTTP vLLM tells nothing of attention backend and CUDA graphs (`/server_info`
exists in its developer mode only and took 1.2 to 2.3 s when first asked): what is known comes from the command line
and from `cache_config_info`, whose labels are the cache's settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from decodetop.core.decode import NotDecoded, decode
from decodetop.server.engines.adapter import (
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
    scraped,
    share,
    text_of,
    whole_of,
)
from decodetop.server.flags import whole
from decodetop.server.log import StartUp
from decodetop.server.metrics import Scrape, parse
from decodetop.server.reading import Engine

METRICS = MetricTable(
    running=("vllm:num_requests_running",),
    queued=("vllm:num_requests_waiting",),
    # 0..1 in spite of the name
    kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    ttft=("vllm:time_to_first_token_seconds",),
    itl=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    counters={
        "generated_tokens": ("vllm:generation_tokens_total",),
        "prompt_tokens": ("vllm:prompt_tokens_total",),
        "cached_tokens": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        "requests": ("vllm:request_success_total",),
        "spec_drafts": ("vllm:spec_decode_num_drafts_total",),
        "spec_accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
        "spec_draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
        "preemptions": ("vllm:num_preemptions_total",),
    },
    accepted_per_position=("vllm:spec_decode_num_accepted_tokens_per_pos_total",),
    also=("vllm:cache_config_info", "process_start_time_seconds"),
)
WANTED = METRICS.wanted()

UNSEEN = "only its command line says it, and that can't be seen from here"
LOG_ONLY = "vLLM tells it in its start-up log only"
NO_STATS = "started with --disable-log-stats"
GRAPHS_DEFAULT = "nothing asked for: on by default, but vLLM may turn them off silently; its start-up log says"


class VLLM:
    engine: Engine = "vllm"
    telling: tuple[str, ...] = (
        "block_size",
        "cache_dtype",
        "gpu_memory_utilization",
        "enable_prefix_caching",
        "cudagraph_mode",
    )

    async def facts(self, ask: Ask, flags: Mapping[str, str] | None) -> Facts:
        entry = first_model((await ask("/v1/models")).json())
        version = text_of((await ask("/version")).object().get("version"))
        told = facts_of(flags)
        scrape = await ask("/metrics")
        config = cache_config(parse(scrape.text(), WANTED)) if scrape.ok else {}
        reasons = dict(told.reasons)
        return msgspec.structs.replace(
            told,
            version=version,
            kv_dtype=dtype_word(config.get("cache_dtype"), "kv_dtype", reasons),
            model=text_of(entry.get("root")) or told.model,
            served_name=text_of(entry.get("id")),
            context_length=whole_of(entry.get("max_model_len")) or told.context_length,
            resolved={name: config[name] for name in _CACHE_SETTINGS if config.get(name, "None") != "None"},
            reasons=reasons,
        )

    async def look(self, ask: Ask, facts: Facts) -> Look:
        return look_at(scraped(await ask("/metrics"), WANTED), facts.speculative_draft_tokens)


_CACHE_SETTINGS = (
    "block_size",
    "cache_dtype",
    "gpu_memory_utilization",
    "enable_prefix_caching",
    "num_gpu_blocks",
    "num_gpu_blocks_override",
    "sliding_window",
    "prefix_caching_hash_algo",
)


def facts_of(flags: Mapping[str, str] | None) -> Facts:
    """From the command line."""
    fields = "tp pp dp ep quantization weights_dtype attention_backend cuda_graph speculative_algorithm max_running"
    if flags is None:
        return Facts(reasons=dict.fromkeys(fields.split(), UNSEEN))
    reasons: dict[str, str] = {}
    tp, dp = whole(flags.get("tensor_parallel_size")) or 1, whole(flags.get("data_parallel_size")) or 1
    backend = text_of(flags.get("attention_backend"))
    if backend is None:
        reasons["attention_backend"] = LOG_ONLY
    if "max_num_seqs" not in flags:
        reasons["max_running"] = "the default depends on version and GPU; " + LOG_ONLY
    on, largest, batches = _graphs(flags, reasons)
    method, tokens = _speculation(flags)
    if method is None:
        reasons["accept_length"] = NO_SPECULATION
    return Facts(
        model=text_of(flags.get("model")),
        tp=tp,
        pp=whole(flags.get("pipeline_parallel_size")) or 1,
        dp=dp,
        ep=tp * dp if flags.get("enable_expert_parallel") == "true" else 1,
        quantization=text_of(flags.get("quantization")),
        weights_dtype=dtype_word(flags.get("dtype", "auto"), "weights_dtype", reasons),
        attention_backend=backend,
        cuda_graph=on,
        cuda_graph_max_batch=largest,
        cuda_graph_batches=batches,
        speculative_algorithm=method,
        speculative_draft_tokens=tokens,
        context_length=whole(flags.get("max_model_len")),
        max_running=whole(flags.get("max_num_seqs")),
        reasons=reasons,
    )


def started(facts: Facts, seen: StartUp) -> Facts:
    """`facts` with what the start-up log settles. Its configuration is after all silent changes."""
    reasons = dict(facts.reasons)
    on = facts.cuda_graph if seen.graph_mode is None else seen.graph_mode != "NONE"
    batches = (seen.graph_batches or facts.cuda_graph_batches) if on else ()
    dtype = dtype_word(seen.weights_dtype, "weights_dtype", {})
    changed = msgspec.structs.replace(
        facts,
        attention_backend=facts.attention_backend or seen.attention_backend,
        cuda_graph=on,
        cuda_graph_batches=batches,
        cuda_graph_max_batch=max(batches, default=facts.cuda_graph_max_batch) if on else None,
        weights_dtype=dtype or facts.weights_dtype,
        quantization=facts.quantization or seen.quantization,
        tp=facts.tp or seen.tp,
        kv_pool_bytes=seen.kv_pool_bytes,
        resolved=facts.resolved | ({"cudagraph_mode": seen.graph_mode} if seen.graph_mode else {}),
        reasons=reasons,
    )
    if on is False:
        reasons["cuda_graph_max_batch"] = "graphs are off"
    return changed


def unread(facts: Facts, trouble: str) -> Facts:
    """`facts` where the start-up log can't be read: what it alone tells says why it is missing."""
    by_log = (LOG_ONLY, GRAPHS_DEFAULT)
    reasons = {
        field: f"{why}; its log can't be read: {trouble}" if why.endswith(by_log) else why
        for field, why in facts.reasons.items()
    }
    return msgspec.structs.replace(facts, reasons=reasons)


def cache_config(scrape: Scrape) -> Mapping[str, str]:
    """The labels of `cache_config_info`, of the first engine."""
    points = scrape.points("vllm:cache_config_info")
    return points[0].labels if points else {}


def look_at(scrape: Scrape, draft_tokens: int | None = None) -> Look:
    """The live half, from one scrape. `draft_tokens` a draft: V0 counts the drafted tokens and not the drafts."""
    reasons: dict[str, str] = {}
    ttft, itl = histogram(scrape, METRICS.ttft), histogram(scrape, METRICS.itl)
    started = scrape.total("process_start_time_seconds")
    counters = counted(scrape, METRICS, ttft, itl, reasons)
    if counters.spec_drafts is None and counters.spec_draft_tokens is not None and draft_tokens:
        counters = msgspec.structs.replace(counters, spec_drafts=counters.spec_draft_tokens / draft_tokens)
    running = count(gauge(scrape, METRICS.running, "running", reasons))
    if not any(scrape.points(name) for name in METRICS.running):
        reasons["running"] = NO_STATS
    return Look(
        basis=f"started {started:.0f}" if started else "counters",
        running=running,
        queued=count(gauge(scrape, METRICS.queued, "queued", reasons)),
        kv_usage=share(scrape, METRICS.kv_usage, "kv_usage", reasons),
        kv_capacity_tokens=_capacity(scrape, reasons),
        counters=counters,
        ttft=ttft,
        itl=itl,
        itl_per_event=bool(counters.spec_drafts),
        started_s=started,
        speculating=bool(counters.spec_drafts),
        reasons=reasons,
    )


def _capacity(scrape: Scrape, reasons: dict[str, str]) -> int | None:
    """Tokens, over the data-parallel engines: each has a cache of its own."""
    tokens = 0
    points = scrape.points("vllm:cache_config_info")
    for point in points:
        size = whole(point.labels.get("kv_cache_size_tokens"))
        blocks, block = whole(point.labels.get("num_gpu_blocks")), whole(point.labels.get("block_size"))
        if size is None and blocks is not None and block is not None:
            size = blocks * block
        if size is None:
            reasons["kv_capacity_tokens"] = "cache_config_info does not say"
            return None
        tokens += size
    if not points:
        reasons["kv_capacity_tokens"] = "no metric vllm:cache_config_info"
    return tokens or None


def _graphs(flags: Mapping[str, str], reasons: dict[str, str]) -> tuple[bool | None, int | None, tuple[int, ...]]:
    """On, largest and all captured sizes as far as the command line settles them."""
    config = _json(flags.get("compilation_config"))
    mode = str(flags.get("compilation_config.cudagraph_mode") or config.get("cudagraph_mode") or "").upper()
    if flags.get("enforce_eager", "").lower() == "true" or mode == "NONE" or flags.get("optimization_level") == "0":
        reasons["cuda_graph_max_batch"] = "graphs are off"
        return False, None, ()
    typed = flags.get("cudagraph_capture_sizes") or flags.get("cuda_graph_sizes")
    sizes = _sizes(typed.replace(",", " ").split() if typed else config.get("cudagraph_capture_sizes") or ())
    largest = whole_of(flags.get("max_cudagraph_capture_size") or config.get("max_cudagraph_capture_size"))
    if not mode:
        reasons["cuda_graph"] = GRAPHS_DEFAULT
        reasons["cuda_graph_max_batch"] = LOG_ONLY
    return (True if mode else None), largest or max(sizes, default=None), sizes


def _speculation(flags: Mapping[str, str]) -> tuple[str | None, int | None]:
    """Method and draft tokens: `--speculative-config` (0.8.5+) or the older flags."""
    config = _json(flags.get("speculative_config"))
    if config:
        method = text_of(config.get("method")) or "draft model"
        return method, whole_of(config.get("num_speculative_tokens"))
    if "speculative_model" in flags:
        return text_of(flags["speculative_model"]), whole(flags.get("num_speculative_tokens"))
    return None, None


def _sizes(values: object) -> tuple[int, ...]:
    if not isinstance(values, Iterable):
        return ()
    return tuple(size for value in values if (size := whole_of(value)) is not None)


def _json(text: str | None) -> dict[str, Any]:
    try:
        value = decode(text) if text else {}
    except NotDecoded:
        return {}
    return value if isinstance(value, dict) else {}
