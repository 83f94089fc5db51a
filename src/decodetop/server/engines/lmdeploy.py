"""LMDeploy: vLLM-like metric names under `lmdeploy:`. A GET of its `/terminate` ends it: never on the list."""

from __future__ import annotations

from collections.abc import Mapping

from decodetop.server.engines.adapter import (
    Ask,
    Facts,
    Look,
    MetricTable,
    count,
    counted,
    first_model,
    gauge,
    histogram,
    scraped,
    share,
    text_of,
    whole_of,
)
from decodetop.server.flags import whole
from decodetop.server.reading import Engine

METRICS = MetricTable(
    running=("lmdeploy:num_requests_running",),
    queued=("lmdeploy:num_requests_waiting",),
    kv_usage=("lmdeploy:gpu_cache_usage_perc",),
    ttft=("lmdeploy:time_to_first_token_seconds",),
    itl=("lmdeploy:inter_token_latency_seconds", "lmdeploy:time_per_output_token_seconds"),
    counters={
        "generated_tokens": ("lmdeploy:generation_tokens_total",),
        "prompt_tokens": ("lmdeploy:prompt_tokens_total",),
        "requests": ("lmdeploy:request_success_total",),
        "spec_drafts": ("lmdeploy:spec_decode_num_drafts_total",),
        "spec_accepted_tokens": ("lmdeploy:spec_decode_num_accepted_tokens_total",),
        "spec_draft_tokens": ("lmdeploy:spec_decode_num_draft_tokens_total",),
    },
    accepted_per_position=("lmdeploy:spec_decode_num_accepted_tokens_per_pos_total",),
)
WANTED = METRICS.wanted()


class LMDeploy:
    engine: Engine = "lmdeploy"
    telling: tuple[str, ...] = ()

    async def facts(self, ask: Ask, flags: Mapping[str, str] | None) -> Facts:
        entry = first_model((await ask("/v1/models")).json())
        seen = flags or {}
        return Facts(
            model=text_of(seen.get("model_path")) or text_of(entry.get("id")),
            served_name=text_of(entry.get("id")),
            tp=None if flags is None else whole(flags.get("tp")) or 1,
            context_length=whole_of(entry.get("max_model_len")) or whole(seen.get("session_len")),
            max_running=whole(seen.get("max_batch_size")),
            reasons={"version": "LMDeploy does not say over HTTP"},
        )

    async def look(self, ask: Ask, facts: Facts) -> Look:
        scrape = scraped(await ask("/metrics"), WANTED)
        reasons: dict[str, str] = {}
        ttft, itl = histogram(scrape, METRICS.ttft), histogram(scrape, METRICS.itl)
        counters = counted(scrape, METRICS, ttft, itl, reasons)
        return Look(
            basis="counters",
            running=count(gauge(scrape, METRICS.running, "running", reasons)),
            queued=count(gauge(scrape, METRICS.queued, "queued", reasons)),
            kv_usage=share(scrape, METRICS.kv_usage, "kv_usage", reasons),
            counters=counters,
            ttft=ttft,
            itl=itl,
            itl_per_event=bool(counters.spec_drafts),
            speculating=bool(counters.spec_drafts),
            reasons=reasons,
        )
