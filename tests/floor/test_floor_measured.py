"""Published decode speeds against the bound: none beats it, and the bytes are those of the reference table."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import pytest

from decodetop.floor.floor import compute
from decodetop.floor.hardware import Override, load, named
from decodetop.floor.model import open_model
from decodetop.floor.reading import FloorReport, Plan

HERE = Path(__file__).parent
CONFIGS = HERE / "configs"
with (HERE / "measured.csv").open(encoding="utf-8") as file:
    ROWS = {row["case"]: row for row in csv.DictReader(file)}


class Case(NamedTuple):
    """`lower`: the table counts the bytes of the hard bound, else the expected ones."""

    config: str
    gpu: str
    tp: int = 1
    pp: int = 1
    dtype: str | None = None
    lower: bool = True


def cases() -> dict[str, Case]:
    out = {
        f"Llama-3-8B F16 llama.cpp {card}": Case("llama-3.1-8b", gpu)
        for card, gpu in {
            "A6000": "RTX A6000", "3090": "RTX 3090", "4090": "RTX 4090", "RTX 6000 Ada": "RTX 6000 Ada", "A40": "A40",
            "L40S": "L40S", "A100 SXM 80": "A100 80GB SXM", "H100 PCIe": "H100 PCIe",
        }.items()
    }  # fmt: skip
    a100, pro = "A100 80GB SXM", "RTX PRO 6000"
    out |= {
        "Llama-3-70B F16 4xA6000 layer split": Case("llama-3.1-70b", "RTX A6000", pp=4),
        "Llama-2-7B bf16 TP1 A100-80": Case("llama-2-7b", a100),
        "Llama-2-7B bf16 TP8 A100-80": Case("llama-2-7b", a100, tp=8),
        "Llama-2-70B int8 TP1 A100-80": Case("llama-2-70b", a100, dtype="int8"),
        "Llama-3.1-8B bf16 TP1 A100-80": Case("llama-3.1-8b", a100),
        "Llama-3.1-70B bf16 TP4 A100-80": Case("llama-3.1-70b", a100, tp=4),
        "Llama-3.1-405B int8 TP8 A100-80": Case("llama-3.1-405b", a100, tp=8, dtype="int8"),
        "Mixtral-8x7B bf16 TP2 A100-80": Case("mixtral-8x7b", a100, tp=2),
        "Mixtral-8x7B bf16 TP8 A100-80": Case("mixtral-8x7b", a100, tp=8),
        "Qwen3-8B BF16 SGLang H20": Case("qwen3-8b", "H20"),
        "Qwen3-32B FP8 SGLang H20": Case("qwen3-32b-fp8", "H20"),
        "Qwen3-30B-A3B BF16 SGLang H20": Case("qwen3-30b-a3b", "H20"),
        "Qwen3-235B-A22B BF16 SGLang TP8 H20": Case("qwen3-235b-a22b", "H20", tp=8),
        "QwQ-32B BF16 vLLM TP8 H200": Case("qwen2.5-32b", "H200", tp=8),
        "GLM-4.6-FP8 SGLang TP8 H100": Case("glm-4.5", "H100", tp=8, dtype="fp8"),
        "GLM-4.6-FP8 SGLang TP8 PRO 6000": Case("glm-4.5", pro, tp=8, dtype="fp8"),
        "GLM-5.1-NVFP4 vLLM TP8 PRO 6000 no MTP": Case("glm-5-nvfp4", pro, tp=8),
        "GLM-5-NVFP4 SGLang TP8 PRO 6000 example 003 after fix": Case("glm-5-nvfp4", pro, tp=8),
        "MiniMax-M2.5 FP8 vLLM TP4 PRO 6000": Case("minimax-m2.5", pro, tp=4),
        "MiniMax-M2.5 NVFP4 TP2 PRO 6000": Case("minimax-m2.5-nvfp4", pro, tp=2),
        "Nemotron-3-Nano-30B FP8 TP2 B200": Case("nemotron-3-nano-30b-a3b", "B200", tp=2, dtype="fp8"),
        "Llama-2-7B bf16 MI250X GCD": Case("llama-2-7b", "MI250X"),
    }
    for batch in (1, 8, 32, 128):
        name = f"Qwen3.5-397B NVFP4 vLLM TP4 PRO 6000 B={batch}"
        out[name] = Case("qwen3.5-397b-a17b-nvfp4", pro, tp=4, lower=batch == 1)
    return out


CASES = cases()
BYTES_ONLY = {
    "Llama-3-70B Q4_K_M A6000", "Llama-3-70B Q4_K_M RTX 6000 Ada", "Llama-3-70B Q4_K_M 2x3090 layer split",
    "Nemotron-Super-49B FP8 1xB200", "Qwen3-Coder-30B-A3B Q4_K_M 5090 llama.cpp", "Qwen3-Coder-30B-A3B Q4_K_M GB10",
    "Qwen3.8-27B NVFP4 imp 5090", "27B dense ninfer 3090", "DeepSeek-V4-Flash IQ2 GB10",
}  # fmt: skip
"""Rows whose checkpoint is a GGUF mix or a family we refuse: only the table's own bytes can be held against them."""


def report_of(name: str) -> FloorReport:
    case, row = CASES[name], ROWS[name]
    path = CONFIGS / case.config
    model = open_model(path if path.is_dir() else path.with_name(f"{case.config}.json"), case.dtype)
    card = named(case.gpu, load(), Override(bandwidth_gb_s=float(row["spec_bandwidth_GB_per_s"])))
    plan = Plan(tp=case.tp, pp=case.pp, batch=int(row["batch_seqs"]), context=1)
    return compute(model, plan, card, sweep=False)


def test_every_row_is_held_against_something() -> None:
    assert set(CASES) | BYTES_ONLY == set(ROWS)


@pytest.mark.parametrize("name", CASES)
def test_bytes_are_those_of_the_table_and_nothing_measured_beats_the_bound(name: str) -> None:
    report, row = report_of(name), ROWS[name]
    held = report.bytes_low if CASES[name].lower else report.bytes
    assert held.weights / 1e9 == pytest.approx(float(row["step_bytes_GB_per_GPU"]), rel=0.03)
    floor_ms = held.weights / 1e6 / float(row["spec_bandwidth_GB_per_s"])
    assert floor_ms == pytest.approx(float(row["floor_ms"]), rel=0.03)
    assert report.t_phys_ms < float(row["measured_ms"])
    assert report.t_phys_ms <= 1.005 * floor_ms


@pytest.mark.parametrize("name", sorted(BYTES_ONLY))
def test_the_table_s_own_bytes_bound_the_rest(name: str) -> None:
    row = ROWS[name]
    floor_ms = float(row["step_bytes_GB_per_GPU"]) / float(row["spec_bandwidth_GB_per_s"]) * 1e3
    assert floor_ms == pytest.approx(float(row["floor_ms"]), rel=0.01)
    assert floor_ms < float(row["measured_ms"])
