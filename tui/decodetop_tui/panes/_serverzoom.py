"""The server over the whole screen: all servers, latencies, settings, flags asked for and in force, processes."""

from __future__ import annotations

from decodetop.core import words
from decodetop.core.clock import SECOND_NS
from decodetop.core.state import State
from decodetop.findings.preflight import preflight
from decodetop.server import text
from decodetop.server.reading import Latency, Server, ServerReading
from decodetop_tui.paint import Span, View
from decodetop_tui.panes import _serverlines
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


def draw(page: Page, state: State, reading: ServerReading, server: Server, view: View, mode: str) -> None:
    """Servers, figures, settings, flags, processes; in flags mode the flags stand first."""
    if len(reading.servers) > 1:
        _servers(page, reading)
        page.blank()
    if mode == "flags":
        flags(page, server, view)
        return
    page.extend(columns([_live(server), _latency(server), _settings(state, server)], view.width))
    page.add(INDENT, Span("graphs ", "dim"), _serverlines.graphs(server))
    page.add(INDENT, Span("speculation ", "dim"), Span(text.speculation(server)))
    if server.figures_from == "log":
        page.add(INDENT, Span("figures ", "dim"), Span(text.figures(server), "warn"))
    page.add(*_serverlines.past_line(state, server, view.width))
    _preflight(page, state, server)
    flags(page, server, view)
    _processes(page, server)
    _unknown(page, server)


def _preflight(page: Page, state: State, server: Server) -> None:
    """Ready to be measured? A word for each check."""
    styles = {"ok": "good", "bad": "bad", "unknown": "dim"}
    page.heading("preflight")
    for check in preflight(state, server):
        word = words.UNKNOWN if check.verdict == "unknown" else check.verdict
        page.add(
            INDENT,
            Span(f"{word:<5}", styles[check.verdict]),
            Span(f"{check.name:<14}"),
            Span(check.detail, "dim"),
            row=f"check:{check.name}",
        )


def _servers(page: Page, reading: ServerReading) -> None:
    table = Table(_SERVERS, page.width, headed=True)
    page.add(*table.header())
    for server in reading.servers:
        cells: dict[str, Span | str] = {
            "mark": Span("▶" if server.endpoint == reading.current else "", "key"),
            "endpoint": server.endpoint,
            "status": _serverlines.status_word(server),
            "engine": text.name(server),
            "tok_s": words.rate(server.generated_tok_s),
            "running": words.number_plain(server.running),
            "queued": words.number_plain(server.queued),
            "model": text.model(server),
        }
        page.add(*table.row(cells), row=f"server:{server.endpoint}")


def _live(server: Server) -> list[Pair]:
    kv = None if server.kv_usage is None else 100 * server.kv_usage
    hit = None if server.prefix_hit_rate is None else 100 * server.prefix_hit_rate
    return [
        pair("decode", words.rate(server.generated_tok_s), "tok/s", 7, "loud"),
        pair("prefill", words.rate(server.prompt_tok_s), "tok/s", 7),
        pair("running", words.number_plain(server.running), _of(server.max_running), 7),
        pair("queued", words.number_plain(server.queued), "", 7),
        pair("KV used", words.number(kv, 1), "%", 7),
        pair("KV capacity", words.number(server.kv_capacity_tokens), "tokens", 7),
        pair("prefix hits", words.number(hit, 1), "%", 7),
        pair("accept length", words.number(server.accept_length, 2), "tokens/step", 7),
        _preemptions(server),
    ]


def _preemptions(server: Server) -> Pair:
    count = None if server.counters is None else server.counters.preemptions
    return pair("preemptions", words.number(count), "not counted" if count is None else "", 7)


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
    return [
        pair(f"{name} mean", words.significant(latency.mean_ms), f"ms {_serverlines.over(latency.over_s)}", 7),
        _bound(f"{name} p50 up to", latency.p50_ms),
        _bound(f"{name} p99 up to", latency.p99_ms),
        pair(f"{name} count", words.compact(latency.count), "", 7),
    ]


def _bound(label: str, bound_ms: float | None) -> Pair:
    """In the first bucket nothing tells how low it is, in the open one how high."""
    if bound_ms is None:
        return pair(label, words.UNKNOWN, "not told", 7)
    return pair(label, words.significant(bound_ms), "ms", 7)


def _settings(state: State, server: Server) -> list[Pair]:
    up_ns = None if server.started_wall_ns is None else state.wall_ns - server.started_wall_ns
    batches = server.cuda_graph_batches
    captured = f"{len(batches)} sizes, {batches[0]} to {batches[-1]}" if batches else words.UNKNOWN
    return [
        pair("model", text.model(server)),
        pair("weights", text.weights(server) or words.UNKNOWN),
        pair("KV dtype", server.kv_dtype or words.UNKNOWN),
        pair("parallel", text.parallel(server) or words.UNKNOWN),
        pair("on", text.gpus(server)),
        pair("captured", captured),
        pair("attention", server.attention_backend or words.UNKNOWN),
        pair("context", words.number(server.context_length), "tokens"),
        pair("up for", words.duration(None if up_ns is None else up_ns / SECOND_NS)),
        pair("unit", text.unit(server)),
    ]


def flags(page: Page, server: Server, view: View) -> None:
    """Each flag as asked for and as it is in force, those that match the filter."""
    wanted = view.filter.lower()
    rows = [row for row in text.flag_rows(server) if wanted in " ".join(row[:3]).lower()]
    differing = sum(other for *_, other in rows)
    count = f"  {len(rows)} of {len(server.flags)}, {differing} in force otherwise than asked for"
    page.heading("flags", Span(count if server.flags else "  not told", "dim"))
    if not rows:
        return
    table = Table(_FLAGS, page.width, headed=True)
    page.add(*table.header())
    for name, asked, runs, other in rows:
        cells: dict[str, Span | str] = {
            "mark": Span("≠" if other else "", "warn"),
            "name": name,
            "requested": Span(asked, "dim" if asked == words.UNKNOWN else ""),
            "resolved": Span(runs, "warn" if other else ""),
        }
        page.add(*table.row(cells), row=f"flag:{name}")


def _processes(page: Page, server: Server) -> None:
    page.heading("processes", Span("" if server.processes else "  none seen", "dim"))
    for process in server.processes:
        line = [Span(f"{process.pid:>8}  "), Span(f"{process.role:<12}"), Span(process.title, "dim")]
        page.add(INDENT, *line, row=f"process:{process.pid}")
    for at, line_text in enumerate(wrap(text.command(server), max(page.width - 12, 1), 12)):
        page.add(INDENT, Span("command   " if at == 0 else " " * 10, "dim"), Span(line_text))


def _unknown(page: Page, server: Server) -> None:
    missing = text.unknown(server)
    if missing:
        page.heading("not known")
    for fields, why in missing:
        for at, line in enumerate(wrap(f"{fields.replace('_', ' ')}: {why}", max(page.width - 4, 1), 3)):
            page.add(INDENT, Span(f"{words.UNKNOWN} " if at == 0 else "  ", "dim"), Span(line, "dim"))
