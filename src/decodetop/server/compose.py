"""Facts, a look, rates and the process put together to one `Server`; and what is left of it when it fails. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from decodetop.server.discover import Found
from decodetop.server.engines.adapter import Facts, Look
from decodetop.server.flags import merge_flags
from decodetop.server.rates import Rates
from decodetop.server.reading import ENGINE_NAMES, Engine, Server, Status

_FACTS = tuple(name for name in Facts.__struct_fields__ if name in Server.__struct_fields__ and name != "reasons")
_LIVE = (
    "running",
    "queued",
    "kv_usage",
    "prefix_hit_rate",
    "generated_tok_s",
    "prompt_tok_s",
    "ttft",
    "itl",
    "accept_length",
    "counters",
    "figures_from",
    "scrape_ms",
)
_GAUGES = ("running", "queued", "retracted", "kv_usage")
_PROCESS = ("root_pid", "started_wall_ns", "unit", "unit_state", "gpu_indices", "gpu_uuids")

STILL_S = 3.0
"""So long without a token, a gauge that is renewed with the tokens says nothing about now."""

NOT_ASKED = "not asked yet"
NOTHING_YET = "nothing counted yet"
ELSEWHERE = "it runs on another host"
NO_PROCESS = "no process of this box is known to be it"


def placed(
    endpoint: str, engine: Engine, local: bool, found: Found | None, unit_state: tuple[str | None, str]
) -> Server:
    """What the box says of it. `unit_state`: systemd's word, or None and why."""
    if found is None:
        why = NO_PROCESS if local else ELSEWHERE
        return Server(endpoint=endpoint, engine=engine, local=local, reasons=dict.fromkeys(_PROCESS, why))
    return Server(
        endpoint=endpoint,
        engine=found.engine if engine == "unknown" else engine,
        local=local,
        root_pid=found.root_pid,
        started_wall_ns=found.started_wall_ns,
        unit=found.unit,
        unit_state=None if found.unit is None else unit_state[0],
        gpu_indices=found.gpu_indices,
        gpu_uuids=found.gpu_uuids,
        processes=found.processes,
        command=found.command,
        reasons={"unit_state": unit_state[1] if found.unit else found.reasons.get("unit", "no unit")} | found.reasons,
    )


def logged(server: Server, where: str | None, trouble: str | None) -> Server:
    """Where its log is, or why it can't be read. That none is known matters where its figures would be only."""
    if trouble is None or where is None:
        return msgspec.structs.replace(server, log=where)
    return _reasoned(server, {"log": f"{where}: {trouble}"})


def with_facts(server: Server, facts: Facts, found: Found | None, telling: tuple[str, ...]) -> Server:
    """The settings' half. The command line is what was requested; without it, what the server says it was."""
    requested = found.flags if found is not None else facts.requested
    values: dict[str, Any] = {name: getattr(facts, name) for name in _FACTS}
    flags = merge_flags(requested, facts.resolved, telling)
    return _reasoned(msgspec.structs.replace(server, **values, flags=flags), facts.reasons)


def with_look(server: Server, look: Look, rates: Rates | None, scrape_ms: float) -> Server:
    """The live half."""
    seen = rates or Rates()
    reasons = seen.reasons | look.reasons  # why a counter can't be says more than that a rate needs two of them
    gauges: dict[str, float | None] = {field: getattr(look, field) for field in _GAUGES}
    if look.gauges_stick and seen.still_s >= STILL_S and any(gauges.values()):
        told = [field for field in ("running", "queued", "kv_usage") if gauges[field] is not None]
        reasons |= dict.fromkeys(told, f"not renewed since the last token, {seen.still_s:.0f} s ago")
        gauges = dict.fromkeys(gauges)
    if look.counters is not None:
        for field in ("ttft", "itl", "prefix_hit_rate", "generated_tok_s", "prompt_tok_s"):
            reasons.setdefault(field, NOTHING_YET)
    accept = _accept_length(server, look, seen)
    if accept is None and server.reasons.get("accept_length") is None:
        reasons.setdefault("accept_length", NOTHING_YET if look.speculating else "no speculation seen")
    changed = msgspec.structs.replace(
        server,
        kv_capacity_tokens=look.kv_capacity_tokens or server.kv_capacity_tokens,
        context_length=server.context_length or look.context_length,
        prefix_hit_rate=seen.prefix_hit_rate,
        generated_tok_s=look.tok_s if rates is None else seen.generated_tok_s,
        prompt_tok_s=look.prompt_tok_s if rates is None else seen.prompt_tok_s,
        ttft=seen.ttft,
        itl=seen.itl,
        accept_length=accept,
        counters=look.counters,
        figures_from="log" if look.from_log else "metrics" if look.counters or look.running is not None else None,
        scrape_ms=scrape_ms,
        started_wall_ns=server.started_wall_ns or _started_ns(look),
        **gauges,
    )
    return _reasoned(changed, reasons)


def failed(server: Server, status: Status, message: str) -> Server:
    """What was known of it, without anything live: a figure of before is not shown as one of now."""
    values: dict[str, Any] = dict.fromkeys((*_LIVE, *_GAUGES))
    changed = msgspec.structs.replace(server, **values, status=status, status_message=message)
    why = message if status == "up" else f"the server is {status.replace('_', ' ')}"
    never = {field: why for field, reason in server.reasons.items() if reason == NOT_ASKED}
    return _reasoned(changed, never | dict.fromkeys(_LIVE, why))


def explained(server: Server) -> Server:
    """Every missing value with its word; what is off by being absent needs none."""
    known = server.engine != "unknown"
    unsaid = f"{ENGINE_NAMES[server.engine]} does not say" if known else "the engine is not known"
    needed = (set(_FACTS) | set(_LIVE)) - (_OFF_WHEN_NONE if known else set())
    absent = {field: unsaid for field in sorted(needed) if getattr(server, field) is None}
    return _reasoned(server, absent | server.reasons)


_OFF_WHEN_NONE = {"quantization", "speculative_algorithm", "speculative_steps", "speculative_draft_tokens"}


def _accept_length(server: Server, look: Look, rates: Rates) -> float | None:
    """Counted lately; else the engine's own last figure while it works; else counted since the start."""
    if server.speculative_algorithm is None and not look.speculating:
        return None
    if rates.accept_recent:
        return rates.accept_length
    return (look.accept_gauge if look.running else None) or rates.accept_length


def _started_ns(look: Look) -> int | None:
    """None too for a time no process has started at (the year 2242 and later)."""
    return int(look.started_s * 1e9) if look.started_s is not None and 0 < look.started_s < 2**33 else None


def _reasoned(server: Server, reasons: dict[str, str]) -> Server:
    """Reasons stand for what is missing only."""
    known = server.reasons | reasons
    missing = {field: why for field, why in known.items() if getattr(server, field, None) in (None, ())}
    return msgspec.structs.replace(server, reasons=missing)
