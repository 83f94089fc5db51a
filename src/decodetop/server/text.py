"""What the servers say, in words: for the pane, the plain output and the report. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from urllib.parse import urlsplit

from decodetop.core.outside import escape, fenced
from decodetop.core.words import UNKNOWN, compact, number, number_plain, percent, rate, significant
from decodetop.server.graphs import fit, words
from decodetop.server.reading import ENGINE_NAMES, Flag, Latency, Server, ServerReading

STATUS_WORDS = {
    "up": "up",
    "starting": "starting",
    "needs_key": "up, needs a key",
    "down": "down",
    "hung": "hung",
    "not_a_server": "not an inference server",
}

_ALL_FLAGS = 60


def differs(flag: Flag) -> bool:
    """Whether the server runs with something else than it was asked for (`auto` asks for nothing)."""
    if flag.requested is None or flag.resolved is None or flag.requested.lower() in ("auto", "none", ""):
        return False
    return _plain(flag.requested) != _plain(flag.resolved)


def name(server: Server) -> str:
    """`SGLang 0.5.15`."""
    return ENGINE_NAMES[server.engine] + (f" {server.version}" if server.version else "")


def where(server: Server) -> str:
    """`:30000` on this box, `box7:8000` elsewhere."""
    host, port = address(server.endpoint)
    return port if server.local and port else f"{host}{port}"


def address(endpoint: str) -> tuple[str, str]:
    """Host and `:port`. What is no URL (a tape of somebody else's may hold anything) is a host of its own."""
    try:
        parts = urlsplit(endpoint)
        return parts.hostname or endpoint, f":{parts.port}" if parts.port else ""
    except ValueError:
        return endpoint, ""


def model(server: Server) -> str:
    """The name it is served under, else the last part of the model's path."""
    return server.served_name or (server.model or UNKNOWN).rstrip("/").rpartition("/")[2]


def parallel(server: Server) -> str:
    """`TP2`, `TP4 DP2`; sizes of one other than TP's are not worth a word."""
    sizes = (("TP", server.tp), ("PP", server.pp), ("DP", server.dp), ("EP", server.ep))
    return " ".join(f"{word}{size}" for word, size in sizes if size is not None and (word == "TP" or size > 1))


def weights(server: Server) -> str:
    """`bf16`, `fp8 bf16`: quantisation, then the dtype of what is not quantised."""
    return " ".join(word for word in (server.quantization, server.weights_dtype) if word)


def summary(server: Server) -> str:
    """One line: `SGLang 0.5.15 :30000  dense-8b bf16  TP1 on gpu 0`."""
    parts = [f"{name(server)} {where(server)}"]
    if server.status != "up":
        parts.append(STATUS_WORDS[server.status])
    if server.model or server.served_name:
        parts.append(" ".join(word for word in (model(server), weights(server)) if word))
    on = gpus(server)
    parallel_on = " ".join(word for word in (parallel(server), f"on {on}" if on != UNKNOWN else "") if word)
    return "  ".join([*parts, parallel_on]).rstrip()


def unit(server: Server) -> str:
    """`sglang.service`, with systemd's word when that is not `active`."""
    if server.unit is None:
        return UNKNOWN
    return server.unit if server.unit_state in (None, "active") else f"{server.unit}, {server.unit_state}"


def gpus(server: Server) -> str:
    """`gpu 0,1`; `another host`; unknown when CUDA_VISIBLE_DEVICES does not say."""
    if not server.local:
        return "another host"
    if server.gpu_indices is not None:
        return "gpu " + ",".join(map(str, server.gpu_indices))
    if server.gpu_uuids is not None:
        return "gpu " + ",".join(uuid[:12] for uuid in server.gpu_uuids)
    return UNKNOWN


def graphs(server: Server) -> str:
    """`on, batch 33 padded to 40`, `on, but batch 41 > 40 captured`, `on, up to batch 32`, `OFF (--enforce-eager)`."""
    if server.cuda_graph is None:
        return UNKNOWN
    if not server.cuda_graph:
        typed = {flag.name for flag in server.flags if flag.requested == "true"}
        asked = next((flag for flag in _GRAPHS_OFF if flag in typed), None)
        return f"OFF (--{asked.replace('_', '-')})" if asked else "OFF"
    found = fit(server)
    if found is not None and (found.outside or found.padded_to is not None):
        return f"on, {'but ' if found.outside else ''}{words(found)}"
    most = server.cuda_graph_max_batch
    return "on" if most is None else f"on, up to batch {most}"


def figures(server: Server) -> str:
    """`from its log (/var/log/sglang.log)`; empty where they come from the server itself, as they should."""
    return f"from its log ({server.log or UNKNOWN}), the newest line" if server.figures_from == "log" else ""


_GRAPHS_OFF = ("disable_cuda_graph", "disable_decode_cuda_graph", "enforce_eager")


def speculation(server: Server) -> str:
    """`off`, `NGRAM, 4 draft tokens, accept 3.86`; unknown when the server does not say."""
    if server.speculative_algorithm is None and server.accept_length is None:
        return UNKNOWN if "speculative_algorithm" in server.reasons else "off"
    parts = [server.speculative_algorithm or "on"]
    if server.speculative_steps:
        parts.append(f"{server.speculative_steps} steps")
    if server.speculative_draft_tokens:
        parts.append(f"{server.speculative_draft_tokens} draft tokens")
    if server.accept_length is not None:
        parts.append(f"accept {server.accept_length:.2f}")
    return ", ".join(parts)


def kv(server: Server) -> str:
    """`5.0 % of 598 k tokens`."""
    used = percent(None if server.kv_usage is None else 100 * server.kv_usage, 1)
    return f"{used} of {compact(server.kv_capacity_tokens)} tokens" if server.kv_capacity_tokens else used


def latency(seen: Latency | None) -> str:
    """`7.38 ms (mean of 9,264 in 1 s)`, `290 ms (mean of 74 since start)`."""
    if seen is None:
        return UNKNOWN
    over = "since start" if seen.over_s is None else f"in {seen.over_s:.0f} s"
    return f"{significant(seen.mean_ms)} ms (mean of {number(seen.count)} {over})"


def quantiles(seen: Latency | None) -> str:
    """`p50 at most 8 ms, p99 at most 60 ms`: bounds of the histogram's buckets; empty when they bound nothing."""
    if seen is None:
        return ""
    bounds = (("p50", seen.p50_ms), ("p99", seen.p99_ms))
    return ", ".join(f"{word} at most {significant(bound)} ms" for word, bound in bounds if bound is not None)


def command(server: Server) -> str:
    return shlex.join(server.command)


def flag_rows(server: Server) -> list[tuple[str, str, str, bool]]:
    """Flag, requested, resolved, and whether they differ; those that differ first."""
    rows = [(flag.name, flag.requested or UNKNOWN, flag.resolved or UNKNOWN, differs(flag)) for flag in server.flags]
    return sorted(rows, key=lambda row: not row[3])


def nothing(reading: ServerReading) -> str:
    """Why no server is shown."""
    return f"no inference server found (searched: {', '.join(reading.searched) or 'nothing'})"


def lines(reading: ServerReading) -> list[str]:
    """The plain output: every server, the current one first and marked."""
    if not reading.servers:
        return [nothing(reading), "start one, or name it: --endpoint http://127.0.0.1:30000"]
    shown: list[str] = []
    for server in sorted(reading.servers, key=lambda one: one.endpoint != reading.current):
        mark = "*" if server.endpoint == reading.current and len(reading.servers) > 1 else " "
        shown += [f"{mark} {summary(server)}", *(f"    {line}" for line in _details(server)), ""]
    return shown[:-1]


def markdown(reading: ServerReading) -> list[str]:
    """The report's section; text of the servers is escaped."""
    lines = ["## Inference server", ""]
    if not reading.servers:
        return [*lines, escape(nothing(reading)) + "."]
    for server in sorted(reading.servers, key=lambda one: one.endpoint != reading.current):
        lines += _section(server, len(reading.servers) > 1, server.endpoint == reading.current)
    return lines[:-1]


def _details(server: Server) -> list[str]:
    rows = [(word, value) for word, value in _facts(server) if value not in ("", UNKNOWN)]
    lines = [f"{word:<12} {value}" for word, value in rows]
    changed = [f"{flag}: asked {asked}, runs {runs}" for flag, asked, runs, other in flag_rows(server) if other]
    lines += [f"{'differs':<12} {line}" for line in changed]
    return lines + [f"{'not known':<12} {fields}: {why}" for fields, why in unknown(server)]


def unknown(server: Server) -> list[tuple[str, str]]:
    """What is not known and why: fields of one reason together. Nothing for a server that gives nothing."""
    if server.status in ("down", "not_a_server"):
        return []
    fields: dict[str, list[str]] = {}
    for field, why in server.reasons.items():
        fields.setdefault(why, []).append(field)
    return [(", ".join(sorted(names)), why) for why, names in sorted(fields.items())]


def _facts(server: Server) -> Iterable[tuple[str, str]]:
    state = STATUS_WORDS[server.status]
    yield "state", f"{state}: {server.status_message}" if server.status_message else state
    yield "endpoint", server.endpoint
    yield "model", server.model or UNKNOWN
    if server.running is not None or server.queued is not None:
        yield "running", f"{number_plain(server.running)}, queued {number_plain(server.queued)}"
    yield "figures", figures(server)
    yield "decode", f"{rate(server.generated_tok_s)} tok/s" if server.generated_tok_s is not None else UNKNOWN
    yield "prefill", f"{rate(server.prompt_tok_s)} tok/s" if server.prompt_tok_s is not None else UNKNOWN
    for word, seen in (("ITL", server.itl), ("TTFT", server.ttft)):
        yield word, ", ".join(part for part in (latency(seen), quantiles(seen)) if part)
    yield "KV cache", kv(server)
    yield "prefix hits", percent(None if server.prefix_hit_rate is None else 100 * server.prefix_hit_rate, 1)
    yield "graphs", graphs(server)
    yield "speculation", speculation(server)
    yield "attention", server.attention_backend or UNKNOWN
    yield "weights", weights(server) or UNKNOWN
    yield "KV dtype", server.kv_dtype or UNKNOWN
    yield "parallel", " ".join(word for word in (parallel(server), f"on {gpus(server)}") if word != f"on {UNKNOWN}")
    yield "context", f"{number(server.context_length)} tokens" if server.context_length else UNKNOWN
    yield "unit", unit(server)
    yield "process", number_plain(server.root_pid)
    yield "command", command(server)


def _section(server: Server, several: bool, current: bool) -> list[str]:
    title = escape(summary(server)) + (" (current)" if several and current else "")
    rows = [(word, value) for word, value in _facts(server) if value not in ("", UNKNOWN) and word != "command"]
    lines = [f"**{title}**", "", "| what | value |", "|---|---|"]
    lines += [f"| {word} | {escape(value)} |" for word, value in rows]
    lines.append("")
    if server.command:
        lines += [*fenced([command(server)], "sh"), ""]
    flags = flag_rows(server)[:_ALL_FLAGS]
    if flags:
        lines += ["| flag | asked for | in force | |", "|---|---|---|---|"]
        for flag, asked, runs, other in flags:
            lines.append(f"| {escape(flag)} | {escape(asked)} | {escape(runs)} | {'differs' if other else ''} |")
        lines.append("")
    missing = unknown(server)
    if missing:
        lines += ["Not known:", "", *(f"- {escape(fields)}: {escape(why)}" for fields, why in missing), ""]
    return lines


def _plain(text: str) -> str:
    text = text.strip().lower()
    try:
        return repr(float(text))
    except ValueError:
        return text
