"""Verdicts: every recording, the two cases of the design, and the edges of the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from decodetop.floor.evidence import Clocks
from decodetop.floor.floor import compute
from decodetop.floor.hardware import named
from decodetop.floor.measured import Measurement, measure, traced_of
from decodetop.floor.reading import FloorReport, Plan
from decodetop.floor.text import verdict_lines
from decodetop.floor.verdict import judged
from decodetop.steps.analyse import analyse
from support.judged import CAPTURES, FILES, SPECS, config_of, judge, rank, steps_of


def gap_sums(report: FloorReport) -> None:
    assert report.gap_ms is not None and report.t_meas_ms is not None
    assert sum(report.gap_ms.values()) == pytest.approx(report.t_meas_ms - report.t_phys_ms)


def test_h200_with_graphs() -> None:
    """15.1 GB a step: the bound is 60 to 64 % of 5.11 ms, GEMMs read at about 3.6 TB/s."""
    report = judge("sgl_tp1_c1", token_ms=5.112)
    verdict = report.verdict
    assert report.t_phys_ms == pytest.approx(3.15, abs=0.02)
    assert report.t_meas_ms == 5.112
    assert 0.60 <= report.t_phys_ms / 5.112 <= 0.64
    assert verdict is not None and (verdict.id, verdict.confidence) == ("memory_bound_near_limit", "high")
    assert "near what this stack reaches" in verdict.sentence
    said = "\n".join(verdict.because)
    assert "3.64 TB/s, 76 % of the card" in said
    assert "attention 9 %, norm/rope/activation 7 %, idle 4 % of the profiled step" in said
    assert {one.what for one in verdict.ruled_out} == {
        "copies and casts", "host", "communication", "attention", "GEMM and experts",
    }  # fmt: skip
    gap_sums(report)
    assert report.gap_ms is not None
    assert report.gap_ms["bandwidth_efficiency"] == pytest.approx(1.02, abs=0.03)
    assert report.gap_ms["attention"] == pytest.approx(0.45, abs=0.02)
    assert report.gap_ms["per_layer"] == pytest.approx(0.43, abs=0.02)
    assert report.gap_ms["rest"] == 0


def test_the_profiled_step_alone_says_it_with_less_confidence() -> None:
    report = judge("sgl_tp1_c1")
    assert report.verdict is not None
    assert (report.verdict.id, report.verdict.confidence) == ("memory_bound_near_limit", "medium")
    assert any("profiler stretches" in line for line in report.verdict.because)


@pytest.mark.parametrize(("name", "token_ms", "idle"), [("sgl_nograph", 19.347, 75), ("vllm_eager", 22.899, 77)])
def test_without_graphs_the_host_is_late(name: str, token_ms: float, idle: int) -> None:
    for measured in (token_ms, None):
        report = judge(name, token_ms=measured)
        verdict = report.verdict
        assert verdict is not None and verdict.id == "host_bound"
        assert "CUDA graphs are off" in verdict.sentence
        gap_sums(report)
        if measured is not None:
            assert f"for {idle} % of the step" in verdict.sentence and verdict.confidence == "high"
        else:
            assert verdict.confidence == "medium" and "--measured-ms" in verdict.capture[0]


@pytest.mark.parametrize(("name", "token_ms"), [("sgl_tp2", 3.425), ("vllm_tp2", 3.749)])
def test_two_gpus_lose_to_fixed_cost(name: str, token_ms: float) -> None:
    """The gap is fixed cost per layer, all-reduce and smaller GEMMs' efficiency, not bandwidth."""
    report = judge(name, token_ms=token_ms, tp=2)
    verdict = report.verdict
    assert report.t_phys_ms == pytest.approx(1.57, abs=0.01)
    assert verdict is not None and verdict.id == "memory_bound_near_limit"
    assert verdict.sentence.startswith("Near what this stack reaches")
    for part in ("the efficiency of the matrix kernels", "fixed cost per layer", "all-reduce", "not bandwidth"):
        assert part in verdict.sentence
    assert report.gap_ms is not None
    assert report.gap_ms["allreduce"] == pytest.approx({"sgl_tp2": 0.178, "vllm_tp2": 0.291}[name], abs=0.02)
    gap_sums(report)


def test_a_stretched_profile_of_two_gpus_asks_for_the_real_time() -> None:
    verdict = judge("sgl_tp2", tp=2).verdict
    assert verdict is not None and verdict.id == "not_enough_evidence"
    assert "--measured-ms" in verdict.capture[0]
    assert not any("confidence" in line for line in verdict_lines(verdict)), "nothing is claimed"


