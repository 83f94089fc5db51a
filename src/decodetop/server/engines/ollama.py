"""Ollama: which model is loaded and how much of it is on the GPU. It exports no counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodetop.server.engines.adapter import Ask, Facts, Look, text_of, whole_of
from decodetop.server.reading import Engine

NO_METRICS = "Ollama exports no metrics"
_LIVE = (
    "running",
    "queued",
    "kv_usage",
    "kv_capacity_tokens",
    "generated_tok_s",
    "prompt_tok_s",
    "ttft",
    "itl",
    "counters",
)


class Ollama:
    engine: Engine = "ollama"
    telling: tuple[str, ...] = ("share_on_gpu",)

    async def facts(self, ask: Ask, flags: Mapping[str, str] | None) -> Facts:
        version = text_of((await ask("/api/version")).object().get("version"))
        loaded = (await ask("/api/ps")).object().get("models")
        model = loaded[0] if isinstance(loaded, list) and loaded and isinstance(loaded[0], dict) else None
        if model is None:
            return Facts(version=version, reasons={"model": "no model is loaded"}, complete=False)
        details = model.get("details")
        level = text_of(details.get("quantization_level")) if isinstance(details, dict) else None
        return Facts(
            version=version,
            model=text_of(model.get("name")),
            served_name=text_of(model.get("name")),
            quantization=level,
            context_length=whole_of(model.get("context_length")),
            resolved=_share_on_gpu(model),
            reasons={} if level else {"quantization": "Ollama does not say"},
            # models come and go without a restart: ask again soon
            complete=False,
        )

    async def look(self, ask: Ask, facts: Facts) -> Look:
        await ask("/api/version")
        return Look(basis="none", reasons=dict.fromkeys(_LIVE, NO_METRICS))


def _share_on_gpu(model: Mapping[str, Any]) -> dict[str, str]:
    """`size_vram` below `size` means that a part runs on the CPU."""
    size, on_gpu = whole_of(model.get("size")), whole_of(model.get("size_vram"))
    return {"share_on_gpu": f"{on_gpu / size:.0%}"} if size and on_gpu is not None else {}
