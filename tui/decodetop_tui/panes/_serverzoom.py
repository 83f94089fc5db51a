"""The server over the whole screen: all servers, latencies, settings, flags asked for and in force, processes."""

from __future__ import annotations

from decodetop.core import words
from decodetop.core.clock import SECOND_NS
from decodetop.core.state import State
from decodetop.server.reading import ENGINE_NAMES, Flag, Latency, Server, ServerReading
from decodetop_tui.paint import Span, View
from decodetop_tui.panes import server as pane
from decodetop_tui.panes._cells import wrap
from decodetop_tui.panes._page import INDENT, Page
from decodetop_tui.panes._table import Column, Pair, Table, columns, pair

_SERVERS = (
    Column("mark", "", 1, 99),
    Column("endpoint", "endpoint", 24, 95, "<", grow=16),
    Column("status", "state", 16, 90, "<"),
    Column("engine", "engine", 14, 80, "<", grow=6),
    Column("tok_s", "tok/s", 7, 75),
    Column("running", "running", 7, 60),
    Column("queued", "queued", 6, 60),
    Column("model", "model", 16, 50, "<", grow=60),
)
_FLAGS = (
    Column("mark", "", 1, 99),
    Column("name", "flag", 28, 90, "<", grow=12),
    Column("requested", "asked for", 18, 80, "<", grow=40),
    Column("resolved", "in force", 18, 80, "<", grow=40),
)


def draw(page: Page, state: State, reading: ServerReading, server: Server, view: View) -> None:
    """Servers, figures, settings, flags, processes; in flags mode the flags stand first."""
    if len(reading.servers) > 1:
        _servers(page, reading)
        page.blank()
    if pane.MODES[view.mode % len(pane.MODES)] == "flags":
        _flags(page, server, view)
        return
    page.extend(columns([_live(server), _latency(server), _settings(state, server)], view.width))
    page.add(*pane.past_line(state, server, view.width))
    _flags(page, server, view)
    _processes(page, server)
    _unknown(page, server)


def _servers(page: Page, reading: ServerReading) -> None:
    table = Table(_SERVERS, page.width, headed=True)
    page.add(*table.header())
    for server in reading.servers:
        word, style, _ = pane.STATUS[server.status]
        cells: dict[str, Span | str] = {
            "mark": Span("▶" if server.endpoint == reading.current else "", "key"),
            "endpoint": server.endpoint,
            "status": Span(word, style),
            "engine": f"{ENGINE_NAMES[server.engine]} {server.version or ''}",
            "tok_s": words.significant(server.generated_tok_s),
            "running": words.number_plain(server.running),
            "queued": words.number_plain(server.queued),
            "model": server.served_name or server.model or words.UNKNOWN,
        }
        page.add(*table.row(cells), row=f"server:{server.endpoint}")


def _live(server: Server) -> list[Pair]:
    kv = None if server.kv_usage is None else 100 * server.kv_usage
    hit = None if server.prefix_hit_rate is None else 100 * server.prefix_hit_rate
    return [
        pair("decode", words.significant(server.generated_tok_s), "tok/s", 7, "loud"),
        pair("prefill", words.significant(server.prompt_tok_s), "tok/s", 7),
        pair("running", words.number_plain(server.running), _of(server.max_running), 7),
        pair("queued", words.number_plain(server.queued), "", 7),
        pair("KV used", words.number(kv, 1), "%", 7),
        pair("KV capacity", words.number(server.kv_capacity_tokens), "tokens", 7),
        pair("prefix hits", words.number(hit, 1), "%", 7),
        pair("accept length", words.number(server.accept_length, 2), "tokens/step", 7),
        pair("preemptions", words.number(server.counters.preemptions if server.counters else None), "", 7),
    ]


def _of(most: int | None) -> str:
    return "" if most is None else f"of {most} at most"


def _latency(server: Server) -> list[Pair]:
    return [
        *_quantiles("ITL", server.itl),
        *_quantiles("TTFT", server.ttft),
        pair("scrape", words.number(server.scrape_ms, 1), "ms", 7),
    ]


