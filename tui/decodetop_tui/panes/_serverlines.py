"""What the server pane and its zoomed form say alike: the state in words, the history of tok/s."""

from __future__ import annotations

from collections.abc import Callable

from decodetop.core import words
from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Reading
from decodetop.core.state import State
from decodetop.server import text
from decodetop.server.reading import Server, ServerReading
from decodetop_tui.paint import Span
from decodetop_tui.panes._lines import history, history_room
from decodetop_tui.panes._page import INDENT

_Value = Callable[[Server], float | None]
_Written = Callable[[float | None], str]

STYLES = {
    "up": "good",
    "starting": "warn",
    "needs_key": "warn",
    "down": "bad",
    "hung": "bad",
    "not_a_server": "warn",
}
_NEXT = {
    "starting": "it loads the model; figures come when it answers",
    "needs_key": "set DECODETOP_API_KEY, or api_key_file in the settings",
    "down": "nothing answers at this address",
    "hung": "it takes connections and does not answer: look at its log",
    "not_a_server": "another program has this port: give --endpoint URL",
}
"""What the state means, or what to do next."""


def status_word(server: Server) -> Span:
    return Span(text.STATUS_WORDS[server.status], STYLES[server.status])


def status_lines(state: State, server: Server) -> list[list[Span]]:
    """The state of a server that gives no figures, since when, why, and what to do."""
    word = status_word(server)
    since = _unchanged_s(state, server)
    age = "" if since is None or since < 1 else f" for {words.duration(since)}"
    why = f": {server.status_message}" if server.status_message else ""
    return [
        [INDENT, Span(word.text + age, word.style), Span(f"  {server.endpoint}"), Span(why)],
        [INDENT, Span(_NEXT.get(server.status, ""), "dim")],
    ]


def _unchanged_s(state: State, server: Server) -> float | None:
    """How long the history shows the server in its present status without a break; None when it shows nothing."""
    since_ns: int | None = None
    for past in reversed(state.lane("server").history):
        found = named(past.reading, server.endpoint)
        if found is None or found.status != server.status:
            break
        since_ns = past.t_ns
    return None if since_ns is None else (state.now_ns - since_ns) / SECOND_NS


def named(reading: Reading, endpoint: str) -> Server | None:
    servers = reading.servers if isinstance(reading, ServerReading) else ()
    return next((server for server in servers if server.endpoint == endpoint), None)


def past_line(state: State, server: Server, width: int) -> list[Span]:
    """tok/s over the last minutes, drawn up to the most seen there."""

    return _past(state, server, width, "tok/s", lambda seen: seen.generated_tok_s)


def past_lines(state: State, server: Server, width: int) -> list[list[Span]]:
    """What moves tok/s, each over the same minutes: what is not told by this server is left out."""

    def itl_ms(seen: Server) -> float | None:
        return None if seen.itl is None or seen.itl.over_s is None else seen.itl.mean_ms

    def kv(seen: Server) -> float | None:
        return None if seen.kv_usage is None else 100 * seen.kv_usage

    told: tuple[tuple[str, _Value, _Written], ...] = (
        ("ITL ms", itl_ms, words.significant),
        ("running", lambda seen: seen.running, words.number_plain),
        ("queued", lambda seen: seen.queued, words.number_plain),
        ("KV %", kv, lambda used: words.number(used, 1)),
    )
    return [_past(state, server, width, *one) for one in told if one[1](server) is not None]


def _past(
    state: State, server: Server, width: int, what: str, value: _Value, written: _Written = words.rate
) -> list[Span]:
    def seen_of(reading: Reading) -> float | None:
        seen = named(reading, server.endpoint)
        return None if seen is None else value(seen)

    past = history(state.lane("server"), state.now_ns, history_room(width - 22), seen_of)
    label = f"  {what} over {words.remaining(past.seconds)}"
    most = "" if past.high is None else f", most {written(past.high)}"
    label += most if len(past.text) + len(label) + len(most) + 2 <= width else ""
    return [INDENT, Span(past.text), Span(label, "dim")]


def graphs(server: Server) -> Span:
    """CUDA graphs; off, or a batch outside the captured ones, is worth a look."""
    said = text.graphs(server)
    return Span(said, "" if said == words.UNKNOWN or (server.cuda_graph and "but" not in said) else "warn")


def over(seconds: float | None) -> str:
    """The interval a mean is over, in words."""
    if seconds is None:
        return "since start"
    return f"in {words.number(seconds, 1)} s" if seconds < 9.95 else f"in {words.remaining(seconds)}"
