"""Is the server ready to be measured? A list of checks with a word each. Pure.

What can't be told is `unknown` with its reason and fails nothing; whether one generation works is tried on demand only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from decodetop.core.clock import SECOND_NS
from decodetop.core.state import State
from decodetop.core.words import UNKNOWN, duration, gib, percent
from decodetop.findings.owners import gpus_of
from decodetop.findings.rules import MEMORY_FREE_SHARE
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.server.reading import ENGINE_NAMES, Server

Verdict = Literal["ok", "bad", "unknown"]
NOT_TRIED = "not tried: C, or decodetop server --preflight --generate"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """`detail` is the number or the name behind the word, or why it can't be told."""

    name: str
    verdict: Verdict
    detail: str


def preflight(state: State, server: Server) -> tuple[Check, ...]:
    """In the order in which one check rests on those before it."""
    return (
        _process(server),
        _unit(server),
        _port(server),
        _identity(server),
        _model(server),
        _generates(state, server),
        _figures(server),
        *_headroom(server, state.last("gpu", GpuReading)),
    )


def _check(name: str, good: bool | None, detail: str) -> Check:
    return Check(name=name, verdict="unknown" if good is None else "ok" if good else "bad", detail=detail)


def _process(server: Server) -> Check:
    if server.root_pid is None:
        return _check("process", None, server.reasons.get("root_pid", "not seen"))
    children = len(server.processes) - 1
    return _check("process", bool(server.processes), f"pid {server.root_pid} and {max(children, 0)} children")


def _unit(server: Server) -> Check:
    """As systemd says; where it can't be asked, a unit whose process runs is active."""
    if server.unit is None:
        return _check("unit", None, server.reasons.get("unit", "none known"))
    if server.unit_state is not None:
        return _check("unit", server.unit_state == "active", f"{server.unit} is {server.unit_state}")
    return _check("unit", server.status != "down", f"{server.unit}, its process runs in it")


def _port(server: Server) -> Check:
    answers = server.status in ("up", "needs_key")
    detail = server.endpoint if answers else f"{server.endpoint} {server.status_message or server.status}"
    return _check("port", answers or server.status in ("hung", "not_a_server"), detail)


def _identity(server: Server) -> Check:
    if server.status == "not_a_server":
        return _check("identity", False, server.status_message or "something else answers")
    if server.engine == "unknown":
        return _check("identity", None, server.reasons.get("version", "it does not say what it is"))
    return _check("identity", True, f"{ENGINE_NAMES[server.engine]} {server.version or ''}".strip())


def _model(server: Server) -> Check:
    if server.status == "needs_key":
        return _check("model", None, server.status_message or "told to those with a key only")
    named = server.served_name or server.model
    return _check("model", named is not None if server.status == "up" else None, named or "none listed")


def _generates(state: State, server: Server) -> Check:
    seen = server.generation
    if seen is None:
        return _check("generates", None, NOT_TRIED)
    if seen.took_ms is None:
        return _check("generates", False, seen.error or "it failed")
    ago_s = (state.now_ns - seen.t_ns) / SECOND_NS
    return _check("generates", True, f"one token in {seen.took_ms:.0f} ms, {duration(max(ago_s, 0.0))} ago")


def _figures(server: Server) -> Check:
    if server.figures_from == "log":
        return _check("figures", True, f"no counters; from its log, {server.log or 'somewhere'}")
    if server.counters is None:
        return _check("figures", None, server.reasons.get("counters", "no counters"))
    took = "" if server.scrape_ms is None else f", read in {server.scrape_ms:.0f} ms"
    return _check("figures", True, f"counters{took}")


def _headroom(server: Server, reading: GpuReading | None) -> Iterator[Check]:
    owned = gpus_of(server, reading)
    if not owned:
        why = "it runs on another host" if not server.local else "its GPUs are not known"
        yield _check("GPU memory", None, why if reading is not None else "no GPU was read")
        return
    for gpu in owned:
        yield _free(gpu)


def _free(gpu: Gpu) -> Check:
    name, free, total = f"GPU {gpu.index} memory", gpu.memory_free_bytes, gpu.memory_total_bytes
    if gpu.state != "ok":
        return _check(name, False, gpu.state_message or gpu.state)
    if free is None or not total:
        return _check(name, None, gpu.reasons.get("memory_free_bytes", UNKNOWN))
    share = percent(100 * free / total, 1)
    return _check(name, free >= MEMORY_FREE_SHARE * total, f"{gib(free)} of {gib(total)} GiB free ({share})")


def lines(checks: tuple[Check, ...]) -> list[str]:
    """`ok       port        http://127.0.0.1:30000`."""
    return [f"{check.verdict:<8} {check.name:<14} {check.detail}" for check in checks]
