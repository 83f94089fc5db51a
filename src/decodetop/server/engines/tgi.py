"""Text Generation Inference (in maintenance mode): `/info` and two gauges."""

from __future__ import annotations

from collections.abc import Mapping

from decodetop.server.engines.adapter import (
    Ask,
    Facts,
    Look,
    MetricTable,
    count,
    dtype_word,
    gauge,
    scraped,
    text_of,
    whole_of,
)
from decodetop.server.reading import Engine

METRICS = MetricTable(running=("tgi_batch_current_size",), queued=("tgi_queue_size",))
WANTED = METRICS.wanted()
AT_END = "TGI counts when a request ends"


class TGI:
    engine: Engine = "tgi"
    telling: tuple[str, ...] = ()

    async def facts(self, ask: Ask, flags: Mapping[str, str] | None) -> Facts:
        info = (await ask("/info")).object()
        reasons: dict[str, str] = {}
        return Facts(
            version=text_of(info.get("version")),
            model=text_of(info.get("model_id")),
            served_name=text_of(info.get("model_id")),
            weights_dtype=dtype_word(info.get("model_dtype"), "weights_dtype", reasons),
            context_length=whole_of(info.get("max_total_tokens")),
            max_running=whole_of(info.get("max_concurrent_requests")),
            reasons=reasons,
        )

    async def look(self, ask: Ask, facts: Facts) -> Look:
        scrape = scraped(await ask("/metrics"), WANTED)
        reasons = dict.fromkeys(("generated_tok_s", "prompt_tok_s", "ttft", "itl", "counters"), AT_END)
        return Look(
            basis="none",
            running=count(gauge(scrape, METRICS.running, "running", reasons)),
            queued=count(gauge(scrape, METRICS.queued, "queued", reasons)),
            reasons=reasons | {"kv_usage": "TGI does not say"},
        )
