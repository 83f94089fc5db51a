"""The inference server: what it does now, what it was started with, and in which state it is."""

from __future__ import annotations

from decodetop.core import words
from decodetop.core.state import State
from decodetop.findings.rules import KV_FULL
from decodetop.server import text
from decodetop.server.reading import Latency, Server, ServerReading
from decodetop_tui.paint import Filter, Picture, Span, View
from decodetop_tui.panes import _serverlines, _serverzoom
from decodetop_tui.panes._cells import wrap
from decodetop_tui.panes._page import INDENT, Page, note_of, trouble
from decodetop_tui.panes._table import Pair, flow, pair, spans_of

TITLE = "server"
KEY = "2"
SOURCES: tuple[str, ...] = ("server",)
MODES: tuple[str, ...] = ("all", "flags")
FILTER: Filter | None = Filter("flags", zoomed=True)

ROOMY = 64
"""Cells from which items stand three cells apart."""


def want(state: State, width: int) -> tuple[int, int]:
    """The live figures and the settings at least; wanted: all of their lines and a history."""
    server = current(state.last("server", ServerReading))
    if server is None or server.status != "up":
        return 1, 4 if server is None else 3
    return 2, len(_live(server, width)) + len(_settings(server, width)) + 1


def draw(state: State, view: View) -> Picture:
    page = Page(view)
    page.extend(trouble(state, "server", view))
    reading = state.last("server", ServerReading)
    if reading is None:
        return page.picture(note_of(state, "server", view.width, paced=True))
    server = current(reading)
    if server is None:
        page.add(INDENT, Span("no inference server found"))
        page.add(INDENT, Span("start one, or name it: --endpoint http://127.0.0.1:30000", "dim"))
        for line in wrap(f"searched: {', '.join(reading.searched) or 'nothing'}", view.width - 4, 3):
            page.add(INDENT, Span(line, "dim"))
        return page.picture(note_of(state, "server", view.width, paced=True))
    if server.status != "up":
        page.extend(_serverlines.status_lines(state, server))
    page.dim = state.lane("server").failure is not None or server.status != "up"
    mode = MODES[view.mode % len(MODES)]
    if view.zoomed:
        _serverzoom.draw(page, state, reading, server, view, mode)
    elif mode == "flags":
        _serverzoom.flags(page, server, view)
    elif server.status == "up":
        _compact(page, state, server, view)
    return page.picture(note_of(state, "server", view.width, *_note(reading, server), paced=True))


def current(reading: ServerReading | None) -> Server | None:
    """The server the screen means, else the first found."""
    if reading is None:
        return None
    return reading.current_server or (reading.servers[0] if reading.servers else None)


def _note(reading: ServerReading, server: Server) -> list[str]:
    at = next(n for n, one in enumerate(reading.servers, 1) if one is server)
    return [
        f"{text.name(server)} {text.where(server)}",
        f"{at} of {len(reading.servers)}, S chooses" if len(reading.servers) > 1 else "",
        text.model(server),
        text.parallel(server),
    ]


def _compact(page: Page, state: State, server: Server, view: View) -> None:
    live, settings = _live(server, view.width), _settings(server, view.width)
    room = view.height - len(page.lines)
    if room <= len(live):
        live = _tight(server, view.width)
    page.extend([*live, *settings][: max(room, 1)])
    if room > len(live) + len(settings):
        page.add(*_serverlines.past_line(state, server, view.width))
    spare = view.height - len(page.lines) - 1
    if spare > 1:
        page.blank()
        page.extend(_more(server, view.width, spare)[:spare])
    past = _serverlines.past_lines(state, server, view.width)
    if past and view.height - len(page.lines) > len(past):
        page.blank()
        page.extend(past)


def _more(server: Server, width: int, rows: int) -> list[list[Span]]:
    """What a tall pane has room for: spreads, cache hits, flags in force otherwise than asked, the command.

    Of the command what fits in `rows`, ending in … where it goes on.
    """
    hits = None if server.prefix_hit_rate is None else 100 * server.prefix_hit_rate
    facts = [
        ("ITL", _latency(server.itl, width - 16)),
        ("TTFT", _latency(server.ttft, width - 16)),
        ("prefix hits", words.percent(hits, 1)),
        ("context", f"{words.number(server.context_length)} tokens"),
    ]
    facts += [
        ("differs", f"{flag}: asked {asked}, runs {runs}")
        for flag, asked, runs, other in text.flag_rows(server)
        if other
    ]
    lines = [[INDENT, Span(f"{label:<12}", "dim"), Span(said)] for label, said in facts]
    for at, line in enumerate(wrap(text.command(server), max(width - 16, 1), min(8, rows - len(lines)))):
        lines.append([INDENT, Span(f"{'' if at else 'command':<12}", "dim"), Span(line, "dim")])
    return lines


