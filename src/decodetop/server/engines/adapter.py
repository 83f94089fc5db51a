"""What an engine's adapter gives: facts that rarely change, a look at what it does now, and how to get them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from decodetop.server.client import Answer, NoAnswer
from decodetop.server.flags import clipped, whole
from decodetop.server.log import DecodeLine
from decodetop.server.metrics import EMPTY, IMPOSSIBLE, Histogram, Scrape, parse, wanted_names
from decodetop.server.reading import Counters, Engine
from decodetop.server.redact import redact_text

Ask = Callable[[str], Awaitable[Answer]]
"""GET one of the engine's safe paths. Raises client.NoAnswer."""

NO_SPECULATION = "no speculation"
AUTO = "auto: taken from the model's own configuration"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The half of `reading.Server` that changes with a restart only; names and units are the same.

    `resolved` are settings in force by canonical flag name, `requested` the flags asked for where the server tells
    (its command line, when seen, is better). `dtype_auto`: the model's own dtype decides what is None here.
    """

    version: str | None = None
    model: str | None = None
    served_name: str | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    quantization: str | None = None
    weights_dtype: str | None = None
    kv_dtype: str | None = None
    attention_backend: str | None = None
    cuda_graph: bool | None = None
    cuda_graph_max_batch: int | None = None
    cuda_graph_batches: tuple[int, ...] = ()
    speculative_algorithm: str | None = None
    speculative_steps: int | None = None
    speculative_draft_tokens: int | None = None
    context_length: int | None = None
    kv_capacity_tokens: int | None = None
    kv_pool_bytes: int | None = None
    max_running: int | None = None
    resolved: dict[str, str] = {}
    requested: dict[str, str] = {}
    reasons: dict[str, str] = {}
    complete: bool = True


_NO_FACTS = ("resolved", "requested", "reasons", "complete")


def unlearnt(why: str) -> Facts:
    """Facts of a server that was not or could not be asked for them."""
    fields = (name for name in Facts.__struct_fields__ if name not in _NO_FACTS)
    return Facts(reasons=dict.fromkeys(fields, why), complete=False)


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one poll saw. `basis` names the counters, so that rates never span two of them.

    `tok_s` and `prompt_tok_s` are told by a log (`from_log`), for want of counters.
    `accept_gauge` is the engine's own last accept length; `itl_per_event` as in `rates.Tally`.
    `gauges_stick`: running, queued and KV use are renewed while tokens flow and keep their last value after.
    """

    basis: str
    running: int | None = None
    queued: int | None = None
    retracted: int | None = None
    kv_usage: float | None = None
    kv_capacity_tokens: int | None = None
    context_length: int | None = None
    counters: Counters | None = None
    ttft: Histogram | None = None
    itl: Histogram | None = None
    itl_per_event: bool = False
    accept_gauge: float | None = None
    gauges_stick: bool = False
    started_s: float | None = None
    speculating: bool = False
    tok_s: float | None = None
    prompt_tok_s: float | None = None
    from_log: bool = False
    reasons: dict[str, str] = {}


_LIVE = "running queued kv_usage prefix_hit_rate generated_tok_s prompt_tok_s ttft itl accept_length counters"
QUIET = "its log has no new decode line: idle, or quiet"


def look_by_log(line: DecodeLine | None, why: str, trouble: str | None = None, told: Look | None = None) -> Look:
    """The live half of a server without metrics (`why`), from its log's newest decode line; `trouble` is why the log
    can't be read. What it `told` itself goes before its log."""
    if line is None:
        no_line = QUIET if trouble is None else f"its log can't be read: {trouble}"
        reasons = dict.fromkeys(_LIVE.split(), f"{why}; {no_line}")
        return Look(basis="none", reasons=reasons) if told is None else msgspec.structs.replace(told, reasons=reasons)
    by_line = _by_line(line, why)
    if told is None:
        return by_line
    gauges = ("running", "queued", "kv_usage", "accept_gauge")
    known = {field: getattr(told, field) for field in gauges if getattr(told, field) is not None}
    speculating = told.speculating or by_line.speculating
    capacity = told.kv_capacity_tokens
    return msgspec.structs.replace(by_line, **known, kv_capacity_tokens=capacity, speculating=speculating)


