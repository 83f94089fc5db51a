"""State -> `Snapshot`: the facts of a snapshot, as the instruments said them. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from decodetop import __version__
from decodetop.bench import text as bench_text
from decodetop.bench.reading import BenchReading, Run
from decodetop.core.state import State
from decodetop.floor import text as floor_text
from decodetop.floor.reading import FloorReading, FloorReport
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.host.reading import HostReading
from decodetop.report.data import (
    SCHEMA,
    AttemptFact,
    Box,
    CaptureFact,
    Card,
    FindingFact,
    FloorFact,
    ItemFact,
    RunFact,
    ServerFact,
    Snapshot,
)
from decodetop.report.stamps import stamp
from decodetop.report.story import Story
from decodetop.server import text as server_text
from decodetop.server.reading import Server, ServerReading, is_simulated
from decodetop.server.redact import redact_text
from decodetop.steps.reading import Capture, StepsReading
from decodetop.todo.reading import Attempt, Evidence, Todo, TodoReading

PLACES = 4
"""Of a figure: what a machine's arithmetic adds behind them is no fact."""


def snapshot(story: Story) -> Snapshot:
    state = story.state
    todo, bench, steps = (
        state.last("todo", TodoReading),
        state.last("bench", BenchReading),
        state.last("steps", StepsReading),
    )
    server, floor = state.last("server", ServerReading), state.last("floor", FloorReading)
    hashes = story.hashes
    runs = [_run(run, hashes.runs.get(run.id, "")) for run in bench.runs] if bench is not None else []
    captures = (
        [_capture(capture, hashes.captures.get(capture.id, "")) for capture in steps.captures]
        if steps is not None
        else []
    )
    return Snapshot(
        schema=SCHEMA,
        decodetop=__version__,
        made=stamp(state.wall_ns),
        host=state.header.host,
        simulated=state.header.simulated or is_simulated(server) or bool(simulated_runs(bench)),
        anonymous=story.anonymous,
        question=todo.title if todo is not None else None,
        hashes=hashes.whole,
        box=_box(state),
        servers=_servers(server) if server is not None else (),
        findings=tuple(
            FindingFact(id=one.id, severity=one.severity, title=one.title, evidence=one.evidence)
            for one in story.findings
        ),
        floor=_floor(floor.report) if floor is not None and floor.report is not None else None,
        captures=tuple(captures),
        runs=tuple(runs),
        baseline=bench.baseline_id if bench is not None else None,
        items=tuple(map(_item, todo.todos)) if todo is not None else (),
    )


def simulated_runs(bench: BenchReading | None) -> list[int | None]:
    """The numbers of the runs that were made on decodetop's own simulated server."""
    return [] if bench is None else [run.id for run in bench.runs if run.environment.simulated]


def _box(state: State) -> Box:
    gpu, host = state.last("gpu", GpuReading), state.last("host", HostReading)
    return Box(
        host=state.header.host,
        driver=gpu.driver_version if gpu is not None else None,
        cuda=gpu.cuda_version if gpu is not None else None,
        kernel=host.kernel if host is not None else None,
        cpu_count=host.cpu_count if host is not None else None,
        cpu_limit_cores=host.cpu_limit_cores if host is not None else None,
        memory_total_bytes=host.memory_total_bytes if host is not None else None,
        memory_limit_bytes=host.memory_limit_bytes if host is not None else None,
        cards=tuple(map(_card, gpu.gpus)) if gpu is not None else (),
    )


def _card(gpu: Gpu) -> Card:
    return Card(model=gpu.name, **_same(gpu, Card, but=("model",)))


def _servers(reading: ServerReading) -> tuple[ServerFact, ...]:
    return tuple(map(_server, sorted(reading.servers, key=lambda one: one.endpoint != reading.current)))


def _server(server: Server) -> ServerFact:
    flags = server.flags
    return ServerFact(
        command=redact_text(server_text.command(server)) or None,
        asked={flag.name: flag.requested for flag in flags if flag.requested is not None},
        in_force={flag.name: flag.resolved for flag in flags if flag.resolved is not None},
        **_same(server, ServerFact, but=("command", "asked", "in_force")),
    )


def _same(reading: msgspec.Struct, fact: type[msgspec.Struct], but: tuple[str, ...]) -> dict[str, Any]:
    """The fields that a fact takes over from its reading."""
    return {field: getattr(reading, field) for field in fact.__struct_fields__ if field not in but}


def _floor(report: FloorReport) -> FloorFact:
    verdict = report.verdict
    return FloorFact(
        what=f"{report.model.family}, {report.hardware.name}, {floor_text.plan_words(report)}",
        t_phys_ms=round(report.t_phys_ms, PLACES),
        t_prac_ms=round(report.t_prac_ms, PLACES),
        t_meas_ms=_figure(report.t_meas_ms),
        accept_length=_figure(report.plan.accept_length),
        verdict=verdict.id if verdict is not None else None,
        confidence=verdict.confidence if verdict is not None else None,
        sentence=verdict.sentence if verdict is not None else None,
        moves=tuple(move.title for move in report.moves),
    )


def _capture(capture: Capture, sha256: str) -> CaptureFact:
    report = capture.report
    rank = next((rank for rank in report.ranks if rank.period_us is not None), None)
    period = rank.period_us if rank is not None else None
    return CaptureFact(
        id=capture.id,
        sha256=sha256,
        made=stamp(capture.made_wall_ns) if capture.made_wall_ns is not None else None,
        engine=report.engine,
        ranks=len(report.ranks),
        batch=rank.batches[0].batch_size if rank is not None and rank.batches else None,
        itl_ms=_figure(report.itl_ms),
        period_us=period.representative if period is not None else None,
        kinds_us={kind: round(us, PLACES) for kind, us in rank.kinds_us.items() if us} if rank is not None else {},
    )


def _run(run: Run, sha256: str) -> RunFact:
    metrics = run.metrics
    means = {
        name: _figure(value.mean) if value is not None else None
        for name, value in (("ttft_ms", metrics.ttft_ms), ("itl_ms", metrics.itl_ms), ("tpot_ms", metrics.tpot_ms))
    }
    return RunFact(
        id=run.id,
        sha256=sha256,
        started=stamp(run.started_wall_ns),
        preset=run.plan.preset,
        streams=run.plan.streams,
        input_tokens=run.plan.input_tokens,
        output_tokens=run.plan.output_tokens,
        state=bench_text.state(run),
        ok=run.requests.ok,
        failed=run.requests.failed,
        output_tok_s=_figure(metrics.output_tok_s),
        icl_p99_ms=_figure(metrics.icl_ms.p99) if metrics.icl_ms is not None else None,
        accept_length=_figure(metrics.accept_length),
        gates=tuple(f"{gate.severity}: {gate.name}" for gate in run.gates),
        words=bench_text.one_line(run),
        **means,
    )


def _item(todo: Todo) -> ItemFact:
    return ItemFact(
        attempts=tuple(map(_attempt, todo.attempts)),
        evidence=tuple(map(_evidence, todo.evidence)),
        **_same(todo, ItemFact, but=("attempts", "evidence")),
    )


def _attempt(attempt: Attempt) -> AttemptFact:
    made = stamp(attempt.wall_ns) if attempt.wall_ns is not None else None
    return AttemptFact(
        change=attempt.change, outcome=attempt.outcome, reason=attempt.reason, made=made, links=attempt.links
    )


def _evidence(evidence: Evidence) -> str:
    return f"{evidence.kind} {evidence.ref}" + (f": {evidence.summary}" if evidence.summary else "")


def _figure(value: float | None) -> float | None:
    return None if value is None else round(value, PLACES)