def _quantiles(name: str, latency: Latency | None) -> list[Pair]:
    if latency is None:
        return [pair(f"{name} mean", words.UNKNOWN, "ms", 7)]
    over = "since start" if latency.over_s is None else f"last {words.duration(latency.over_s)}"
    return [
        pair(f"{name} mean", words.significant(latency.mean_ms), f"ms, {over}", 7),
        pair(f"{name} p50 up to", words.significant(latency.p50_ms), "ms", 7),
        pair(f"{name} p99 up to", words.significant(latency.p99_ms), "ms", 7),
        pair(f"{name} count", words.compact(latency.count), "", 7),
    ]


def _settings(state: State, server: Server) -> list[Pair]:
    up_ns = None if server.started_wall_ns is None else state.wall_ns - server.started_wall_ns
    parallel = " ".join(
        f"{name}{size}"
        for name, size in (("TP", server.tp), ("PP", server.pp), ("DP", server.dp), ("EP", server.ep))
        if size is not None
    )
    gpus = ", ".join(map(str, server.gpu_indices)) if server.gpu_indices else words.UNKNOWN
    batches = server.cuda_graph_batches
    captured = f"{len(batches)} sizes, {batches[0]} to {batches[-1]}" if batches else words.UNKNOWN
    return [
        pair("model", server.model or words.UNKNOWN),
        pair("weights", pane.weights(server), ""),
        pair("KV dtype", server.kv_dtype or words.UNKNOWN),
        pair("parallel", parallel or words.UNKNOWN),
        pair("GPUs", gpus if server.local else "on another host"),
        pair("graphs", "".join(span.text for span in pane.graphs(server)), "", 0, pane.graphs(server)[0].style),
        pair("captured", captured),
        pair("speculation", pane.speculation(server)),
        pair("attention", server.attention_backend or words.UNKNOWN),
        pair("context", words.number(server.context_length), "tokens"),
        pair("up for", words.duration(None if up_ns is None else up_ns / SECOND_NS)),
        pair("unit", server.unit or words.UNKNOWN),
    ]


def _flags(page: Page, server: Server, view: View) -> None:
    wanted = view.filter.lower()
    found = [flag for flag in server.flags if wanted in f"{flag.name} {flag.requested} {flag.resolved}".lower()]
    found.sort(key=lambda flag: (not _differs(flag), flag.requested is None, flag.name))
    differing = sum(map(_differs, found))
    count = f"  {len(found)} of {len(server.flags)}, {differing} in force otherwise than asked for"
    page.heading("flags", Span(count if server.flags else "  not told", "dim"))
    if not found:
        return
    table = Table(_FLAGS, page.width, headed=True)
    page.add(*table.header())
    for flag in found:
        other = _differs(flag)
        cells: dict[str, Span | str] = {
            "mark": Span("≠" if other else "", "warn"),
            "name": flag.name,
            "requested": Span(flag.requested or words.UNKNOWN, "" if flag.requested else "dim"),
            "resolved": Span(flag.resolved or words.UNKNOWN, "warn" if other else ""),
        }
        page.add(*table.row(cells), row=f"flag:{flag.name}")


def _differs(flag: Flag) -> bool:
    return flag.requested is not None and flag.resolved is not None and flag.requested != flag.resolved


def _processes(page: Page, server: Server) -> None:
    page.heading("processes", Span("" if server.processes else "  none seen", "dim"))
    for process in server.processes:
        line = [Span(f"{process.pid:>8}  "), Span(f"{process.role:<12}"), Span(process.title, "dim")]
        page.add(INDENT, *line, row=f"process:{process.pid}")
    for at, text in enumerate(wrap(" ".join(server.command), max(page.width - 12, 1), 12)):
        page.add(INDENT, Span("command   " if at == 0 else " " * 10, "dim"), Span(text))


def _unknown(page: Page, server: Server) -> None:
    if not server.reasons:
        return
    page.heading("not known")
    for field, why in sorted(server.reasons.items()):
        page.add(INDENT, Span(f"{words.UNKNOWN} {field.replace('_', ' ')}: ", "dim"), Span(why))
