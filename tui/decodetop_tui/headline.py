"""The frame's own lines: top, findings, footer. Pure; what is least needed goes first when it gets narrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from decodetop.core import words
from decodetop.core.clock import SECOND_NS
from decodetop.core.source import RecordReading, ReplayReading
from decodetop.core.state import State
from decodetop.findings.reading import Finding
from decodetop.floor.reading import FloorReading, Verdict
from decodetop.floor.text import VERDICTS
from decodetop.server.reading import ENGINE_NAMES, Server, ServerReading, is_simulated
from decodetop.server.text import address
from decodetop_tui.cells import width_of
from decodetop_tui.paint import Line, Span
from decodetop_tui.panes._cells import clip
from decodetop_tui.panes._stepfloor import verdict_style

GAP = 2
LEAST = 40
"""Cells a finding keeps beside a verdict."""


class Situation(NamedTuple):
    """What the frame says beside the state. `period_s` is the probes' period in force, None where it is not ours."""

    frozen: bool = False
    readonly: bool = False
    period_s: float | None = 1.0
    help_key: str = "?"


class Part(NamedTuple):
    """`keep`: who goes first when it gets narrow; the lowest."""

    keep: int
    spans: tuple[Span, ...]


def top_line(state: State, situation: Situation, width: int) -> Line:
    """Where I am: name, host, server; at the right what is special, the time, the rate."""
    left = [Part(9, (Span("decodetop", "title.focus"),)), Part(5, (Span(state.header.host),)), *_server_parts(state)]
    right = _right_parts(state, situation)
    return _spread(left, right, width)


def findings_line(state: State, findings: Sequence[Finding], width: int) -> Line:
    """The worst finding with its number, how many there are, and since when."""
    broken = _broken_line(state)
    if broken is not None:
        return broken
    if not findings:
        failing = _failing_line(state, width)
        if failing is not None:
            return failing
        if (verdict := verdict_of(state)) is not None:
            said = f"◆ {_judged(verdict, width - 2)}"
            return _cut((Span(said, verdict_style(verdict)),), width)
        looked = any(state.lane(source).last is not None for source in ("gpu", "server", "host"))
        return (Span("no findings" if looked else "looking around ...", "dim"),)
    order = ("invalid", "suspect", "info")
    worst = min(findings, key=lambda finding: order.index(finding.severity))
    style = {"invalid": "bad", "suspect": "warn", "info": "key"}[worst.severity]
    since = words.clock_time(state.header.started_wall_ns + worst.since_ns)[:5]
    count = Span(f"{len(findings)} finding{'s' if len(findings) > 1 else ''}", style)
    line: Line = (Span("▲ ", style), Span(worst.title, style))
    if worst.evidence:
        line = (*line, Span(f": {worst.evidence}"))
    verdict = verdict_of(state)
    judged = () if verdict is None else (Span(f"◆ {VERDICTS[verdict.id]}", verdict_style(verdict)), Span("  "))
    # what tells less goes first: the time, then the end of the evidence, then the verdict
    tail: Line = (Span(f"since {since}  ", "dim"), *judged, count)
    if width_of(line) + GAP + width_of(tail) > width:
        tail = (*judged, count)
    if judged and width_of(tail) + GAP + LEAST > width:
        tail = (count,)
    line = _cut(line, max(12, width - GAP - width_of(tail)))
    return (*line, Span(" " * max(GAP, width - width_of(line) - width_of(tail))), *tail)


def verdict_of(state: State) -> Verdict | None:
    """The floor's verdict, when it is one."""
    floor = state.last("floor", FloorReading)
    verdict = floor.report.verdict if floor is not None and floor.report is not None else None
    return None if verdict is None or verdict.id == "not_enough_evidence" else verdict


def _judged(verdict: Verdict, room: int) -> str:
    """Its sentence; where that is too long under the shorter name, so that the figures come before the end."""
    head, colon, figures = verdict.sentence.partition(": ")
    name = VERDICTS[verdict.id]
    shorter = colon and width_of([Span(verdict.sentence)]) > room and len(name) < len(head)
    return f"{name}: {figures}" if shorter else verdict.sentence


