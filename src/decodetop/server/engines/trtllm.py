"""TensorRT-LLM's trtllm-serve. Its `/metrics` and `/perf_metrics` drain queues, its `/health` may end it: not asked.

Its Prometheus metrics stand at `/prometheus/metrics`, with `return_perf_metrics` in its settings only. They are few,
and count when a request ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from decodetop.server.engines.adapter import (
    Ask,
    Facts,
    Look,
    MetricTable,
    counted,
    first_model,
    histogram,
    scraped,
    text_of,
    whole_of,
)
from decodetop.server.flags import whole
from decodetop.server.reading import Engine

METRICS = MetricTable(
    ttft=("trtllm_time_to_first_token_seconds",),
    counters={"requests": ("trtllm_request_success_total",)},
)
WANTED = METRICS.wanted()

NO_METRICS = "its Prometheus metrics need return_perf_metrics, and its other ones are used up by whoever reads them"
NOT_COUNTED = "TensorRT-LLM does not count it"
PER_REQUEST = "TensorRT-LLM counts a mean a request, when it ends"
_LIVE = ("running", "queued", "kv_usage", "generated_tok_s", "prompt_tok_s", "prefix_hit_rate", "accept_length")


class TensorRT:
    engine: Engine = "trtllm"
    telling: tuple[str, ...] = ()

    async def facts(self, ask: Ask, flags: Mapping[str, str] | None) -> Facts:
        entry = first_model((await ask("/v1/models")).json())
        seen = flags or {}
        return Facts(
            version=text_of((await ask("/version")).object().get("version")),
            model=text_of(entry.get("root")) or text_of(entry.get("id")),
            served_name=text_of(entry.get("id")),
            tp=whole(seen.get("tp_size")),
            pp=whole(seen.get("pp_size")),
            ep=whole(seen.get("ep_size")),
            context_length=whole_of(entry.get("max_model_len")) or whole(seen.get("max_seq_len")),
            max_running=whole(seen.get("max_batch_size")),
        )

    async def look(self, ask: Ask, facts: Facts) -> Look:
        answer = await ask("/prometheus/metrics")
        if not answer.ok:
            await ask("/v1/models")
            return Look(basis="none", reasons=dict.fromkeys((*_LIVE, "itl", "ttft", "counters"), NO_METRICS))
        scrape = scraped(answer, WANTED)
        ttft = histogram(scrape, METRICS.ttft)
        reasons = dict.fromkeys(_LIVE, NOT_COUNTED) | {"itl": PER_REQUEST}
        return Look(
            basis="counters",
            counters=counted(scrape, METRICS, ttft, None, reasons),
            ttft=ttft,
            reasons=reasons,
        )
