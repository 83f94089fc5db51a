"""Diagnose: on a simulated server from the load to the checklist, and each stage on its own."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.bench.reading import Environment, GpuSpan, Metrics, Quantiles, Run
from decodetop.bench.store import RunStore
from decodetop.cli import main
from decodetop.diagnosis.store import DiagnosisStore
from decodetop.errors import DataError
from decodetop.floor.hardware import load, named
from decodetop.flows.diagnose_offer import offer
from decodetop.flows.floor import Ask, answer
from decodetop.flows.judging import clocks_of_run, conclude, explains, of_run, token_ms
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.sim.process import SimServer, start_server
from decodetop.steps.analyse import analyse
from decodetop.steps.reading import StepsReport
from decodetop.todo.store import TodoStore
from decodetop.todo.view import todos_of

TESTS = Path(__file__).resolve().parents[1]
CONFIG = TESTS / "floor" / "configs" / "qwen3-8b.json"
NOGRAPH = next((TESTS / "captures" / "sglang_tp1_nograph" / "prof_c1").glob("*.gz"))
EIGHT = next((TESTS / "captures" / "sglang_tp1_graph" / "prof_c8").glob("*.gz"))


@pytest.fixture(scope="module")
def sim() -> Iterator[SimServer]:
    server = start_server(graphs=False)
    yield server
    server.stop()


def diagnose(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[int, Any, str]:
    config = folder / "config.toml"
    config.write_text("", "utf-8")
    code = main([
        "diagnose", "--model", str(CONFIG), "--gpu", "H200", "--json", *words, "--investigation", str(folder / "inv"),
        "--config", str(config),
    ])  # fmt: skip
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else None, said.err


def test_from_the_load_to_the_checklist(
    tmp_path: Path, sim: SimServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DECODETOP_API_KEY", "")
    code, data, err = diagnose(
        capsys, tmp_path, "--endpoint", sim.endpoint, "--requests", "2", "--output-tokens", "8", "--input-tokens", "16",
        "--steps", str(NOGRAPH),
    )  # fmt: skip
    assert code == 0, err
    assert [(stage["name"], stage["status"]) for stage in data["stages"]] == [
        ("measure", "done"), ("steps", "done"), ("judge", "done"), ("checklist", "done"),
    ]  # fmt: skip
    assert data["endpoint"] == sim.endpoint
    run, report = data["run"], data["report"]
    assert report["plan"]["batch"] == 1 and report["plan"]["context"] == 16 + 4
    times = run["metrics"]["itl_ms"] or run["metrics"]["tpot_ms"]
    assert report["t_meas_ms"] == pytest.approx(times["p50"])
    assert report["moves"] and len(data["todo_ids"]) == len(report["moves"])
    assert "measure: done, run 1" in err
    again, data, err = diagnose(capsys, tmp_path, "--endpoint", sim.endpoint, "--run", "1", "--steps", str(NOGRAPH))
    assert again == 0 and data["todo_ids"] == [], "the same moves are open already"
    assert (data["stages"][0]["name"], data["stages"][0]["status"]) == ("measure", "skipped")
    assert data["report"]["t_meas_ms"] == report["t_meas_ms"]


def test_one_action_profiles_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DECODETOP_API_KEY", "")
    with start_server(graphs=False) as own:
        code, data, err = diagnose(
            capsys, tmp_path, "--endpoint", own.endpoint, "--requests", "2", "--output-tokens", "8",
            "--input-tokens", "16", "--yes", "-o", str(tmp_path / "report.md"),
        )  # fmt: skip
    assert code == 0, err
    assert [stage["status"] for stage in data["stages"]] == ["done"] * 4, err
    assert data["report"]["verdict"]["id"] == "host_bound"
    (capture,) = (tmp_path / "inv" / "captures").glob("*.json")
    assert data["capture_id"] == capture.stem
    todo = todos_of(TodoStore(tmp_path / "inv").read().items)[0]
    assert [(one.kind, one.ref) for one in todo.evidence] == [
        ("run", "1"), ("capture", capture.stem), ("report", data["id"]), ("move", data["report"]["moves"][0]["id"]),
    ]  # fmt: skip
    assert DiagnosisStore(tmp_path / "inv").newest() is not None
    assert "host-bound" in (tmp_path / "report.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--endpoint", "127.0.0.1:1"], "nobody can answer here"),
        (["--endpoint", "127.0.0.1:1", "--yes", "--readonly"], "refused with --readonly"),
        (["--endpoint", "127.0.0.1:1", "--measured-ms", "5", "--readonly"], "refused with --readonly"),
    ],
)
def test_it_asks_first_and_readonly_refuses(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    code, _, err = diagnose(capsys, tmp_path, *words)
    assert code == 2 and said in err and "hint: " in err


def test_readonly_may_judge_what_was_had_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--measured-ms", "19.347", "--steps", str(NOGRAPH), "--readonly", "--endpoint", "127.0.0.1:1")
    code, data, err = diagnose(capsys, tmp_path, *given)
    assert code == 0, err
    assert [stage["status"] for stage in data["stages"]] == ["skipped", "done", "done", "done"]


def quantiles(value: float) -> Quantiles:
    return Quantiles(n=100, mean=value, p50=value, p90=value, p99=value)


def a_run(sim_run: Run, **changes: Any) -> Run:
    return msgspec.structs.replace(sim_run, **changes)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, sim: SimServer) -> Run:
    folder = tmp_path_factory.mktemp("run")
    (folder / "config.toml").write_text("", "utf-8")
    main([
        "bench", "run", "single", "--endpoint", sim.endpoint, "--requests", "2", "--output-tokens", "8",
        "--input-tokens", "16", "--json", "--investigation", str(folder), "--config", str(folder / "config.toml"),
    ])  # fmt: skip
    store = RunStore(folder)
    try:
        return store.get(1)
    finally:
        store.close()


def metrics(base: Run, **changes: Any) -> Run:
    found: Metrics = msgspec.structs.replace(base.metrics, **changes)
    return a_run(base, metrics=found)


def test_time_per_token(stored: Run) -> None:
    assert token_ms(metrics(stored, itl_ms=quantiles(5.1), tpot_ms=quantiles(5.2))) == 5.1
    assert token_ms(metrics(stored, itl_ms=None, tpot_ms=quantiles(5.2))) == 5.2
    assert token_ms(metrics(stored, itl_ms=None, tpot_ms=None)) is None
    uneven = Quantiles(n=100, mean=5.1, p50=2.0, p90=9.0, p99=9.0)
    assert token_ms(metrics(stored, itl_ms=uneven, accept_length=2.5)) == 5.1, "a chunk's tokens share its gap"


def test_what_was_asked_for_goes_before_the_run(stored: Run) -> None:
    run = metrics(stored, itl_ms=quantiles(5.1), accept_length=3.8)
    ask = of_run(Ask(), run)
    assert (ask.token_ms, ask.accept_length, ask.batch, ask.context) == (5.1, 3.8, 1, 20)
    asked = of_run(Ask(token_ms=4.0, accept_length=2.0, context=9), run)
    assert (asked.token_ms, asked.accept_length, asked.context) == (4.0, 2.0, 9)
    two = a_run(run, plan=msgspec.structs.replace(run.plan, streams=2))
    with pytest.raises(DataError, match="has 2 streams"):
        of_run(Ask(), two)


def test_a_capture_of_several_sequences_explains_its_own_step_only(stored: Run) -> None:
    assert explains(StepsReport()) == "no decode step can be shown"
    assert explains(analyse([NOGRAPH])) is None
    assert "batch of 8" in (explains(analyse([EIGHT])) or "")
    with_time = analyse([EIGHT], itl_ms=5.57)
    assert explains(with_time) is None
    run = metrics(stored, itl_ms=quantiles(5.1), accept_length=None)
    report = conclude(Ask(model=CONFIG), named("H200", load()), server=None, steps=with_time, run=run, gpus=None)
    assert (report.plan.batch, report.t_meas_ms) == (8, 5.57), "the step that was profiled, not the one stream's"


def test_clocks_are_those_of_the_load(stored: Run) -> None:
    spans = (
        GpuSpan(index=0, n=9, utilization_percent_mean=1.0, sm_clock_mhz_mean=345.0),
        GpuSpan(index=1, n=9, utilization_percent_mean=99.0, sm_clock_mhz_mean=1200.4, mem_clock_mhz_mean=3201.0),
    )
    run = a_run(stored, environment=Environment(decodetop="x", gpus=spans))
    gpus = GpuReading(gpus=tuple(Gpu(index=at, sm_clock_max_mhz=1980, mem_clock_max_mhz=3201) for at in (0, 1)))
    clocks = clocks_of_run(run, gpus)
    assert clocks is not None and (clocks.sm, clocks.sm_max, clocks.memory) == (1200, 1980, 3201)
    assert clocks_of_run(run, None) is None


def test_moves_become_items_with_hypothesis_and_effect(tmp_path: Path, stored: Run) -> None:
    run = metrics(stored, itl_ms=quantiles(19.347), accept_length=None)
    report = conclude(
        Ask(model=CONFIG), named("H200", load()), server=None, steps=analyse([NOGRAPH]), run=run, gpus=None
    )
    assert report.verdict is not None and report.verdict.id == "host_bound"
    ids, edit = offer(report, tmp_path, 5)
    assert (edit.before.items, len(edit.after.items)) == ((), len(ids))
    assert len(ids) == len(report.moves) > 0
    todos = todos_of(TodoStore(tmp_path).read().items)
    first = todos[0]
    assert first.id == ids[0] and "remove --disable-cuda-graph" in first.content
    assert first.hypothesis == report.verdict.sentence and "of the step" in (first.expected or "")
    assert first.priority == "high" and "may fail at start" in (first.notes or "")
    assert offer(report, tmp_path, 6)[0] == ()


def test_without_a_verdict_worth_a_move_nothing_is_added(tmp_path: Path) -> None:
    report = answer(Ask(model=CONFIG), named("H200", load()))
    bare = msgspec.structs.replace(report, moves=())
    assert offer(bare, tmp_path, 5)[0] == ()


def test_a_report_that_can_not_be_written_does_not_cost_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, data, err = diagnose(
        capsys, tmp_path, "--measured-ms", "19.3", "--no-capture", "-o", str(tmp_path / "none" / "x.md")
    )
    assert code == 1 and data["report"]["verdict"] is not None
    assert "can't write" in err and "name a file in a folder that can be written" in err
    code, data, err = diagnose(capsys, tmp_path, "--measured-ms", "19.3", "--no-capture", "-o", str(tmp_path))
    assert code == 0 and "wrote" in err and list(tmp_path.glob("snapshot-*.md"))
