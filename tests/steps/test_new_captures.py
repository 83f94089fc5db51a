"""Recordings of engines' other modes: drafts beside the target, MXFP4 experts, FP8 with an FP8 KV cache.

The truth for the cut is the profiler's own copy of each label on the GPU (`gpu_user_annotation`): it starts with the
label's first GPU event, so from one start to the next is a step. The kinds were reviewed by name (kernel_names.tsv).
"""

from __future__ import annotations

import gzip
import json
import re
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from decodetop.steps.analyse import analyse

CAPTURES = Path(__file__).resolve().parents[1] / "captures"
LABEL = re.compile(r"step\[|execute_context_")

MODES = {
    # folder: label, batch size, labels, kernels and graph launches a step
    "sglang_standalone_draft": ("step[TARGET_VERIFY bs=4]", 4, 15, 501, 3),
    "vllm_eagle3_draft": ("execute_context_0(0)_generation_2(8)", 2, 24, 368, 4),
    "vllm_gptoss_mxfp4": ("execute_context_0(0)_generation_2(2)", 2, 57, 244, 1),
    "vllm_fp8_kv8": ("execute_context_0(0)_generation_8(8)", 8, 64, 281, 1),
}


def annotated_periods_us(path: Path) -> list[float]:
    """From each label's copy on the GPU to the next, without the first, in us."""
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    copies = [event for event in events if event.get("cat") == "gpu_user_annotation" and LABEL.match(event["name"])]
    streams = {event["tid"] for event in copies}
    main = max(streams, key=lambda tid: sum(event["dur"] for event in copies if event["tid"] == tid))
    starts = sorted(event["ts"] for event in copies if event["tid"] == main)
    return [after - before for before, after in pairwise(starts[1:])]


@pytest.mark.parametrize("folder", MODES)
def test_steps_are_cut_where_the_profiler_marks_them(folder: str) -> None:
    (path,) = (CAPTURES / folder).glob("*.gz")
    label, batch_size, labels, kernels, graphs = MODES[folder]
    (rank,) = analyse([path]).ranks
    assert rank.coverage.ok and rank.coverage.problems == ()
    assert (rank.batches[0].label, rank.batches[0].batch_size) == (label, batch_size)
    assert (rank.steps.found, rank.steps.used) == (labels, labels - 2)
    assert (rank.kernels_per_step, rank.graph_launches_per_step) == (kernels, graphs)
    assert rank.period_us is not None
    assert rank.period_us.median == pytest.approx(median(annotated_periods_us(path)), abs=0.002)
    assert rank.unknown_share < 0.005


def test_the_kinds_that_set_each_mode_apart() -> None:
    def kinds(folder: str) -> dict[str, float]:
        (path,) = (CAPTURES / folder).glob("*.gz")
        return analyse([path]).ranks[0].kinds_us

    gptoss = kinds("vllm_gptoss_mxfp4")
    assert gptoss["moe"] > gptoss["gemm"] > gptoss["attention"] > 0, "the experts of MXFP4 run in matmul_ogs"
    fp8 = kinds("vllm_fp8_kv8")
    assert fp8["quantize"] > 0 and fp8["rope"] > 0 and fp8["kv_write"] > 0 and fp8["moe"] == 0
    eagle = kinds("vllm_eagle3_draft")
    assert eagle["sampling"] > kinds("vllm_fp8_kv8")["sampling"], "drafts are verified and drawn again"
