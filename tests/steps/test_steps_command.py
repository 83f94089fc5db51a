"""`decodetop steps` as typed: exit codes, JSON to the contract, one line a fault."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from decodetop.cli import main
from decodetop.steps.reading import GROUPS, IDLE_KINDS, KINDS
from support.kineto import Trace, decode

CAPTURES = Path(__file__).resolve().parents[1] / "captures"
TP2 = sorted(str(path) for path in (CAPTURES / "sglang_tp2_graph/prof_c1").glob("*.gz"))
TP1 = str(next((CAPTURES / "sglang_tp1_graph/prof_c1").glob("*.gz")))
NOGRAPH = str(next((CAPTURES / "sglang_tp1_nograph/prof_c1").glob("*.gz")))


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["steps", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def data(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code, out, err = typed(capsys, *words, "--json")
    return code, json.loads(out), err


CONTRACT = {
    "rank", "file", "batches", "steps", "period_us", "busy_us", "idle_us", "representative_step", "kinds_us",
    "groups_us", "idle_split_us", "communication_us", "real", "kernels_per_step", "graph_launches_per_step",
    "top_kernels", "unknown_share", "coverage",
}  # fmt: skip


def test_json_has_every_field_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    code, report, err = data(capsys, *TP2, "--itl-ms", "3.4246")
    assert (code, err) == (0, "")
    assert {"schema", "engine", "itl_ms", "ranks", "straggler_rank", "errors"} <= set(report)
    assert (report["schema"], report["engine"], report["itl_ms"], report["straggler_rank"]) == (1, "sglang", 3.4246, 1)
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1] and report["errors"] == []
    rank = report["ranks"][0]
    assert set(rank) >= CONTRACT
    assert rank["batches"] == [{"batch_size": 1, "label": "step[DECODE bs=1]", "steps_used": 5}]
    assert rank["steps"] == {
        "found": 7,
        "used": 5,
        "dropped": [{"index": 0, "why": "first"}, {"index": 6, "why": "last"}],
        "other": {"prefill": 0, "idle": 0},
    }
    assert set(rank["period_us"]) == {"representative", "median", "p10", "p90"}
    assert set(rank["kinds_us"]) == set(KINDS) and set(rank["groups_us"]) == set(GROUPS)
    assert set(rank["idle_split_us"]) == set(IDLE_KINDS)
    assert set(rank["communication_us"]) == {"transfer", "waiting"}
    assert {"step_ms", "idle_share", "source"} <= set(rank["real"])
    assert set(rank["top_kernels"][0]) == {"name", "kind", "us_per_step", "calls_per_step", "share"}
    assert rank["coverage"] == {"ok": True, "problems": []}


def test_unknown_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    _, report, _ = data(capsys, TP1)
    (rank,) = report["ranks"]
    assert report["itl_ms"] is None and report["straggler_rank"] is None and rank["real"] is None
    assert rank["communication_us"] == {"transfer": None, "waiting": None}


def test_plain(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = typed(capsys, NOGRAPH, "--itl-ms", "19.35")
    assert (code, err) == (0, "")
    assert out.startswith("SGLang: step[DECODE bs=1], 5 of 7 decode steps\n")
    assert "idle us: host late" in out


@pytest.mark.parametrize("content", [None, b"", b"no trace", b"\x1f\x8b\x08broken"])
def test_a_file_that_is_none_costs_one_line_and_exit_1(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.trace.json.gz"
    if content is not None:
        path.write_bytes(content)
    code, out, err = typed(capsys, str(path))
    assert (code, out) == (1, "")
    assert err.startswith("decodetop: ") and err.count("\n") == 1 and str(path) in err and "(" in err
    code, report, err = data(capsys, str(path))
    assert code == 1 and report["ranks"] == [] and str(path) in report["errors"][0]


def test_a_partial_failure_is_in_the_json_and_exits_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report, err = data(capsys, TP1, str(tmp_path / "gone.json"))
    assert code == 0 and len(report["ranks"]) == 1 and len(report["errors"]) == 1 and "gone.json" in err


def test_a_truncated_file_still_gives_its_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "short.trace.json.gz"
    whole = next((CAPTURES / "vllm_tp1_graph/prof").glob("rank0*")).read_bytes()
    path.write_bytes(whole[: len(whole) * 4 // 5])
    code, report, _ = data(capsys, str(path))
    (rank,) = report["ranks"]
    assert code == 0 and rank["period_us"]["median"] == pytest.approx(5250.6, rel=0.01)
    assert any("ends early" in problem for problem in rank["coverage"]["problems"])


def test_totals_only_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Trace()
    made.launch(0, [(f"kernel_{at}", at * 10.0, 5.0) for at in range(40)])
    path = str(made.write(tmp_path / "t.json"))
    code, out, _ = typed(capsys, path)
    assert code == 1 and "totals only: no step labels" in out and "▕" not in out
    code, report, _ = data(capsys, path)
    assert code == 1 and report["ranks"][0]["coverage"]["ok"] is False and report["ranks"][0]["kinds_us"] == {}


def test_compare(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = typed(capsys, "compare", TP1, "--to", NOGRAPH)
    assert code == 0 and "+58,406.1" in out
    code, found, _ = data(capsys, "compare", TP1, "--to", NOGRAPH)
    assert code == 0 and found["schema"] == 1
    assert found["period"]["delta_us"] == pytest.approx(58406.122)
    assert found["before_files"] == [TP1] and found["after_files"] == [NOGRAPH]
    code, found, err = data(capsys, "compare", TP1, "--to", "/none.json")
    assert code == 1 and found["period"]["delta_us"] is None and "/none.json" in err


@pytest.mark.parametrize(
    "words",
    [
        ("compare", TP1),
        ("compare", "--to", TP1),
        (TP1, "--to", NOGRAPH),
        (TP1, "--step-label", "("),
        (TP1, "--kinds", "/none.toml"),
    ],
)
def test_usage_faults_exit_2_with_a_hint(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = typed(capsys, *words)
    assert (code, out) == (2, "") and err.startswith("decodetop: ")


@pytest.mark.parametrize("words", [(), (TP1, "--itl-ms", "0"), (TP1, "--itl-ms", "x"), (TP1, "--accept-length", "nan")])
def test_argparse_faults_exit_2(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["steps", *words])
    assert caught.value.code == 2 and "usage: decodetop steps" in capsys.readouterr().err


def test_own_labels_and_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "kinds.toml"
    own.write_text('[[family]]\nkind = "moe"\nmatch = ["nvjet"]\n')
    path = str(decode(6, "forward of 3").write(tmp_path / "t.json"))
    _, report, _ = data(capsys, path, "--step-label", r"^forward of (?P<bs>\d+)", "--kinds", str(own))
    (rank,) = report["ranks"]
    assert rank["batches"][0]["batch_size"] == 3 and rank["kinds_us"]["moe"] == 200


def test_as_a_program_and_a_closed_pipe() -> None:
    command = [sys.executable, "-m", "decodetop", "steps", TP1]
    whole = subprocess.run(command, capture_output=True, text=True, check=False)
    assert whole.returncode == 0 and whole.stderr == "", "no progress where nobody sits at a terminal"
    head = subprocess.run(
        f"{sys.executable} -m decodetop steps {TP1} --json | head -c 10", shell=True, capture_output=True, check=False
    )
    assert head.stderr == b"" and len(head.stdout) == 10
