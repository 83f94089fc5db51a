"""Case 2, from the question to the snapshot: a box that is at its limit already; the right answer is to stop.

The snapshot is a golden file: read tests/golden/e2e/limit.md to follow the story without the tool.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from decodetop.findings import evaluate
from decodetop.floor.reading import FloorReading
from decodetop.gpu.library import Memory
from decodetop.gpu.reading import GpuReading
from decodetop.report import report
from decodetop.sim.info import Setup
from decodetop.todo.question import write_question
from decodetop.todo.reading import AddAttempt, AddTodo, EditTodo, ImportTodos, TodoReading
from e2e.golden import check, told_in_order
from support.clock import ManualClock
from support.fake_nvml_layer import FakeGpu
from support.inference_box import InferenceBox, Pace, wall_ns
from support.kineto import Trace, layered
from support.sitting import ONE_STREAM, Sitting, investigation, sitting

CONFIGS = Path(__file__).parents[1] / "floor" / "configs"
MODEL = "Qwen/Qwen3.5-27B"
LAYERS, TP = 64, 2
GIB = 2**30
COMMAND = (
    "python3", "-m", "sglang.launch_server", "--model-path", MODEL, "--tp", "2", "--speculative-algorithm", "NEXTN",
    "--speculative-num-steps", "3", "--speculative-num-draft-tokens", "4", "--enable-metrics", "--port", "30000",
)  # fmt: skip
CARD = FakeGpu(
    name="NVIDIA RTX A6000",
    architecture=7,
    memory_bus_bits=384,
    clock_sm=1785,
    max_clock_sm=2100,
    clock_mem=8001,
    max_clock_mem=8001,
    event_reasons=0,
    utilization=(100, 88),
    power_mw=268_000,
    power_limit_mw=300_000,
    power_limit_default_mw=300_000,
    memory=Memory(48 * GIB, 44 * GIB, 48 * GIB - 44 * GIB - GIB // 2, GIB // 2),
    pcie_gen=4,
    pcie_gen_max=4,
    pcie_gen_device_max=4,
    gpm_supported=False,
    temperature=71,
    energy_mj=0,
)
STEP_MS, ACCEPTED = 42.1, (2, 3, 2)
"""Seven tokens in three steps of 42.1 ms: 55 tok/s."""
PASTED = """
- [ ] Measure one stream with accept length
- [ ] PCIe says gen 1: is the riser broken?
- [ ] Try 5 draft steps instead of 3
- [ ] Try --enable-torch-compile
"""
KERNELS_US = (
    ("ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x6_tn", 627.0),
    ("chunk_gated_delta_rule_fwd_kernel_h", 6.0),
    ("_fwd_grouped_kernel_stage1", 4.0),
    ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", 3.0),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 10.0),
    ("void (anonymous namespace)::act_and_mul_kernel<__nv_bfloat16, ((anonymous namespace)::ActivationKind)0>()", 2.0),
)
GAP_US = 0.5


def trace(steps: int = 6) -> Trace:
    """Steps of a 27B dense model, drafts included: GEMMs from end to end, as fast as the card reads."""
    made = Trace()
    made.header["deviceProperties"] = [{"id": 0, "name": "NVIDIA RTX A6000", "totalGlobalMem": 48 * GIB}]
    return layered("step[TARGET_VERIFY bs=1]", LAYERS, KERNELS_US, GAP_US, steps, made)


def box(clock: ManualClock) -> InferenceBox:
    setup = Setup(
        served_name="qwen3.5-27b", model_path=MODEL, port=30000, tp=TP, kv_tokens=180_000, context_length=32_768
    )
    said = {
        "attention_backend": "flashinfer",
        "speculative_algorithm": "NEXTN",
        "speculative_num_steps": 3,
        "speculative_num_draft_tokens": 4,
    }
    pace = Pace(ttft_ms=420.0, step_ms=STEP_MS, tokens=ACCEPTED)
    return InferenceBox(clock, pace, COMMAND, setup=setup, gpu=CARD, said=said, started_s=wall_ns(7, 30) / 1e9)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return investigation(tmp_path, monkeypatch, MODEL, CONFIGS / "qwen3.5-27b.json")


async def measured(desk: Sitting) -> None:
    await desk.do(ImportTodos(text=PASTED))
    item = desk.item("Measure one stream").id
    await desk.do(EditTodo(id=item, status="in_progress"))
    run = await desk.bench("one", baseline=True)
    assert run.metrics.tpot_ms is not None and run.metrics.accept_length is not None
    assert 1000 / run.metrics.tpot_ms.mean == pytest.approx(55.0, abs=0.3)
    assert run.metrics.accept_length == pytest.approx(2.33, abs=0.02)
    await desk.do(
        EditTodo(id=item, status="completed", reason="55 tok/s at an accept length of 2.33: the step is 42 ms")
    )


async def not_a_fault(desk: Sitting) -> None:
    """Gen 1 while idle, gen 4 under load: seen, written down, and no finding in between."""
    item = desk.item("PCIe says gen 1").id
    await desk.do(EditTodo(id=item, status="in_progress"))
    gens = [_gen(desk)]
    assert evaluate(await desk.look(10)) == ()
    desk.box.visit()
    assert evaluate(await desk.look(10)) == ()
    gens.append(_gen(desk))
    assert gens == [1, 4]
    await desk.do(EditTodo(id=item, status="completed", reason="gen 1 while idle, gen 4 under load: power saving"))


def _gen(desk: Sitting) -> int | None:
    gpus = desk.state.last("gpu", GpuReading)
    assert gpus is not None
    return gpus.gpus[0].pcie_gen


async def stopped(desk: Sitting) -> None:
    """What the floor says is the reason for which the rest of the plan is dropped."""
    floor = desk.state.last("floor", FloorReading)
    assert floor is not None and floor.report is not None and floor.report.verdict is not None
    assert floor.report.verdict.id in ("hardware_bound", "memory_bound_near_limit")
    why = "the step is the weights: no flag makes them smaller"
    more = desk.item("5 draft steps").id
    tried = AddAttempt(
        id=more,
        change="--speculative-num-steps 5",
        outcome="no change",
        reason="54.6 tok/s: accept length 2.41, step 44.1 ms",
    )
    await desk.do(EditTodo(id=more, status="in_progress"), tried, EditTodo(id=more, status="cancelled", reason=why))
    await desk.do(EditTodo(id=desk.item("torch-compile").id, status="cancelled", reason=why))
    await desk.do(
        AddTodo(
            content="Stop tuning flags; FP8 weights or other cards if 55 tok/s is not enough", priority="low", notes=why
        )
    )


async def test_the_investigation_of_a_box_at_its_limit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: None
) -> None:
    write_question(folder, "55 tok/s on two A6000: can it be more?")
    async with sitting(folder, monkeypatch, wall_ns(8, 2), box, (*ONE_STREAM, 'api = "generate"')) as desk:
        await measured(desk)
    async with sitting(folder, monkeypatch, wall_ns(8, 15), box) as desk:
        await not_a_fault(desk)
    async with sitting(folder, monkeypatch, wall_ns(8, 31), box) as desk:
        await desk.capture(trace(), tmp_path / "traces" / "verify-TP-0.trace.json.gz", None)
        await desk.look()
    async with sitting(folder, monkeypatch, wall_ns(9, 10), box) as desk:
        await stopped(desk)
        seen = await desk.look()
    floor, todo = seen.last("floor", FloorReading), seen.last("todo", TodoReading)
    assert floor is not None and floor.report is not None and todo is not None
    assert floor.report.t_phys_ms == pytest.approx(40.2, abs=0.3), "the worked example of the notes"
    assert 0.82 <= floor.report.weights_share_of_bytes <= 0.84
    assert [one.status for one in todo.todos] == ["completed", "completed", "cancelled", "cancelled", "pending"]
    assert evaluate(seen) == ()
    check("limit.md", report(seen).markdown)


def test_the_snapshot_tells_the_story_in_its_order() -> None:
    text = check.read("limit.md")
    told_in_order(
        text,
        "# 55 tok/s on two A6000: can it be more?",
        "## In short",
        "2 GPUs",
        "gen1 x16",
        "--speculative-num-steps 3",
        "## Findings\n\nNone.",
        "## Can this hardware do better?",
        "accept length",
        "## Benchmarks",
        "accept length 2.33",
        "## Checklist",
        "gen 1 while idle, gen 4 under load",
        "no change: 54.6 tok/s",
        "the step is the weights",
        "## What is next",
        "Stop tuning flags",
    )
