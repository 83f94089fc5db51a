"""Servers of which little may be asked: TensorRT-LLM (its `/metrics` and `/perf_metrics` drain queues), and any
other that lists models as OpenAI does."""

from __future__ import annotations

from collections.abc import Mapping

from decodetop.server.engines.adapter import Ask, Facts, Look, first_model, text_of, whole_of
from decodetop.server.reading import Engine

DRAINS = "TensorRT-LLM's metrics are used up by whoever reads them: not asked"
UNKNOWN = "an engine decodetop does not know"
_LIVE = ("running", "queued", "kv_usage", "generated_tok_s", "prompt_tok_s", "ttft", "itl", "counters")


class Listed:
    telling: tuple[str, ...] = ()

    def __init__(self, engine: Engine) -> None:
        self.engine: Engine = engine

    async def facts(self, ask: Ask, flags: Mapping[str, str] | None) -> Facts:
        entry = first_model((await ask("/v1/models")).json())
        version = (await ask("/version")).object().get("version") if self.engine == "trtllm" else None
        return Facts(
            version=text_of(version),
            model=text_of(entry.get("root")) or text_of(entry.get("id")),
            served_name=text_of(entry.get("id")),
            context_length=whole_of(entry.get("max_model_len")),
        )

    async def look(self, ask: Ask, facts: Facts) -> Look:
        await ask("/v1/models")
        return Look(basis="none", reasons=dict.fromkeys(_LIVE, DRAINS if self.engine == "trtllm" else UNKNOWN))
