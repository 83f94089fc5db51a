"""`decodetop floor` from the command line: data, words, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from decodetop.cli import main

TESTS = Path(__file__).resolve().parents[1]
CONFIGS = TESTS / "floor" / "configs"
TRACE = next((TESTS / "captures" / "sglang_tp1_graph" / "prof_c1").glob("*.gz"))


@pytest.fixture(autouse=True)
def _nothing_of_this_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings, calibration or server of whoever runs the tests."""
    monkeypatch.setenv("DECODETOP_INVESTIGATION", str(tmp_path / "investigation"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("DECODETOP_ENDPOINT", raising=False)


def floor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code = main(["floor", *words, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else None, said.err


def test_a_model_and_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    code, data, err = floor(capsys, "--model", str(CONFIGS / "llama-3.1-8b.json"), "--gpu", "H200")
    assert (code, err) == (0, "")
    assert data["params"] == {"total": 8030261248, "active": 8030261248, "active_without_embedding": 7504924672}
    assert data["t_phys_ms"] == pytest.approx((15.0098 + 1024 * 131072 / 1e9 - 0.06) / 4.8, rel=0.001)
    assert (data["t_meas_ms"], data["gap_ms"]) == (None, None)
    assert data["verdict"]["id"] == "not_enough_evidence"


def test_everything_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    code, data, _ = floor(
        capsys, "--model", str(CONFIGS / "qwen3.5-27b.json"), "--gpu", "RTX A6000", "--tp", "2", "--batch", "1",
        "--context", "1", "--draft-steps", "3", "--accept-length", "2.33", "--measured-ms", "18.18",
    )  # fmt: skip
    assert code == 0
    assert data["verdict"]["id"] == "hardware_bound"
    assert 0.82 <= data["weights_share_of_bytes"] <= 0.84
    assert data["plan"]["verify_tokens"] == 4
    assert data["t_meas_ms"] == pytest.approx(18.18 * 2.33)


def test_a_trace_and_a_steps_report_say_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = ("--model", str(CONFIGS / "qwen3-8b.json"), "--gpu", "H200")
    _, from_trace, _ = floor(capsys, *model, "--steps", str(TRACE), "--measured-ms", "5.112")
    assert main(["steps", str(TRACE), "--itl-ms", "5.112", "--json"]) == 0
    report = tmp_path / "steps.json"
    report.write_text(capsys.readouterr().out, "utf-8")
    _, from_report, _ = floor(capsys, *model, "--steps", str(report))
    assert from_trace["verdict"]["id"] == "memory_bound_near_limit"
    assert from_report["verdict"] == from_trace["verdict"]
    assert from_report["gap_ms"] == from_trace["gap_ms"]


def test_the_batch_is_the_trace_s_unless_said_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    eight = next((TESTS / "captures" / "sglang_tp1_graph" / "prof_c8").glob("*.gz"))
    model = ("--model", str(CONFIGS / "qwen3-8b.json"), "--gpu", "H200", "--steps", str(eight))
    _, data, _ = floor(capsys, *model)
    assert data["plan"]["batch"] == 8 and data["errors"] == []
    _, data, _ = floor(capsys, *model, "--batch", "2")
    assert data["plan"]["batch"] == 2 and "batch of 8" in data["errors"][0]


def test_plain_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["floor", "--model", str(CONFIGS / "qwen3-8b.json"), "--gpu", "H200", "--measured-ms", "5.112"]
    assert main(words) == 0
    plain = capsys.readouterr().out
    assert plain.startswith("qwen3 on H200") and "assumed:" not in plain
    assert main([*words, "--explain"]) == 0
    assert "assumed:" in capsys.readouterr().out


def test_what_the_user_knows_better(capsys: pytest.CaptureFixture[str]) -> None:
    base = ("--model", str(CONFIGS / "qwen3-8b.json"), "--gpu", "RTX A6000", "--tp", "2")
    _, plain, _ = floor(capsys, *base)
    _, own, _ = floor(
        capsys, *base, "--link", "nvlink", "--bandwidth", "700", "--efficiency", "0.8", "--allreduce-us", "20",
        "--layer-us", "10",
    )  # fmt: skip
    assert (plain["hardware"]["link"], own["hardware"]["link"]) == ("pcie", "nvlink")
    assert own["t_memory_ms"] == pytest.approx(plain["t_memory_ms"] * 768 / 700)
    assert own["parts_ms"]["allreduce"] == pytest.approx(74 * 0.020)
    assert own["parts_ms"]["per_layer"] == pytest.approx(0.36)
    assert {one["origin"] for one in own["constants"]} == {"user"}


def test_dp_attention_alone_means_one_group_per_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    base = ("--model", str(CONFIGS / "deepseek-v3.json"), "--gpu", "H200", "--tp", "8", "--batch", "8")
    _, data, _ = floor(capsys, *base, "--dp-attention")
    assert data["plan"]["dp_attention"] == 8
    _, data, _ = floor(capsys, *base, "--dp-attention", "2")
    assert data["plan"]["dp_attention"] == 2


@pytest.mark.parametrize(
    ("words", "code", "word"),
    [
        (["--model", "gone", "--gpu", "H200"], 1, "there is no gone"),
        (["--model", str(CONFIGS / "gemma-4-26b-a4b.json"), "--gpu", "H200"], 1, "not supported"),
        (["--model", str(CONFIGS / "qwen3-8b.json"), "--gpu", "H9000"], 2, "not in the table"),
        (["--model", str(CONFIGS / "qwen3-8b.json"), "--gpu", "H200", "--tp", "7"], 2, "32 attention heads"),
        (["--model", str(CONFIGS / "qwen3-8b.json"), "--gpu", "H200", "--kv-dtype", "x"], 1, "KV dtype 'x'"),
        (["--model", str(CONFIGS / "qwen3-8b.json"), "--gpu", "H200", "--steps", "gone.json"], 1, "gone.json"),
    ],
)
def test_what_is_wrong_is_said(capsys: pytest.CaptureFixture[str], words: list[str], code: int, word: str) -> None:
    found, data, err = floor(capsys, *words)
    assert (found, data) == (code, None)
    assert word in err and "Traceback" not in err


@pytest.mark.parametrize("words", [["--tp", "0"], ["--batch", "x"], ["--measured-ms", "-1"], ["--efficiency", "1.5"]])
def test_bad_numbers_are_usage_errors(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["floor", "--model", "x", *words])
    assert caught.value.code == 2
    capsys.readouterr()


def test_without_a_gpu_the_card_has_to_be_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from decodetop.gpu.machine import Machine
    from decodetop.gpu.probe import GpuProbe

    async def absent(_: GpuProbe) -> None:
        raise Machine().why_not(None)

    monkeypatch.setattr(GpuProbe, "read", absent)
    code, _, err = floor(capsys, "--model", str(CONFIGS / "qwen3-8b.json"))
    assert code == 2 and "no GPU" in err and "--gpu NAME" in err


def test_a_calibration_is_kept_and_used_for_what_ifs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    base = ("--model", str(CONFIGS / "qwen3-8b.json"), "--gpu", "H200", "--investigation", str(tmp_path))
    traced = ("--steps", str(TRACE), "--measured-ms", "5.112")
    _, before, _ = floor(capsys, *base, *traced)
    code, judged, err = floor(capsys, *base, *traced, "--calibrate")
    assert code == 0 and str(tmp_path / "calibration.json") in err
    assert judged["t_prac_ms"] == before["t_prac_ms"], "the step itself is judged by the shipped constants"
    _, what_if, _ = floor(capsys, *base, "--batch", "8")
    assert {one["origin"] for one in what_if["constants"]} == {"measured"}
    code, _, err = floor(capsys, *base, "--calibrate")
    assert code == 2 and "--steps" in err


def test_a_model_too_large_for_the_card_is_said_in_words_and_data(capsys: pytest.CaptureFixture[str]) -> None:
    """The bound of 29 ms would be that of a step no such card can do."""
    words = ("--model", str(CONFIGS / "llama-3.1-70b.json"), "--gpu", "H100")
    code, data, _ = floor(capsys, *words)
    assert code == 0 and data["capacity"]["fits"] is False
    assert data["capacity"]["weights"] == 141107412992 and data["capacity"]["memory"] == 80 * 2**30
    assert [line for line in data["assumptions"] if line.startswith("does not fit: one GPU must hold 131.4 GiB")]
    assert main(["floor", *words]) == 0
    assert "does not fit: one GPU must hold 131.4 GiB of weights + 0.31 of KV" in capsys.readouterr().out