def footer_line(hints: Sequence[tuple[str, str]], width: int) -> Line:
    """` b bench   a add ...`: key and word, as many as fit."""
    line: list[Span] = [Span(" ")]
    for key, word in hints:
        piece = [Span(key, "key"), Span(f" {word}", "dim")]
        gap = [Span("   ")] if len(line) > 1 else []
        if width_of([*line, *gap, *piece]) > width:
            break
        line += [*gap, *piece]
    return tuple(line)


def toast_line(level: str, message: str, hint: str, width: int, whole_key: str = "") -> Line:
    """A word to the operator over the whole footer; too long, its end goes, and `whole_key` shows it all."""
    style = {"error": "bad", "warning": "warn"}.get(level, "loud")
    mark = {"error": "✗", "warning": "▲"}.get(level, "✓")
    said = Span(message, style if level != "info" else "")
    line = (Span(f" {mark} ", style), said, *([Span(f"  {hint}", "dim")] if hint else []))
    if width_of(line) <= width:
        return line
    tail: Line = (Span(f" {whole_key}", "key"), Span(" all", "dim")) if whole_key else ()
    return _cut((*_cut(line, max(0, width - width_of(tail))), *tail), width)


def server_name(server: Server) -> str:
    """`:30001` on this box, else `host:port`."""
    host, port = address(server.endpoint)
    return port if host in ("127.0.0.1", "localhost", "::1") and port else f"{host}{port}"


def _server_parts(state: State) -> list[Part]:
    reading = state.last("server", ServerReading)
    if reading is None:
        return []
    server = reading.current_server
    if server is None:
        return [Part(6, (Span("no server found", "dim"),))]
    parts = [Part(7, (Span(ENGINE_NAMES.get(server.engine, server.engine)),))]
    if server.version:
        parts.append(Part(2, (Span(server.version, "dim"),)))
    parts.append(Part(6, (Span(server_name(server)),)))
    if server.status != "up":
        return [*parts, Part(8, (Span(server.status.replace("_", " "), "bad"),))]
    model = (server.served_name or server.model or "").rsplit("/", 1)[-1]
    if model:
        dtype = f" {server.weights_dtype}" if server.weights_dtype else ""
        parts.append(Part(6, (Span(model, "loud"), Span(dtype))))
    where = _where(server)
    if where:
        parts.append(Part(3, (Span(where),)))
    if len(reading.servers) > 1:
        at = next(n for n, one in enumerate(reading.servers, 1) if one is server)
        parts.append(Part(3, (Span(f"server {at} of {len(reading.servers)}", "dim"),)))
    return parts


def _where(server: Server) -> str:
    sizes = [f"{word}{size}" for word, size in (("TP", server.tp), ("PP", server.pp), ("DP", server.dp)) if size]
    if server.tp is not None:
        sizes = [size for size in sizes if not size.endswith(("PP1", "DP1"))]
    gpus = server.gpu_indices
    if gpus:
        shown = ",".join(map(str, gpus)) if len(gpus) <= 4 else f"{gpus[0]}..{gpus[-1]}"
        sizes.append(f"on gpu {shown}")
    return " ".join(sizes)


def _right_parts(state: State, situation: Situation) -> list[Part]:
    parts: list[Part] = []
    if state.header.simulated or is_simulated(state.last("server", ServerReading)):
        parts.append(Part(10, (Span("SIMULATED", "warn"),)))
    replay = state.last("replay", ReplayReading)
    if replay is not None:
        parts.append(Part(10, (Span(_replay_words(replay), "warn"),)))
    elif situation.frozen:
        parts.append(Part(10, (Span("FROZEN", "warn"),)))
    record = state.last("record", RecordReading)
    if record is not None and record.path is not None and record.since_ns is not None:
        length = words.duration(max(0, state.now_ns - record.since_ns) / SECOND_NS)
        parts.append(Part(8, (Span(f"REC {length}", "bad"),)))
    if situation.readonly:
        parts.append(Part(4, (Span("readonly", "dim"),)))
    parts.append(Part(8, (Span(words.clock_time(state.wall_ns)),)))
    if replay is None and situation.period_s is not None:
        parts.append(Part(2, (Span(_rate_words(situation.period_s), "dim"),)))
    parts.append(Part(4, (Span(situation.help_key, "key"), Span("help", "dim"))))
    return parts


