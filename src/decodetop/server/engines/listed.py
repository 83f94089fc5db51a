"""Servers that only list their models as OpenAI does: nothing more is asked of what is not known."""

from __future__ import annotations

from collections.abc import Mapping

from decodetop.server.engines.adapter import Ask, Facts, Look, first_model, text_of, whole_of
from decodetop.server.reading import Engine

UNKNOWN = "an engine decodetop does not know"
_LIVE = ("running", "queued", "kv_usage", "generated_tok_s", "prompt_tok_s", "ttft", "itl", "counters")


class Listed:
    engine: Engine = "unknown"
    telling: tuple[str, ...] = ()

    async def facts(self, ask: Ask, flags: Mapping[str, str] | None) -> Facts:
        entry = first_model((await ask("/v1/models")).json())
        return Facts(
            model=text_of(entry.get("root")) or text_of(entry.get("id")),
            served_name=text_of(entry.get("id")),
            context_length=whole_of(entry.get("max_model_len")),
        )

    async def look(self, ask: Ask, facts: Facts) -> Look:
        await ask("/v1/models")
        return Look(basis="none", reasons=dict.fromkeys(_LIVE, UNKNOWN))