@pytest.mark.parametrize(
    ("name", "model", "token_ms", "batch"),
    [
        ("vllm_tp1", "qwen3-8b", 5.147, 1),
        ("sgl_tp1_c8", "qwen3-8b", 5.570, 8),
        ("long", "qwen3-8b", 5.231, 4),
        ("moe30b", "qwen3-30b-a3b", 6.390, 4),
    ],
)
def test_the_other_recordings_with_graphs(name: str, model: str, token_ms: float, batch: int) -> None:
    report = judge(name, model=model, token_ms=token_ms, batch=batch)
    assert report.verdict is not None and report.verdict.id == "memory_bound_near_limit"
    gap_sums(report)
    assert report.t_phys_ms < report.t_prac_ms < token_ms


def test_n_gram_speculation_is_judged_per_token() -> None:
    """The client saw 2.42 ms a token of each of 4 streams; the server's accept length is 4.00."""
    plan = {"batch": 4, "draft_steps": 3, "verify_tokens": 4}
    report = judge("ngram", token_ms=2.417, accept_length=4.0, **plan)
    assert report.t_meas_ms == pytest.approx(9.668)
    assert report.verdict is not None and report.verdict.id == "host_bound"
    assert "between verify steps" in report.verdict.sentence
    assert any("a step gives 4.00 tokens: 2.42 ms a token" in line for line in report.verdict.because)
    assert report.tok_s_at_floor == pytest.approx(4 * 4.0 / report.t_phys_ms * 1e3)
    unknown = judge("ngram", token_ms=2.417, batch=4)
    assert unknown.t_meas_ms == pytest.approx(10.158, abs=0.01), "the trace's own step: a token's time is none"
    assert judge(None, token_ms=2.417, **plan).t_meas_ms is None


def test_case_1_stop_tuning_flags() -> None:
    """55 tok/s on two A6000 with three draft steps: only an accept length makes a step of it."""
    plan = {"tp": 2, "draft_steps": 3, "verify_tokens": 4, "context": 1}
    report = judge(None, model="qwen3.5-27b", gpu="RTX A6000", token_ms=1000 / 55, **plan)
    assert report.t_meas_ms is None and report.gap_ms is None and report.tok_s_at_floor is None
    assert report.verdict is not None and report.verdict.id == "not_enough_evidence"
    assert "accept length, which is not known" in report.verdict.sentence
    known = judge(None, model="qwen3.5-27b", gpu="RTX A6000", token_ms=1000 / 55, accept_length=2.33, **plan)
    assert known.t_meas_ms == pytest.approx(42.36, abs=0.01)
    assert known.verdict is not None and known.verdict.id == "hardware_bound"
    assert "95 % of the step is reading weights" in known.verdict.sentence
    assert "Stop tuning flags" in known.verdict.sentence


def test_a_box_far_from_its_limit_is_not_called_so() -> None:
    verdict = judge(None, model="qwen3.5-27b", gpu="RTX A6000", token_ms=120, tp=2).verdict
    assert verdict is not None and verdict.id == "not_enough_evidence"
    assert "Capture a decode step" in verdict.sentence


CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda()#3}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul>, 4>(int)"
)
GLM_STEP = (
    # kernel, calls a step, us each: the proportions of GLM-5 on 8 RTX PRO 6000 (93.6 ms, 69 % of it the cast)
    (CAST, 78, 828.2),
    ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 390, 26.0),
    ("fused_moe_kernel", 150, 36.0),
    ("void flashinfer::mla::BatchMLAPagedAttentionKernel<KTraits>(Params)", 78, 70.0),
    ("void cross_device_reduce_1stage<__nv_bfloat16, 8>(RankData*)", 156, 25.0),
    ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", 156, 4.0),
)