def _replay_words(replay: ReplayReading) -> str:
    speed = "paused" if replay.speed == 0 else f"x{replay.speed:g}"
    state = "END" if replay.ended else speed
    return f"REPLAY {_minutes(replay.position_s)}/{_minutes(replay.duration_s)} {state}"


def _minutes(seconds: float) -> str:
    whole = int(seconds)
    hours = f"{whole // 3600}:" if whole >= 3600 else ""
    return f"{hours}{whole // 60 % 60:02d}:{whole % 60:02d}"


def _rate_words(period_s: float) -> str:
    return f"{1 / period_s:g} Hz" if period_s <= 1 else f"every {period_s:g} s"


def _broken_line(state: State) -> Line | None:
    """The engine's own end, or the pipe's: then no figure on the screen is fresh."""
    for source in ("engine", "pipe"):
        failure = state.lane(source).failure
        if failure is not None:
            hint = (Span(f"  {failure.hint}", "dim"),) if failure.hint else ()
            return (Span(f"✗ {_ended_words(state) if source == 'pipe' else failure.message}", "bad"), *hint)
    return None


def _ended_words(state: State) -> str:
    since_ns = state.lane("pipe").failure_since_ns
    ago = words.duration((state.now_ns - (state.now_ns if since_ns is None else since_ns)) / SECOND_NS)
    return f"pipe ended {ago} ago: restart decodetop"


def _failing_line(state: State, width: int) -> Line | None:
    """The source that failed last; what is not there at all is no news."""
    failing = [
        (lane.failure_since_ns or 0, source, lane.failure)
        for source, lane in state.lanes.items()
        if lane.failure is not None and lane.failure.kind != "absent"
    ]
    if not failing:
        return None
    _, source, failure = max(failing, key=lambda one: one[:2])
    more = (Span(f"  and {len(failing) - 1} more", "dim"),) if len(failing) > 1 else ()
    return _cut((Span(f"▲ {source} {failure.kind}", "bad"), Span(f": {failure.message}"), *more), width)


def _spread(left: Sequence[Part], right: Sequence[Part], width: int) -> Line:
    """Both sides with a gap between; parts of the lowest `keep` go while it is too wide, the rightmost first."""
    kept_left, kept_right = list(left), list(right)
    while len(kept_left) + len(kept_right) > 1 and _wide(kept_left) + _wide(kept_right) + GAP > width:
        lowest = min(part.keep for part in (*kept_left, *kept_right))
        side = kept_left if any(part.keep == lowest for part in kept_left) else kept_right
        at = max(at for at, part in enumerate(side) if part.keep == lowest)
        del side[at]
    one, two = _joined(kept_left), _joined(kept_right)
    return (*one, Span(" " * max(0, width - width_of(one) - width_of(two))), *two)


def _wide(parts: Sequence[Part]) -> int:
    return width_of(_joined(parts))


def _joined(parts: Sequence[Part]) -> Line:
    line: list[Span] = []
    for part in parts:
        line += [Span(" " * GAP), *part.spans] if line else part.spans
    return tuple(line)


def _cut(line: Line, room: int) -> Line:
    """At most `room` cells, ending in … where something went."""
    found: list[Span] = []
    left = room
    for text, style in line:
        size = width_of([Span(text)])
        if size <= left:
            found.append(Span(text, style))
            left -= size
            continue
        if left > 0:
            found.append(Span(clip(text, left), style))
        break
    return tuple(found)
