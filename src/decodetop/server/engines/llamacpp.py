"""llama.cpp's llama-server, as vendored in 2026-10.

Live is `/slots` (`n_decoded` per task); `tokens_predicted_total` moves when a slot is reset, and the two throughput
gauges are reset by whoever scrapes, so they are not read. `/slots` wakes a model put to sleep by
`--sleep-idle-seconds`: it is then left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decodetop.server.client import NoAnswer
from decodetop.server.engines.adapter import (
    Ask,
    Facts,
    Look,
    MetricTable,
    count,
    dtype_word,
    first_model,
    gauge,
    odd_counts,
    per_position,
    text_of,
    total,
    whole_of,
)
from decodetop.server.flags import whole
from decodetop.server.metrics import IMPOSSIBLE, Histogram, Scrape, parse
from decodetop.server.reading import Counters, Engine

METRICS = MetricTable(
    running=("llamacpp:requests_processing",),
    queued=("llamacpp:requests_deferred",),
    counters={
        "prompt_tokens": ("llamacpp:prompt_tokens_total",),
        "cached_tokens": ("llamacpp:prompt_tokens_cached_total",),
        "itl_sum_s": ("llamacpp:tokens_predicted_seconds_total",),
        "itl_count": ("llamacpp:tokens_predicted_total",),
        "spec_drafts": ("llamacpp:spec_decode_num_drafts_total",),
        "spec_accepted_tokens": ("llamacpp:spec_decode_num_accepted_tokens_total",),
        "spec_draft_tokens": ("llamacpp:spec_decode_num_draft_tokens_total",),
        "finished_tokens": ("llamacpp:tokens_predicted_total",),
    },
    accepted_per_position=("llamacpp:spec_decode_num_accepted_tokens_per_pos_total",),
)
WANTED = METRICS.wanted()

NO_METRICS = "started without --metrics"
ASLEEP = "the model sleeps (--sleep-idle-seconds); asking its slots would wake it"
NO_SLOTS = "started with --no-slots"
BUSY = "busy with a long prompt: slots and metrics wait behind it"


class LlamaCpp:
    """Keeps the task of each slot between two looks: the tokens of a task are counted while it runs."""

    engine: Engine = "llamacpp"
    telling: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._decoded: dict[tuple[int, int], float] | None = None
        self._generated = 0.0

    async def facts(self, ask: Ask, flags: Mapping[str, str] | None) -> Facts:
        entry = first_model((await ask("/v1/models")).json())
        props = (await ask("/props")).object()
        defaults = props.get("default_generation_settings")
        slots = whole_of(props.get("total_slots"))
        reasons = {
            "attention_backend": "llama.cpp has one",
            "cuda_graph": "llama.cpp does not say",
            "kv_capacity_tokens": "llama.cpp does not say",
        }
        if flags is None or "cache_type_k" not in flags:
            reasons["kv_dtype"] = "not asked for: f16 unless it was built otherwise"
        draft = None if flags is None else text_of(flags.get("model_draft"))
        if flags is None:
            reasons["speculative_algorithm"] = "only its command line says it, and that can't be seen from here"
        return Facts(
            version=text_of(props.get("build_info")),
            model=text_of(props.get("model_path")) or text_of(entry.get("id")),
            served_name=text_of(entry.get("id")),
            kv_dtype=None if flags is None else dtype_word(flags.get("cache_type_k"), "kv_dtype", {}),
            speculative_algorithm=draft and "draft model",
            speculative_draft_tokens=None if flags is None else whole(flags.get("draft_max")),
            context_length=whole_of(defaults.get("n_ctx")) if isinstance(defaults, dict) else None,
            max_running=slots,
            resolved={"parallel": str(slots)} if slots is not None else {},
            reasons=reasons,
        )

    async def look(self, ask: Ask, facts: Facts) -> Look:
        props = (await ask("/props")).object()
        if props.get("is_sleeping") is True:
            self._decoded = None
            return Look(basis="asleep", running=0, queued=0, reasons=dict.fromkeys(_LIVE, ASLEEP))
        try:
            slots, scrape = await ask("/slots"), await ask("/metrics")
        except NoAnswer as no:
            if no.status == "hung" and (await ask("/health")).ok:
                self._decoded = None
                return Look(basis="busy", reasons=dict.fromkeys(_LIVE, BUSY))
            raise
        found = slots.json() if slots.ok else None
        metrics = parse(scrape.text(), WANTED) if scrape.ok else None
        return self.look_at(found if isinstance(found, list) else None, metrics)

    def look_at(self, slots: list[Any] | None, metrics: Scrape | None) -> Look:
        """From the bodies of `/slots` and `/metrics`, None where it was refused."""
        reasons = {"kv_usage": "llama.cpp does not say"}
        busy = [slot for slot in slots or () if isinstance(slot, dict) and slot.get("is_processing") is True]
        if slots is None:
            reasons["generated_tok_s"] = NO_SLOTS
        values: dict[str, float | None] = {}
        if metrics is None:
            reasons |= dict.fromkeys(("queued", "itl", "ttft", "prompt_tok_s", "prefix_hit_rate"), NO_METRICS)
        else:
            values = {field: total(metrics, names) for field, names in METRICS.counters.items()}
            reasons["ttft"] = "llama.cpp has no such metric"
            odd_counts(metrics, METRICS, reasons)
        running = len(busy) if slots is not None else None
        positions = () if metrics is None else per_position(metrics, METRICS.accepted_per_position)
        generated = self._count(slots)
        counters = Counters(**values, generated_tokens=generated, spec_accepted_per_position=positions)
        spent_s, tokens = counters.itl_sum_s, counters.itl_count
        return Look(
            basis="slots" if slots is not None else "metrics",
            running=running if metrics is None else count(gauge(metrics, METRICS.running, "running", reasons)),
            queued=None if metrics is None else count(gauge(metrics, METRICS.queued, "queued", reasons)),
            counters=counters,
            itl=Histogram(sum_s=spent_s, count=tokens) if spent_s is not None and tokens is not None else None,
            speculating=bool(counters.spec_drafts),
            reasons=reasons,
        )

    def _count(self, slots: list[Any] | None) -> float | None:
        """Tokens decoded since the first look. What a task decodes between the last look and its end is not seen."""
        if slots is None:
            self._decoded = None
            return None
        decoded = {key: tokens for slot in slots if (found := _decoded_of(slot)) for key, tokens in (found,)}
        if self._decoded is not None:
            self._generated += sum(max(0.0, tokens - self._decoded.get(key, 0.0)) for key, tokens in decoded.items())
        self._decoded = decoded
        return self._generated


_LIVE = ("kv_usage", "generated_tok_s", "prompt_tok_s", "ttft", "itl", "prefix_hit_rate")


def _decoded_of(slot: object) -> tuple[tuple[int, int], float] | None:
    """(slot, task) and its tokens. `next_token` is a list in the code and an object in the documentation."""
    if not isinstance(slot, dict):
        return None
    told = slot.get("next_token")
    told = told[0] if isinstance(told, list) and told else told
    tokens = told.get("n_decoded") if isinstance(told, dict) else None
    task, number = whole_of(slot.get("id_task")), whole_of(slot.get("id"))
    if number is None or task is None or not isinstance(tokens, (int, float)) or not 0 <= tokens < IMPOSSIBLE:
        return None
    return (number, task), float(tokens)
