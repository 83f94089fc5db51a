"""The floor in words: lines, explanation, markdown, and text from outside."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from decodetop.floor import moves, text
from decodetop.floor.floor import compute
from decodetop.floor.hardware import load, named
from decodetop.floor.measured import measure
from decodetop.floor.model import open_model
from decodetop.floor.reading import FloorReading, FloorReport, Plan
from decodetop.floor.verdict import judged

CONFIGS = Path(__file__).parent / "configs"


def report_of(name: str = "qwen3-8b", gpu: str = "H200", token_ms: float | None = 5.112, **plan: object) -> FloorReport:
    made = Plan(**plan)  # type: ignore[arg-type]
    card = named(gpu, load())
    report = judged(compute(open_model(CONFIGS / f"{name}.json"), made, card), measure(made, token_ms=token_ms))
    return moves.offered(report, card, None, None)


def test_lines() -> None:
    out = text.lines(report_of(), 100)
    assert out[0] == "qwen3 on H200 SXM/NVL: bound 3.17 ms, practice 4.92 ms, measured 5.11 ms a step"
    assert out[1] == "  8.19 B parameters; not quantised; bytes from config"
    assert out[2] == "  TP 1, batch 1 x 1,024 tokens, KV bf16"
    assert any("weights at full bandwidth  15.14 GB a GPU" in line for line in out)
    assert any("at the bound 315.2 tok/s" in line for line in out)
    assert all(len(line) <= 100 for line in out)
    assert any(line.startswith("  1. ") for line in out)


def test_no_move_left_says_why_each_is_out() -> None:
    report = msgspec.structs.replace(report_of(), moves=())
    out = "\n".join(text.lines(report))
    assert "no move is left to offer" in out and "left out: " in out
    assert "left out" not in "\n".join(text.lines(msgspec.structs.replace(report, moves_left_out=())))


def test_parts_in_words_sum_to_practice() -> None:
    for report in (report_of(), report_of("qwen3.5-27b", "RTX A6000", None, tp=2, draft_steps=3, verify_tokens=4)):
        assert sum(getattr(report.parts_ms, name) for name in text.PART_WORDS) == pytest.approx(report.t_prac_ms)
        assert set(text.PART_WORDS) == set(report.parts_ms.__struct_fields__)


def test_drafting_without_an_accept_length_shows_no_rate() -> None:
    report = report_of("qwen3.5-27b", "RTX A6000", 18.2, tp=2, draft_steps=3, verify_tokens=4)
    out = "\n".join(text.lines(report))
    assert "tok/s at the bound: needs the accept length, which was not measured" in out
    assert "drafts 3 (accept length not known)" in out
    assert "drafting pays above an accept length of 1.20" in out
    assert not re.search(r"\d tok/s", out)


def test_explain_names_every_step_and_assumption() -> None:
    report = report_of("qwen3-30b-a3b", batch=4)
    out = "\n".join(text.explain(report, 300))
    for one in report.assumptions:
        assert one in out
    assert "t_phys = the larger" in out and "experts of a layer: 8 at least, 29.1 expected, 32 at most" in out
    assert out.count("\n           ") == len(report.batches) == 9


def test_markdown() -> None:
    out = "\n".join(text.markdown(FloorReading(report=report_of())))
    assert out.startswith("## Can this hardware do better?\n")
    assert "**memory-bound, near the limit** (medium confidence)" in out
    assert "| **practice** | 4.92 | |" in out
    assert "Next moves:" in out and "1. " in out
    none = text.markdown(FloorReading(problem="the model | is elsewhere", hint="give --model"))
    assert none[2] == "No floor: the model \\| is elsewhere (give --model)."
    assert text.markdown(FloorReading())[2] == "No floor: nothing was computed yet."


def test_text_from_outside_is_made_safe(tmp_path: Path) -> None:
    data = json.loads((CONFIGS / "qwen3-8b.json").read_text("utf-8"))
    evil = "a|b`\x1b[31m<b>"
    data["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}, "targets": ["Linear"]}},
    }
    path = tmp_path / "x.json"
    path.write_text(json.dumps(data), "utf-8")
    report = compute(open_model(path), Plan(), named("H200", load()))
    report = msgspec.structs.replace(report, model=msgspec.structs.replace(report.model, quantization=evil))
    assert "\x1b" not in "\n".join(text.lines(report))
    assert "a\\|b\\`" in "\n".join(text.markdown(FloorReading(report=report)))


def test_the_json_has_the_contract_s_names() -> None:
    data = json.loads(msgspec.json.encode(report_of()))
    contract = {
        "schema", "bytes", "flops", "t_phys_ms", "t_prac_ms", "t_meas_ms", "parts_ms", "weights_share_of_bytes",
        "gap_ms", "verdict", "params", "assumptions", "tok_s_at_floor",
    }  # fmt: skip
    assert contract <= set(data)
    assert set(data["bytes"]) == {"weights", "kv", "state", "draft"}
    assert {"weights", "kv", "state", "draft", "allreduce", "per_layer"} <= set(data["parts_ms"])
    assert {"id", "confidence", "because", "ruled_out"} <= set(data["verdict"])
    assert {"what", "because"} == set(data["verdict"]["ruled_out"][0])
    assert {"total", "active"} <= set(data["params"])
    assert data["schema"] == 1
    assert msgspec.json.decode(msgspec.json.encode(report_of()), type=FloorReport) == report_of()
