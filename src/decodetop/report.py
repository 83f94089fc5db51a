"""The markdown snapshot: State -> markdown, in instrument order. Pure; stable bytes for the same state."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from decodetop import __version__
from decodetop.bench import text as bench_text
from decodetop.bench.reading import BenchReading
from decodetop.core.clock import SECOND_NS
from decodetop.core.outside import escape, harmless, plain
from decodetop.core.sample import Reading
from decodetop.core.state import State
from decodetop.core.words import duration
from decodetop.findings import evaluate
from decodetop.gpu import text as gpu_text
from decodetop.gpu.reading import GpuReading
from decodetop.host import text as host_text
from decodetop.host.reading import HostReading
from decodetop.server import text as server_text
from decodetop.server.reading import ServerReading
from decodetop.server.redact import redact_text
from decodetop.steps import text as steps_text
from decodetop.steps.reading import StepsReading
from decodetop.todo import text as todo_text
from decodetop.todo.reading import TodoReading

SCHEMA = 1

_SECTIONS: tuple[tuple[str, str, type[Reading], Callable[[Any], list[str]]], ...] = (
    ("todo", "Checklist", TodoReading, todo_text.markdown),
    ("gpu", "GPUs", GpuReading, gpu_text.markdown),
    ("server", "Inference server", ServerReading, server_text.markdown),
    ("bench", "Benchmarks", BenchReading, bench_text.markdown),
    ("steps", "Decode step", StepsReading, steps_text.markdown),
    ("host", "Host", HostReading, host_text.markdown),
)


def markdown(state: State) -> str:
    """The snapshot as GitHub markdown with front matter; ends with a newline. Secrets are redacted once more."""
    lines = [*_front(state), "", *_findings(state)]
    for source, title, kind, section in _SECTIONS:
        lines += ["", *_section(state, source, title, kind, section)]
    text = redact_text("\n".join(lines)).rstrip("\n") + "\n"
    return "\n".join(map(harmless, text.split("\n")))


def stamp(wall_ns: int) -> str:
    """`2026-11-30T14:03:27Z`."""
    return datetime.fromtimestamp(wall_ns // SECOND_NS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def file_name(state: State) -> str:
    """Where a snapshot goes by default: `snapshot-20261130T140327Z.md`."""
    return f"snapshot-{stamp(state.wall_ns).replace('-', '').replace(':', '')}.md"


def _front(state: State) -> list[str]:
    made = stamp(state.wall_ns)
    host = plain(state.header.host)
    todo = state.last("todo", TodoReading)
    title = todo.title if todo is not None and todo.title else f"decodetop snapshot of {host}"
    lines = [
        "---",
        f"schema: {SCHEMA}",
        f"decodetop: {__version__}",
        f"host: {_yaml(host)}",
        f"made: {made}",
        f"simulated: {'true' if state.header.simulated else 'false'}",
        "---",
        "",
        f"# {escape(title)}",
        "",
    ]
    if state.header.simulated:
        lines += ["> **SIMULATED**: these figures come from decodetop's own simulated box, not from hardware.", ""]
    watched = duration(state.now_ns / SECOND_NS)
    return [*lines, f"{escape(host)}, {made}, watched for {watched}, decodetop {__version__}."]


def _yaml(text: str) -> str:
    """A name as it is, anything else quoted: a tape's host may be any text."""
    return text if re.fullmatch(r"[A-Za-z_][\w.\-]*", text) else json.dumps(text)


def _findings(state: State) -> list[str]:
    found = evaluate(state)
    if not found:
        return ["## Findings", "", "None."]
    lines = ["## Findings", ""]
    for one in found:
        since = stamp(state.header.started_wall_ns + one.since_ns)
        lines.append(f"- **{one.severity}**: {escape(one.title)}: {escape(one.evidence)} (since {since})")
    return lines


def _section(
    state: State, source: str, title: str, kind: type[Reading], section: Callable[[Any], list[str]]
) -> list[str]:
    """The instrument's own section; with a failure on top, or instead when nothing was ever read."""
    lane = state.lane(source)
    lines = section(lane.last) if isinstance(lane.last, kind) else [f"## {title}", ""]
    if lane.failure is not None:
        hint = f" ({escape(lane.failure.hint)})" if lane.failure.hint else ""
        age = state.age_s(source)
        last_good = "" if age is None else f" Last good {duration(age)} before this snapshot."
        word = f"> **{lane.failure.kind}**: {escape(lane.failure.message)}{hint}.{last_good}"
        return [*lines[:2], word, *([""] if len(lines) > 2 else []), *lines[2:]]
    return lines if lane.last is not None else [*lines, "Not read yet."]
