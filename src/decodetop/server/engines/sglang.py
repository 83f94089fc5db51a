"""SGLang, 0.4.1 to 0.5.23 as read in its source; 0.5.15 as recorded.

Live are `realtime_tokens_total` (0.5.8+) and the ITL count; `generation_tokens_total` and `prompt_tokens_total` move
when a request ends; `gen_throughput` keeps its last value when idle and `is_cuda_graph` reads 0 while graphs run:
neither is shown. `/health` costs a forward pass, the old `/get_*` names log a warning on each call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from decodetop.server.client import Answer, NoAnswer
from decodetop.server.engines.adapter import (
    FIGURES,
    Ask,
    Facts,
    Look,
    MetricTable,
    count,
    counted,
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
from decodetop.server.engines.sglang_settings import TELLING, TOLD_FIELDS, facts_of
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
        told = facts_of(info) if info else Facts(reasons=dict.fromkeys(TOLD_FIELDS, unknown), complete=False)
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


_LIVE = "running queued kv_usage generated_tok_s prompt_tok_s ttft itl prefix_hit_rate counters"
_LIVE_FIELDS = tuple(_LIVE.split())


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


async def _either(ask: Ask, new: str, old: str) -> Answer:
    """The old name only where the new one does not exist: it logs a warning on servers that have both."""
    answer = await ask(new)
    return await ask(old) if answer.code == 404 else answer
