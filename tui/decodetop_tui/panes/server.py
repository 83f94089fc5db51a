"""The inference server: what it does now, what it was started with, and in which state it is."""

from __future__ import annotations

from decodetop.core import words
from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Reading
from decodetop.core.state import State
from decodetop.server.reading import ENGINE_NAMES, Latency, Server, ServerReading
from decodetop_tui.paint import Picture, Span, View
from decodetop_tui.panes import _serverzoom
from decodetop_tui.panes._lines import history, history_room
from decodetop_tui.panes._page import INDENT, Page, note_of, trouble
from decodetop_tui.panes._table import Pair, flow, pair, spans_of

TITLE = "server"
KEY = "2"
SOURCES: tuple[str, ...] = ("server",)
MODES: tuple[str, ...] = ("all", "flags")

STATUS: dict[str, tuple[str, str, str]] = {
    "up": ("up", "good", ""),
    "starting": ("starting", "warn", "it loads the model; figures come when it answers"),
    "needs_key": ("up, needs a key", "warn", "set DECODETOP_API_KEY, or api_key_file in the settings"),
    "down": ("down", "bad", "nothing answers at this address"),
    "hung": ("hung", "bad", "it accepts connections and does not answer; look at its log"),
    "not_a_server": ("not an inference server", "warn", "another program has this port; give --endpoint URL"),
}
"""Status -> its word, its style, what to do next."""


def want(state: State, width: int) -> tuple[int, int]:
    """The live figures and the settings at least; wanted: a line each and a history."""
    reading = state.last("server", ServerReading)
    server = current(reading)
    if reading is None or server is None:
        return 1, 3
    if server.status != "up":
        return 1, 3
    return 2, len(_live(server, width)) + len(_settings(server, width)) + 1


def draw(state: State, view: View) -> Picture:
    page = Page(view)
    page.extend(trouble(state, "server"))
    reading = state.last("server", ServerReading)
    if reading is None:
        return page.picture(note_of(state, "server", view.width))
    server = current(reading)
    if server is None:
        page.extend(_none(reading))
        return page.picture(note_of(state, "server", view.width))
    page.dim = state.lane("server").failure is not None
    if server.status != "up":
        page.extend(status_lines(state, server))
    if view.zoomed:
        _serverzoom.draw(page, state, reading, server, view)
    elif server.status == "up":
        _compact(page, state, server, view)
    return page.picture(note_of(state, "server", view.width, *_note(reading, server)))


def current(reading: ServerReading | None) -> Server | None:
    """The server the screen means, else the first found."""
    if reading is None:
        return None
    return reading.current_server or (reading.servers[0] if reading.servers else None)


def _none(reading: ServerReading) -> list[list[Span]]:
    lines = [[INDENT, Span("no inference server found")]]
    if reading.searched:
        lines.append([INDENT, Span("searched: ", "dim"), Span(", ".join(reading.searched), "dim")])
    return [*lines, [INDENT, Span("start one, or name it: --endpoint http://127.0.0.1:30000", "dim")]]


def status_lines(state: State, server: Server) -> list[list[Span]]:
    """The state of a server that gives no figures, why, and what to do."""
    word, style, hint = STATUS[server.status]
    since = down_since_s(state, server.endpoint)
    age = f" for {words.duration(since)}" if since is not None and server.status in ("down", "hung") else ""
    why = f": {server.status_message}" if server.status_message else ""
    return [
        [INDENT, Span(word + age, style), Span(f"  {server.endpoint}"), Span(why)],
        [INDENT, Span(hint, "dim")],
    ]


def down_since_s(state: State, endpoint: str) -> float | None:
    """How long the history shows the server in its present status without a break; None without a change in sight."""
    since: int | None = None
    status: str | None = None
    for past in reversed(state.lane("server").history):
        found = _named(past.reading, endpoint)
        if found is None or (status is not None and found.status != status):
            break
        status, since = found.status, past.t_ns
    return None if since is None else (state.now_ns - since) / SECOND_NS


def _named(reading: Reading, endpoint: str) -> Server | None:
    servers = reading.servers if isinstance(reading, ServerReading) else ()
    return next((server for server in servers if server.endpoint == endpoint), None)


def _note(reading: ServerReading, server: Server) -> list[str]:
    port = server.endpoint.rpartition(":")[2]
    name = ENGINE_NAMES[server.engine] + (f" {server.version}" if server.version else "")
    others = len(reading.servers)
    at = next((n for n, one in enumerate(reading.servers, 1) if one.endpoint == server.endpoint), 1)
    return [
        f"{name} :{port}" if port.isdigit() else name,
        f"{at} of {others}, S chooses" if others > 1 else "",
        server.served_name or server.model or "",
        f"TP{server.tp}" if server.tp is not None and server.tp > 1 else "",
    ]


