"""Whole synthetic steps as each engine runs them: labels, graphs, models and formats that no recording here has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from decodetop.steps.analyse import analyse
from decodetop.steps.reading import RankSteps
from support.kineto import Phase, serve

KNOWN = [line.split("\t")[:2] for line in Path(__file__).with_name("known_names.tsv").read_text("utf-8").splitlines()]

NORM, ROPE, KV = "vllm::rms_norm_kernel<", "vllm::rotary_embedding_kernel", "void vllm::reshape_and_cache_flash_kernel"
GEMM, ATTENTION, ACTIVATION = "nvjet_qqtst", "flash::FlashAttnFwdSm90", "void vllm::act_and_mul_kernel"
EMBEDDING, SAMPLING = "indexSelectSmallIndex", "ArgMaxOps"
LAYER = ((NORM, 3.0), (GEMM, 40.0), (ROPE, 4.0), (KV, 2.0), (ATTENTION, 30.0), (GEMM, 60.0), (ACTIVATION, 5.0))
DENSE = ((EMBEDDING, 6.0), *LAYER * 4, (NORM, 3.0), (GEMM, 90.0), (SAMPLING, 8.0))


def known(part: str) -> tuple[str, str]:
    """Kind and full name of the first reviewed kernel with this in its name."""
    kind, name = next((kind, name) for kind, name in KNOWN if part in name)
    return kind, name


def phase(label: str | None, kernels: tuple[tuple[str, float], ...], graphs: int = 1) -> Phase:
    return Phase(label, [(known(part)[1], us) for part, us in kernels], graphs)


def expected(*phases: tuple[tuple[str, float], ...]) -> Counter[str]:
    """us by kind."""
    sums: Counter[str] = Counter()
    for kernels in phases:
        for part, us in kernels:
            sums[known(part)[0]] += us
    return sums


def of(phases: list[Phase], tmp_path: Path, api: str = "cuda") -> RankSteps:
    """The one rank; what holds for every whole step is checked."""
    report = analyse([serve(phases, api).write(tmp_path / "t.json")])
    (rank,) = report.ranks
    assert rank.coverage.ok, rank.coverage.problems
    assert rank.period_us is not None
    assert rank.unknown_share < 0.02
    assert sum(rank.kinds_us.values()) == pytest.approx(rank.period_us.representative, abs=1e-6)
    return rank


def busy(rank: RankSteps) -> dict[str, float]:
    return {kind: us for kind, us in rank.kinds_us.items() if us and kind != "idle"}


DRAFT = ((NORM, 2.0), (GEMM, 9.0), (ATTENTION, 5.0), (SAMPLING, 4.0))
PREPARE = (("_prepare_eagle_inputs_kernel", 3.0),)


@pytest.mark.parametrize("draft", ["step[DRAFT_LOOP raw_bs=2 bs=2 topk=1]", "step[DECODE bs=2]"])
def test_eagle_drafts_and_verifies_in_one_step(tmp_path: Path, draft: str) -> None:
    """Newer SGLang names its drafts, older calls the draft model's forwards DECODE."""
    verify = (*DENSE, ("void VerifyTreeGreedy", 5.0))
    one = [phase(draft, DRAFT), phase(draft, DRAFT), phase("step[TARGET_VERIFY bs=2]", verify)]
    one.append(phase("step[DRAFT_EXTEND_V2 bs=2]", (*PREPARE, *DRAFT)))
    rank = of(one * 8, tmp_path)
    assert busy(rank) == pytest.approx(expected(DRAFT, DRAFT, verify, PREPARE, DRAFT))
    assert rank.batches[0].label == "step[TARGET_VERIFY bs=2]"


def test_piecewise_graphs_with_labels_are_one_step(tmp_path: Path) -> None:
    rank = of([phase("execute_context_0(0)_generation_4(4)", DENSE, graphs=5)] * 8, tmp_path)
    assert rank.graph_launches_per_step == 5
    assert rank.kernels_per_step == len(DENSE)
    assert busy(rank) == pytest.approx(expected(DENSE))


@pytest.mark.parametrize("graphs", [1, 5, 0])
def test_without_labels_a_step_is_what_repeats(tmp_path: Path, graphs: int) -> None:
    """One graph, several a step, or every kernel launched by itself."""
    rank = of([phase(None, DENSE, graphs)] * 24, tmp_path)
    assert rank.kernels_per_step == len(DENSE)
    assert rank.graph_launches_per_step == graphs
    assert busy(rank) == pytest.approx(expected(DENSE))