def cast_trace(path: Path) -> None:
    """A profiler trace: 5 steps, each launched by one thread, kernels back to back on one stream."""
    events: list[dict[str, Any]] = []
    at, number = 1000.0, 1
    for _ in range(5):
        launch = at - 500
        inside: list[dict[str, Any]] = []
        for name, calls, us in GLM_STEP:
            for _ in range(calls):
                inside.append({
                    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": launch,
                    "dur": 0.1, "args": {"correlation": number},
                })  # fmt: skip
                inside.append({
                    "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": us,
                    "args": {"correlation": number, "stream": 7, "device": 0},
                })  # fmt: skip
                at, launch, number = at + us, launch + 0.2, number + 1
        begin = inside[0]["ts"] - 1
        events.append({
            "ph": "X", "cat": "user_annotation", "name": "step[DECODE bs=1]", "pid": 1, "tid": 1, "ts": begin,
            "dur": launch - begin + 1,
        })  # fmt: skip
        events += inside
        at += 3480  # nothing runs between the steps
    device = [{"id": 0, "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}]
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": device, "traceEvents": events}), "utf-8")


def test_case_2_a_cast_of_the_whole_pool(tmp_path: Path) -> None:
    """GLM-5-NVFP4, TP8, FP8 KV cast to BF16 in every layer: 69 % of 93.6 ms, and the floor is 3 to 6 %."""
    path = tmp_path / "glm5-TP-0.trace.json"
    cast_trace(path)
    steps = analyse([path])
    assert steps.ranks[0].coverage.ok
    plan = Plan(tp=8, context=1024)
    seen = measure(plan, steps=steps)
    card = named("RTX PRO 6000", SPECS)
    report = judged(compute(config_of("glm-5-nvfp4"), plan, card, traced=traced_of(seen.breakdown), sweep=False), seen)
    verdict = report.verdict
    assert report.t_meas_ms == pytest.approx(93.6, rel=0.001)
    assert 0.03 <= report.t_phys_ms / report.t_meas_ms <= 0.06
    assert verdict is not None and verdict.id == "copy_bound"
    assert "69 % of the step is at::native::unrolled_elementwise_kernel (direct_copy_kernel_cuda)" in verdict.sentence
    assert "not bandwidth bound: the floor is 3." in verdict.sentence
    said = "\n".join(verdict.because)
    assert "69 GB a step, 13 times all weights of the step: likely the whole KV pool is cast" in said
    assert "1 a layer" in said and "KV is FP8" in said
    assert {"host", "communication", "attention", "GEMM and experts"} <= {one.what for one in verdict.ruled_out}
    assert report.gap_ms is not None and report.gap_ms["copies"] == pytest.approx(64.6, abs=0.1)
    gap_sums(report)


def test_a_trace_of_another_model_lowers_the_confidence() -> None:
    """The toy loop of the recording has 8 layers: its matrices can't be those of an 8B model."""
    report = judge("cast")
    assert report.verdict is not None
    assert (report.verdict.id, report.verdict.confidence) == ("copy_bound", "low")
    assert any("another model, plan or number format" in line for line in report.verdict.because)


def test_a_measurement_below_the_bound_is_an_input_error() -> None:
    report = judge(None, token_ms=2.0)
    verdict = report.verdict
    assert report.gap_ms is None and report.t_meas_ms == 2.0
    assert verdict is not None and verdict.id == "not_enough_evidence"
    assert "below the hard bound, so an input is wrong" in verdict.sentence
    assert not any("%" in line for line in (verdict.sentence, *verdict.because))


def test_nothing_measured() -> None:
    report = judge(None)
    assert report.t_meas_ms is None and report.gap_ms is None
    assert report.verdict is not None and report.verdict.id == "not_enough_evidence"


def test_without_a_trace_the_gap_goes_by_the_constants() -> None:
    report = judge(None, token_ms=5.5)
    gap_sums(report)
    assert report.gap_ms is not None
    assert set(report.gap_ms) == {"bandwidth_efficiency", "extra_bytes", "allreduce", "per_layer", "rest"}
    assert report.verdict is not None and report.verdict.id == "memory_bound_near_limit"
    assert report.verdict.confidence == "medium"


def test_all_reduces_without_nvlink_are_estimated() -> None:
    """Qwen3.5-122B over 4 RTX PRO 6000: 96 all-reduces of 14 us are half of the bound again."""
    report = judge(None, model="qwen3.5-122b-a10b", gpu="RTX PRO 6000", token_ms=3.5, tp=4, context=100)
    assert report.parts_ms.allreduce == pytest.approx(1.37, abs=0.05)
    assert report.verdict is not None
    assert (report.verdict.id, report.verdict.confidence) == ("communication_bound", "low")
    assert any("custom all-reduce off" in line for line in report.verdict.because)


def test_arithmetic() -> None:
    report = judge(None, model="llama-3.1-70b", gpu="H100 SXM", token_ms=38, batch=512, tp=4)
    assert report.bound == "compute"
    assert report.verdict is not None and report.verdict.id == "compute_bound"


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [
        ({"gemm": 4.0, "attention": 5.0}, "attention_bound"),
        ({"gemm": 4.0, "communication": 3.0, "norm": 2.5}, "communication_bound"),
        ({"gemm": 4.0, "copy": 2.0, "norm": 3.5}, "copy_bound"),
        ({"gemm": 4.0, "copy": 1.0, "norm": 4.5}, "not_enough_evidence"),
        ({"gemm": 4.0, "norm": 2.0}, "host_bound"),
        ({"gemm": 9.5}, "not_enough_evidence"),
        # two causes: the larger wins
        ({"gemm": 3.4, "copy": 2.0, "attention": 4.4}, "attention_bound"),
    ],
)
def test_rules(kinds: dict[str, float], verdict: str) -> None:
    plan = Plan(context=500)
    seen = measure(plan, token_ms=10.0, steps=rank(**kinds))
    report = judged(compute(config_of("qwen3-8b"), plan, named("H200", SPECS), sweep=False), seen)
    assert report.verdict is not None and report.verdict.id == verdict
    gap_sums(report)


def test_clocks() -> None:
    plan = Plan(context=500)
    report = compute(config_of("qwen3-8b"), plan, named("H200", SPECS), sweep=False)
    seen = measure(plan, token_ms=7.0)

    def verdict(clocks: Clocks) -> str:
        found = judged(report, seen, clocks).verdict
        assert found is not None
        return found.id

    low = Clocks(sm=1980, sm_max=1980, memory=1600, memory_max=3201)
    assert verdict(low) == "clock_limited"
    assert verdict(Clocks(sm=1000, sm_max=1980, memory=3201, memory_max=3201, reasons=0x40)) == "clock_limited"
    assert verdict(Clocks(sm=1000, sm_max=1980, memory=3201, memory_max=3201, reasons=0)) != "clock_limited"
    steady = judged(report, seen, Clocks(sm=1980, sm_max=1980, memory=3201, memory_max=3201)).verdict
    assert steady is not None and any(one.what == "clocks" for one in steady.ruled_out)
    empty = judged(report, seen, Clocks()).verdict
    assert empty is not None and not any(one.what == "clocks" for one in empty.ruled_out)


def test_a_step_that_is_given_goes_first() -> None:
    plan = Plan(draft_steps=3, verify_tokens=4)
    assert measure(plan, token_ms=2.0, step_ms=9.0).step_ms == 9.0
    assert measure(plan, token_ms=2.0).step_ms is None
    assert measure(Plan(), token_ms=2.0) == Measurement(step_ms=2.0, words="2.00 ms a token, one token a step")


def test_the_report_s_own_time_per_token_is_used() -> None:
    files = sorted(CAPTURES.glob(FILES["sgl_tp1_c1"]))
    steps = analyse(files, itl_ms=5.112)
    assert measure(Plan(), steps=steps).step_ms == 5.112


def spun(tp: int = 8, step_ms: float = 60.0, **clocks: float) -> FloorReport:
    plan = Plan(tp=tp, context=500)
    report = compute(config_of("qwen3-8b"), plan, named("RTX PRO 6000", SPECS), sweep=False)
    seen = Clocks(**{"power_w": 200.0, "power_limit_w": 600.0, "busy_percent": 100.0, **clocks})  # type: ignore[arg-type]
    return judged(report, measure(plan, token_ms=step_ms), seen)


def test_always_busy_at_little_power_is_spinning_in_collectives() -> None:
    verdict = spun().verdict
    assert verdict is not None and (verdict.id, verdict.confidence) == ("communication_bound", "low")
    assert "always busy at 33 % of their power" in verdict.sentence
    assert verdict.capture == ("a profiler trace of all ranks",)
    for other in (spun(power_w=400.0), spun(busy_percent=80.0), spun(tp=1), spun(step_ms=3.5)):
        assert other.verdict is not None and "always busy" not in other.verdict.sentence


def test_a_trace_says_more_than_power() -> None:
    """2 x H200 read weights at 41 % of their power: the trace shows that they work."""
    plan = Plan(tp=2, context=500)
    seen = measure(plan, token_ms=3.425, steps=steps_of("sgl_tp2"))
    report = compute(config_of("qwen3-8b"), plan, named("H200", SPECS), sweep=False)
    verdict = judged(report, seen, Clocks(power_w=287.0, power_limit_w=700.0, busy_percent=100.0)).verdict
    assert verdict is not None and verdict.id == "memory_bound_near_limit"
    assert any(one.what == "spinning in collectives" for one in verdict.ruled_out)