def _compact(page: Page, state: State, server: Server, view: View) -> None:
    live, settings = _live(server, view.width), _settings(server, view.width)
    room = view.height - len(page.lines)
    page.extend([*live, *settings][: max(room, 1)])
    if room > len(live) + len(settings):
        page.add(*past_line(state, server, view.width))


def past_line(state: State, server: Server, width: int) -> list[Span]:
    def tok_s(reading: Reading) -> float | None:
        seen = _named(reading, server.endpoint)
        return None if seen is None else seen.generated_tok_s

    past = history(state.lane("server"), state.now_ns, history_room(width - 28), tok_s)
    label = f"  tok/s, last {words.duration(past.seconds)}"
    most = "" if past.high is None else f", most {words.significant(past.high)}"
    return [INDENT, Span(past.text), Span(label + most, "dim")]


def _live(server: Server, width: int) -> list[list[Span]]:
    """The loud number is the decode rate; running and queued say whether it means anything."""
    tok_s = words.significant(server.generated_tok_s)
    first = [
        pair("decode", tok_s, "tok/s", 6, "loud"),
        pair("ITL", *_mean(server.itl)),
        pair("TTFT", *_mean(server.ttft)),
    ]
    capacity = server.kv_capacity_tokens
    of = f"% of {words.compact(capacity)} tokens" if capacity is not None else "%"
    kv = words.UNKNOWN if server.kv_usage is None else f"{100 * server.kv_usage:.1f}"
    full = "bad" if server.kv_usage is not None and server.kv_usage >= 0.95 else ""
    queued = "warn" if server.queued else ""
    second = [
        pair("running", words.number_plain(server.running), "", 3),
        pair("queued", words.number_plain(server.queued), "", 3, queued),
        pair("KV", kv, of, 5, full),
    ]
    if server.accept_length is not None:
        second.append(pair("accept", f"{server.accept_length:.2f}", "tokens/step", 4))
    if server.prompt_tok_s:
        second.append(pair("prefill", words.significant(server.prompt_tok_s), "tok/s", 6))
    return [*flow(_spans(first), width), *flow(_spans(second), width)]


def _spans(items: list[Pair]) -> list[list[Span]]:
    return [spans_of(item) for item in items]


def _mean(latency: Latency | None) -> tuple[str, str, int]:
    """Value, unit, width; the unit names the interval the mean is over."""
    if latency is None:
        return words.UNKNOWN, "ms", 5
    over = "since start" if latency.over_s is None else f"mean {words.duration(latency.over_s)}"
    return words.significant(latency.mean_ms), f"ms ({over})", 5


def _settings(server: Server, width: int) -> list[list[Span]]:
    items = [
        [Span("graphs ", "dim"), *graphs(server)],
        [Span("speculation ", "dim"), Span(speculation(server))],
        [Span("attention ", "dim"), Span(server.attention_backend or words.UNKNOWN)],
        [Span("weights ", "dim"), Span(weights(server)), Span("  KV ", "dim"), Span(server.kv_dtype or words.UNKNOWN)],
    ]
    return flow(items, width)


def graphs(server: Server) -> list[Span]:
    if server.cuda_graph is None:
        return [Span(words.UNKNOWN)]
    if not server.cuda_graph:
        return [Span("OFF", "warn")]
    most = server.cuda_graph_max_batch
    if most is not None and server.running is not None and server.running > most:
        return [Span(f"on, but batch {server.running} > {most} captured", "warn")]
    return [Span("on" if most is None else f"on, batch up to {most}")]


def speculation(server: Server) -> str:
    """`off`, `EAGLE 3 steps, 4 tokens`, or unknown when the server does not say."""
    if server.speculative_algorithm is None:
        return words.UNKNOWN if "speculative_algorithm" in server.reasons else "off"
    parts = [
        f"{server.speculative_steps} steps" if server.speculative_steps is not None else "",
        f"{server.speculative_draft_tokens} draft tokens" if server.speculative_draft_tokens is not None else "",
    ]
    return " ".join([server.speculative_algorithm, ", ".join(part for part in parts if part)]).strip()


def weights(server: Server) -> str:
    """The dtype of the weights, with the quantisation where there is one."""
    dtype = server.weights_dtype or words.UNKNOWN
    return f"{dtype} {server.quantization}" if server.quantization else dtype
