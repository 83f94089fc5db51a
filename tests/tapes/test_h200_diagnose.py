"""A session on a box with one H200 and SGLang 0.5.15, recorded by `R`: diagnosed by `d`, swept by `b`, noted by `n`."""

from pathlib import Path

import pytest

from decodetop.bench.reading import BenchReading
from decodetop.core.state import State, fold
from decodetop.core.tape import Tape
from decodetop.diagnosis.reading import DiagnosisReading
from decodetop.floor.reading import FloorReading
from decodetop.flows.catalog import codec
from decodetop.log.reading import LogReading
from decodetop.report import markdown
from decodetop.steps.reading import StepsReading
from decodetop.todo.reading import TodoReading

TAPE = Path(__file__).parent / "h200_diagnose.tape"


@pytest.fixture(scope="module")
def end() -> State:
    with Tape(TAPE, codec()) as tape:
        state = State(header=tape.header)
        for sample in tape.samples():
            state = fold(state, sample)
        assert not tape.truncated and tape.codec.unknown == set()
    return state


def test_one_key_measured_profiled_judged_and_planned(end: State) -> None:
    diagnosis = end.last("diagnosis", DiagnosisReading)
    assert diagnosis is not None and diagnosis.latest is not None
    assert [(stage.name, stage.status) for stage in diagnosis.latest.stages] == [
        (name, "done") for name in ("measure", "steps", "judge", "checklist")
    ]
    todo = end.last("todo", TodoReading)
    assert todo is not None and len(todo.todos) == 5
    assert all(item.hypothesis and item.expected and item.evidence for item in todo.todos)


def test_the_floor_is_below_what_was_measured_and_the_gap_adds_up(end: State) -> None:
    """15.1 GB at 4.8 TB/s; the reference names 60-64 % of the step for this stack."""
    floor = end.last("floor", FloorReading)
    assert floor is not None and floor.report is not None
    report = floor.report
    assert report.verdict is not None and report.verdict.id == "memory_bound_near_limit"
    assert report.t_meas_ms is not None and report.gap_ms is not None
    assert 0.60 <= report.t_phys_ms / report.t_meas_ms <= 0.64
    assert sum(report.gap_ms.values()) == pytest.approx(report.t_meas_ms - report.t_phys_ms)


def test_profiled_and_real_step_agree_with_the_server(end: State) -> None:
    steps, bench = end.last("steps", StepsReading), end.last("bench", BenchReading)
    assert steps is not None and bench is not None
    real = steps.captures[0].report.itl_ms
    single = next(run for run in bench.runs if run.id == 1)
    assert real is not None and single.metrics.tpot_ms is not None and single.environment.server is not None
    assert single.metrics.tpot_ms.mean == pytest.approx(real, rel=0.02)
    assert single.environment.server.itl_mean_ms == pytest.approx(single.metrics.tpot_ms.mean, rel=0.02)
    for run in bench.runs:
        assert run.environment.server is not None
        assert run.environment.server.generated_tokens == run.tokens.output


def test_the_log_is_the_story_and_the_report_has_the_verdict(end: State) -> None:
    log = end.last("log", LogReading)
    assert log is not None
    kinds = [entry.kind for entry in log.entries]
    assert kinds[:3] == ["server", "run", "capture"] and kinds.count("status") == 5
    text = markdown(end)
    assert "Memory-bound, near what this stack reaches" in text
    assert "SIMULATED" not in text
