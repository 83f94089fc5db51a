"""Verdicts on recordings and on made-up steps: what several tests of the floor ask for."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from decodetop.floor.floor import compute
from decodetop.floor.hardware import load, named
from decodetop.floor.measured import measure, traced_of
from decodetop.floor.model import open_model
from decodetop.floor.reading import FloorReport, Plan
from decodetop.floor.verdict import judged
from decodetop.steps.analyse import analyse
from decodetop.steps.reading import RankSteps, StepsReport

TESTS = Path(__file__).parent.parent
CAPTURES = TESTS / "captures"
SPECS = load()
FILES = {
    "sgl_tp1_c1": "sglang_tp1_graph/prof_c1/*.gz",
    "sgl_tp1_c8": "sglang_tp1_graph/prof_c8/*.gz",
    "sgl_nograph": "sglang_tp1_nograph/prof_c1/*.gz",
    "sgl_tp2": "sglang_tp2_graph/prof_c1/*.gz",
    "vllm_tp1": "vllm_tp1_graph/prof/rank*.gz",
    "vllm_eager": "vllm_tp1_eager/prof/rank*.gz",
    "vllm_tp2": "vllm_tp2_graph/prof/rank*.gz",
    "ngram": "sglang_ngram_graph/prof_decode/*.gz",
    "long": "sglang_tp1_mixed/prof_mixed/*.gz",
    "moe30b": "sglang_moe30b_graph/prof_decode/*.gz",
    "cast": "cast_full.trace.json.gz",
}


@cache
def steps_of(name: str) -> StepsReport:
    return analyse(sorted(CAPTURES.glob(FILES[name])))


@cache
def config_of(name: str) -> Any:
    path = TESTS / "floor" / "configs" / name
    return open_model(path if path.is_dir() else path.with_name(f"{name}.json"))


def judge(
    name: str | None, *, model: str = "qwen3-8b", gpu: str = "H200", token_ms: float | None = None, **plan: object
) -> FloorReport:
    steps = None if name is None else steps_of(name)
    made = Plan(**{"context": 500, **plan})  # type: ignore[arg-type]
    seen = measure(made, token_ms=token_ms, steps=steps)
    report = compute(config_of(model), made, named(gpu, SPECS), traced=traced_of(seen.breakdown), sweep=False)
    return judged(report, seen)


def rank(**kinds: float) -> StepsReport:
    """One rank whose step of 10 ms is made of `kinds` (ms), the rest idle."""
    base = steps_of("sgl_tp1_c1").ranks[0]
    us = {kind: ms * 1e3 for kind, ms in kinds.items()}
    idle = 10_000 - sum(us.values())
    assert base.period_us is not None
    made: RankSteps = msgspec.structs.replace(
        base,
        period_us=msgspec.structs.replace(base.period_us, representative=10_000.0),
        kinds_us={**us, "idle": idle},
        busy_us=10_000 - idle,
        idle_us=idle,
        top_kernels=(),
        idle_split_us={"host_late": idle},
        calls_per_step={},
    )
    return StepsReport(engine="sglang", ranks=(made,))