def _latency(seen: Latency | None, room: int) -> str:
    """The mean, and the quantiles where they can stand whole."""
    mean, quantiles = text.latency(seen), text.quantiles(seen)
    both = f"{mean}, {quantiles}" if quantiles else mean
    return both if len(both) <= room else mean


def _decode(server: Server) -> Pair:
    return pair("decode", words.rate(server.generated_tok_s), "tok/s", 6, "loud")


def _mean(label: str, latency: Latency | None) -> Pair:
    """Dim when it is a mean since the server's start: its stalls of hours ago are in it, and it is not live."""
    old = "dim" if latency is not None and latency.over_s is None else ""
    return pair(label, words.significant(None if latency is None else latency.mean_ms), "ms", 5, old)


def _kv(server: Server, of: str) -> Pair:
    used = None if server.kv_usage is None else 100 * server.kv_usage
    full = "bad" if server.kv_usage is not None and server.kv_usage >= KV_FULL else ""
    return pair("KV", words.number(used, 1), of, 5, full)


def _counts(server: Server) -> list[Pair]:
    waiting = "warn" if server.queued else ""
    return [
        pair("running", words.number_plain(server.running), "", 3),
        pair("queued", words.number_plain(server.queued), "", 3, waiting),
    ]


def _live(server: Server, width: int) -> list[list[Span]]:
    """The loud number is the decode rate; running and queued say what it means."""
    gap = 3 if width >= ROOMY else 2
    first = [spans_of(_decode(server)), spans_of(_mean("ITL", server.itl)), spans_of(_mean("TTFT", server.ttft))]
    by_log = server.figures_from == "log"
    over = [Span("from its log", "warn") if by_log else Span(_interval(server), "dim")]
    if len(flow([*first, over], width, gap)) == len(flow(first, width, gap)):
        first.append(over)
    capacity = server.kv_capacity_tokens
    of = f"% of {words.compact(capacity)} tokens" if capacity is not None else "%"
    second = [*_counts(server), _kv(server, of)]
    prefill = pair("prefill", words.rate(server.prompt_tok_s), "tok/s", 6)
    lines = flow([spans_of(item) for item in second], width, gap)
    # shown or not by the room alone, so that it does not come and go with the requests
    more = flow([spans_of(item) for item in (*second, prefill)], width, gap)
    return [*flow(first, width, gap), *(more if len(more) == len(lines) else lines)]


def _interval(server: Server) -> str:
    """What ITL and TTFT are means over."""
    seen = {latency.over_s for latency in (server.itl, server.ttft) if latency is not None}
    if not seen:
        return ""
    if len(seen) > 1:
        parts = [(word, one) for word, one in (("ITL", server.itl), ("TTFT", server.ttft)) if one is not None]
        return ", ".join(f"{word} {_serverlines.over(one.over_s)}" for word, one in parts)
    return _serverlines.over(seen.pop())


def _tight(server: Server, width: int) -> list[list[Span]]:
    """All live figures in one line, for a pane of two."""
    items = [_decode(server)._replace(label=""), _mean("ITL", server.itl), _mean("TTFT", server.ttft)]
    running, queued = _counts(server)
    items += [running._replace(label="run"), queued._replace(label="queue"), _kv(server, "%")]
    return flow([spans_of(item) for item in items], width, 2)[:1]


def _settings(server: Server, width: int) -> list[list[Span]]:
    dim = "dim"
    items = [
        [Span("graphs ", dim), _serverlines.graphs(server)],
        [Span("speculation ", dim), Span(text.speculation(server))],
        [Span("attention ", dim), Span(server.attention_backend or words.UNKNOWN)],
        [Span("weights ", dim), Span(text.weights(server) or words.UNKNOWN)],
        [Span("KV ", dim), Span(server.kv_dtype or words.UNKNOWN)],
    ]
    return flow(items, width, 3 if width >= ROOMY else 2)