def _by_line(line: DecodeLine, why: str) -> Look:
    return Look(
        basis="none",
        from_log=True,
        running=line.running,
        queued=line.queued,
        kv_usage=line.kv_usage,
        accept_gauge=line.accept_length,
        speculating=bool(line.accept_length),
        tok_s=line.tok_s,
        prompt_tok_s=line.prompt_tok_s,
        reasons=dict.fromkeys(_LIVE.split(), f"{why}, and its log does not say"),
    )


class Adapter(Protocol):
    """One engine. An instance serves one server: it may keep what it needs between two looks."""

    engine: Engine
    telling: tuple[str, ...]
    """Resolved settings worth showing although nobody typed them."""

    async def facts(self, ask: Ask, flags: Mapping[str, str] | None) -> Facts:
        """`flags` is the command line by canonical name, None if it can't be seen. Raises NoAnswer."""

    async def look(self, ask: Ask, facts: Facts) -> Look:
        """Raises NoAnswer."""


class MetricTable(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's metrics by meaning: aliases newest first; a name may carry one `{label=value}` filter."""

    running: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    kv_usage: tuple[str, ...] = ()
    kv_capacity_tokens: tuple[str, ...] = ()
    context_length: tuple[str, ...] = ()
    ttft: tuple[str, ...] = ()
    itl: tuple[str, ...] = ()
    counters: Mapping[str, tuple[str, ...]] = {}
    accepted_per_position: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    def wanted(self) -> frozenset[str]:
        gauges = (*self.running, *self.queued, *self.kv_usage, *self.kv_capacity_tokens, *self.context_length)
        counted = [name for names in self.counters.values() for name in names]
        plain = {name.partition("{")[0] for name in (*gauges, *counted, *self.accepted_per_position, *self.also)}
        return wanted_names(plain, (*self.ttft, *self.itl))


def total(scrape: Scrape, names: tuple[str, ...]) -> float | None:
    """The first alias the scrape has, added over what shares the work."""
    for name in names:
        plain, where = _filter(name)
        value = scrape.total(plain, **where)
        if value is not None:
            return value
    return None


def per_position(scrape: Scrape, names: tuple[str, ...]) -> tuple[float, ...]:
    """Of the first alias that has samples labelled `position`: its values in their order, added over what shares the
    work; empty without."""
    for name in names:
        found: dict[int, float] = {}
        for point in scrape.points(name):
            position = point.labels.get("position", "")
            if len(position) < 4 and position.isdecimal() and 0 <= point.value < IMPOSSIBLE:
                found[int(position)] = found.get(int(position), 0.0) + point.value
        if found and sorted(found) == list(range(len(found))):
            return tuple(found[position] for position in range(len(found)))
    return ()


def histogram(scrape: Scrape, names: tuple[str, ...]) -> Histogram | None:
    return next((found for name in names if (found := scrape.histogram(name)) is not None), None)


def gauge(scrape: Scrape, names: tuple[str, ...], field: str, reasons: dict[str, str]) -> float | None:
    """As `total`; when there is none, `reasons[field]` says why."""
    value = total(scrape, names)
    if value is None:
        odd = impossible(scrape, names)
        if odd is not None:
            reasons[field] = f"the engine reports {odd}, which can't be"
        else:
            more = f" ({scrape.unreadable} lines of the scrape can't be read)" if scrape.unreadable else ""
            reasons[field] = f"no metric {names[0]}{more}"
    return value


def share(scrape: Scrape, names: tuple[str, ...], field: str, reasons: dict[str, str]) -> float | None:
    """A 0..1 gauge, the mean over equal shares; outside 0..1 it is None with the odd value as reason."""
    for name in names:
        value = scrape.mean(name)
        if value is not None:
            if 0 <= value <= 1:
                return value
            reasons[field] = f"the engine reports {value:g}, not a share of 1"
            return None
    return gauge(scrape, names, field, reasons)


def count(value: float | None) -> int | None:
    return None if value is None else int(value)


def impossible(scrape: Scrape, names: tuple[str, ...]) -> str | None:
    """The first value of these that can't be, where none of them can."""
    if total(scrape, names) is not None:
        return None
    return next((odd for name in names if (odd := scrape.impossible(_filter(name)[0]))), None)


FIGURES: Mapping[str, tuple[str, ...]] = {
    "generated_tokens": ("generated_tok_s",),
    "prompt_tokens": ("prompt_tok_s", "prefix_hit_rate"),
    "cached_tokens": ("prefix_hit_rate",),
    "spec_drafts": ("accept_length",),
    "spec_accepted_tokens": ("accept_length",),
    "itl_sum_s": ("itl",),
    "itl_count": ("itl",),
}
"""What is reckoned from a counter."""


def odd_counts(scrape: Scrape, table: MetricTable, reasons: dict[str, str]) -> None:
    """Say of each figure which counter it is missing for, where that can't be: it is not that nothing came."""
    sources = {field: names for field, names in table.counters.items() if field in FIGURES}
    for field, histograms in (("itl_count", table.itl), ("ttft", table.ttft)):
        parts = tuple(f"{name}{part}" for part in ("_count", "_sum") for name in histograms)
        if histogram(scrape, histograms) is None and parts:
            odd_count(scrape, parts, FIGURES.get(field, (field,)), reasons)
    for field, names in sources.items():
        odd_count(scrape, names, FIGURES[field], reasons)


def odd_count(scrape: Scrape, names: tuple[str, ...], figures: tuple[str, ...], reasons: dict[str, str]) -> None:
    """As `odd_counts`, of one counter."""
    for name in names:
        odd = impossible(scrape, (name,))
        if odd is not None:
            why = f"the engine reports {odd} for {_filter(name)[0]}, which can't be"
            reasons.update(dict.fromkeys(figures, why))
            return


def counted(
    scrape: Scrape, table: MetricTable, ttft: Histogram | None, itl: Histogram | None, reasons: dict[str, str]
) -> Counters:
    """The counters of the table and the sums of both histograms; `reasons` for those that can't be."""
    odd_counts(scrape, table, reasons)
    values = {field: total(scrape, names) for field, names in table.counters.items()}
    first, gap = ttft or EMPTY, itl or EMPTY
    return Counters(
        **values,
        spec_accepted_per_position=per_position(scrape, table.accepted_per_position),
        ttft_sum_s=first.sum_s if ttft else None,
        ttft_count=first.count if ttft else None,
        itl_sum_s=gap.sum_s if itl else None,
        itl_count=gap.count if itl else None,
    )


def scraped(answer: Answer, wanted: frozenset[str]) -> Scrape:
    """Raises NoAnswer if `/metrics` did not give a scrape."""
    if not answer.ok:
        raise NoAnswer("down" if answer.code in (502, 503, 504) else "up", f"/metrics answered {answer.code}")
    if b"\0" in answer.body or "\ufffd" in answer.text():
        raise NoAnswer("up", "/metrics answered bytes that are no text")
    scrape = parse(answer.text(), wanted)
    if scrape.empty and answer.content_type.startswith("text/html"):
        raise NoAnswer("not_a_server", "/metrics answered a web page")
    return scrape


def first_model(listed: Any) -> Mapping[str, Any]:
    """The first entry of `/v1/models`; empty if the answer is no such list."""
    data = listed.get("data") if isinstance(listed, dict) else None
    return data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}


def text_of(value: object) -> str | None:
    """A non-empty string without keys, or None; of a very long one its begin."""
    return redact_text(clipped(value)) if isinstance(value, str) and value else None


def whole_of(value: object) -> int | None:
    """A whole number, also when it came as text; None for what no count and no size is."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value < IMPOSSIBLE else None
    return whole(value) if isinstance(value, str) else None


_DTYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
}


def dtype_word(value: object, field: str, reasons: dict[str, str]) -> str | None:
    """`bf16`, `fp16`, `fp8_e4m3`...; None (and a reason) for `auto` and for nothing."""
    word = text_of(value)
    if word is None:
        reasons[field] = "not told"
        return None
    word = word.removeprefix("torch.").lower()
    if word == "auto":
        reasons[field] = AUTO
        return None
    return _DTYPES.get(word, word)


def _filter(name: str) -> tuple[str, dict[str, str]]:
    """`metric{label=value}` -> the metric's name and the filter."""
    plain, _, rest = name.partition("{")
    label, _, value = rest.rstrip("}").partition("=")
    return plain, {label: value} if label else {}
