"""The markdown snapshot: State -> the story of an investigation. Pure; stable bytes for the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from decodetop import __version__
from decodetop.bench import text as bench_text
from decodetop.bench.reading import BenchReading
from decodetop.core.clock import SECOND_NS
from decodetop.core.outside import escape, harmless, unlinked
from decodetop.core.sample import Reading
from decodetop.core.state import State
from decodetop.core.words import duration
from decodetop.floor import text as floor_text
from decodetop.floor.reading import FloorReading
from decodetop.gpu import text as gpu_text
from decodetop.gpu.reading import GpuReading
from decodetop.host import text as host_text
from decodetop.host.reading import HostReading
from decodetop.log import text as log_text
from decodetop.log.reading import LogReading
from decodetop.report import block
from decodetop.report.data import Snapshot
from decodetop.report.gather import simulated_runs, snapshot
from decodetop.report.outlook import following, short
from decodetop.report.privacy import Privacy
from decodetop.report.stamps import stamp
from decodetop.report.story import Story, tell
from decodetop.server import text as server_text
from decodetop.server.reading import ServerReading, is_simulated
from decodetop.server.redact import redact_text
from decodetop.steps import text as steps_text
from decodetop.steps.reading import StepsReading
from decodetop.todo import text as todo_text
from decodetop.todo.reading import TodoReading

RUNS_NAMED = 8


class Report(NamedTuple):
    """A snapshot in words and as data. `body` = the markdown without front matter and data."""

    title: str
    body: str
    data: Snapshot

    @property
    def markdown(self) -> str:
        return "\n".join([*block.front(self.data), "", self.body, "", *block.data(self.data)]) + "\n"


def _lane(
    source: str, title: str, kind: type[Reading], write: Callable[[Any], list[str]], *, always: bool = True
) -> Callable[[Story], list[str]]:
    """A section that an instrument writes of its lane. `always` = also of a lane that never said anything."""

    def section(story: Story) -> list[str]:
        lane = story.state.lane(source)
        if lane.last is None and lane.failure is None and not always:
            return []
        lines = write(lane.last) if isinstance(lane.last, kind) else [f"## {title}", ""]
        if lane.failure is None:
            return lines if lane.last is not None else [*lines, "Not read yet."]
        hint = f" ({escape(lane.failure.hint)})" if lane.failure.hint else ""
        age = story.state.age_s(source)
        last_good = "" if age is None else f" Last good {duration(age)} before this snapshot."
        word = f"> **{lane.failure.kind}**: {escape(lane.failure.message)}{hint}.{last_good}"
        return [*lines[:2], word, *([""] if len(lines) > 2 else []), *lines[2:]]

    return section


def _findings(story: Story) -> list[str]:
    if not story.findings:
        return ["## Findings", "", "None."]
    lines = ["## Findings", ""]
    for one in story.findings:
        since = stamp(story.state.header.started_wall_ns + one.since_ns)
        lines.append(f"- **{one.severity}**: {escape(one.title)}: {escape(one.evidence)} (since {since})")
    return lines


SECTIONS: tuple[Callable[[Story], list[str]], ...] = (
    short,
    _lane("gpu", "GPUs", GpuReading, gpu_text.markdown),
    _lane("host", "Host", HostReading, host_text.markdown),
    _lane("server", "Inference server", ServerReading, server_text.markdown),
    _findings,
    _lane("floor", "Can this hardware do better?", FloorReading, floor_text.markdown, always=False),
    _lane("steps", "Decode step", StepsReading, steps_text.markdown),
    _lane("bench", "Benchmarks", BenchReading, bench_text.markdown),
    _lane("todo", "Checklist", TodoReading, todo_text.markdown),
    _lane("log", "Log", LogReading, log_text.markdown, always=False),
    following,
)
"""The order of the story: the question and its answer, the box, what runs on it, what is wrong, how far it is from the
limit and where the time goes, what was measured, what was tried, what happened when, what is next."""


def report(state: State, privacy: Privacy | None = None) -> Report:
    """The snapshot of `state`; keys, home folders and user names are hidden in all of it."""
    story = tell(state, privacy or Privacy())
    lines = _head(story)
    for section in SECTIONS:
        written = section(story)
        lines += ["", *written] if written else []
    body = "\n".join(unlinked(map(harmless, redact_text("\n".join(lines)).rstrip("\n").split("\n"))))
    return Report(title_of(story), body, snapshot(story))


def markdown(state: State, privacy: Privacy | None = None) -> str:
    """The snapshot as GitHub markdown with front matter and data; ends with a newline."""
    return report(state, privacy).markdown


def title_of(story: Story) -> str:
    todo = story.state.last("todo", TodoReading)
    return todo.title if todo is not None and todo.title else f"decodetop snapshot of {story.state.header.host}"


def _head(story: Story) -> list[str]:
    state = story.state
    lines = [f"# {escape(title_of(story))}", ""]
    if state.header.simulated:
        lines += ["> **SIMULATED**: these figures come from decodetop's own simulated box, not from hardware.", ""]
    elif is_simulated(state.last("server", ServerReading)):
        word = (
            "> **SIMULATED**: the server is decodetop's own simulated one; its figures come from no model and no GPU."
        )
        lines += [word, ""]
    elif runs := simulated_runs(state.last("bench", BenchReading)):
        which = ", ".join(str(number) for number in runs[:RUNS_NAMED]) + (", ..." if len(runs) > RUNS_NAMED else "")
        lines += [f"> **SIMULATED**: of the runs below decodetop's own simulated server answered in {which}.", ""]
    watched = duration(state.now_ns / SECOND_NS)
    return [
        *lines,
        f"{escape(state.header.host)}, {stamp(state.wall_ns)}, watched for {watched}, decodetop {__version__}.",
    ]