@pytest.mark.parametrize(
    ("label", "batch_size"),
    [
        ("execute_35_context_0(sq0sk0sqsq0sqsk0)_generation_35(sq35sk9sqsq35sqsk9)", 35),
        ("execute_context_0(0)_generation_12(48)", 12),
        ("execute_new_0_cached_7", 7),
        ("[Executor] _forward_step 12: 0 ctx reqs, 8 gen reqs", 8),
        ("[Executor] _forward_step 12: 0 ctx reqs, 0 ctx tokens, 8 gen reqs", 8),
    ],
)
def test_labels_of_vllm_and_tensorrt_llm(tmp_path: Path, label: str, batch_size: int) -> None:
    """Detailed, speculative (12 requests, 48 tokens), older; by the executor's iteration."""
    rank = of([phase(label, DENSE)] * 8, tmp_path)
    assert rank.batches[0].batch_size == batch_size
    assert rank.steps.used == 6
    assert busy(rank) == pytest.approx(expected(DENSE))


@pytest.mark.parametrize(
    ("decode", "mixed"),
    [
        ("step[DECODE bs=4]", "step[MIXED bs=5 toks=900]"),
        ("execute_context_0(0)_generation_4(4)", "execute_context_1(900)_generation_4(4)"),
        ("[Executor] _forward_step 1: 0 ctx reqs, 4 gen reqs", "[Executor] _forward_step 1: 1 ctx reqs, 4 gen reqs"),
    ],
)
def test_a_mixed_step_is_no_decode_step(tmp_path: Path, decode: str, mixed: str) -> None:
    long = tuple((part, 20 * us) for part, us in DENSE)
    steps = [phase(decode, DENSE)] * 5
    rank = of([*steps, phase(mixed, long, graphs=0), *steps], tmp_path)
    assert rank.steps.other["mixed"] == 1
    assert {dropped.why for dropped in rank.steps.dropped} >= {"before a mixed step", "after a mixed step"}
    assert busy(rank) == pytest.approx(expected(DENSE))


MODELS = {
    "expert parallel": (
        *(("dsv3RouterGemm", 4.0), ("moe_fused_gate_kernel", 3.0), ("internode_ll::dispatch", 22.0)),
        *(("fp8_m_grouped_gemm_nt_masked", 55.0), ("silu_and_mul_masked_post_quant", 5.0)),
        *(("internode_ll::combine", 25.0), ("moe_sum_reduce_warp", 2.0)),
    ),
    "expert parallel, TensorRT-LLM": (
        *(("routingRenormalize", 3.0), ("moeA2ADispatchKernel", 18.0), ("expandInputRowsKernel", 2.0)),
        *(("bmm_E2m1_E2m1E2m1", 40.0), ("doActivationKernel", 3.0), ("finalizeMoeRoutingKernel", 4.0)),
    ),
    "MLA": (
        *(("dsv3_fused_a_gemm_kernel", 9.0), ("get_mla_metadata_kernel(", 2.0), ("concat_and_cache_mla_kernel", 2.0)),
        *(("flash_fwd_splitkv_mla_kernel<Flash", 40.0), ("flash_fwd_mla_combine_kernel<cutlass", 5.0)),
        *(("applyMLARope", 3.0), ("Sm100FmhaMlaKernel", 30.0), ("Sm100FmhaMlaReduction", 4.0)),
    ),
    "FP8": (
        *(("per_token_group_quant_8bit_kernel", 3.0), ("GemmType)0", 50.0), ("rms_norm_static_fp8_quant", 3.0)),
        *(("scaled_fp8_quant_kernel_strided", 2.0), ("cutlass_3x_gemm_sm100", 35.0), ("act_and_mul_quant", 3.0)),
    ),
    "FP4": (
        *(("cvt_fp16_to_fp4", 3.0), ("device_kernel<Fp4GemmSm100", 30.0), ("silu_mul_cvt_fp16_to_fp4", 3.0)),
        *(("dense_blockscaled_gemm_sm100", 28.0), ("mxfp8_quantize_kernel", 2.0)),
    ),
}


@pytest.mark.parametrize("model", MODELS)
def test_the_kernels_of_a_model_are_known(tmp_path: Path, model: str) -> None:
    step = (*LAYER[:5], *MODELS[model] * 3, (SAMPLING, 8.0))
    rank = of([phase("step[DECODE bs=16]", step)] * 6, tmp_path)
    assert busy(rank) == pytest.approx(expected(step))


def test_rocm_names_and_calls(tmp_path: Path) -> None:
    step = (
        *(("aiter::add_rmsnorm_quant_kernel", 4.0), ("aiter41bf16gemm", 2.0), ("Cijk_Alik", 50.0)),
        *(("aiter::fused_qk_rope_cosine", 3.0), ("paged_attention_ll4mi_QKV", 30.0)),
        *(("paged_attention_ll4mi_reduce", 4.0), ("aiter::cross_device_reduce_1stage", 12.0)),
        *(("aiter::topk_softmax", 3.0), ("MoeSortingKernel", 4.0), ("fmoe_bf16_blockscale", 60.0), (SAMPLING, 8.0)),
    )
    rank = of([phase("step[DECODE bs=16]", step)] * 6, tmp_path, api="hip")
    assert rank.graph_launches_per_step == 1
    assert busy(rank) == pytest.approx(expected(step))
