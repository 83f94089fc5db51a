"""Case 1, from the question to the snapshot: a cast of the whole KV pool hidden in every decode step.

The snapshot is a golden file: read tests/golden/e2e/cast.md to follow the story without the tool.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from decodetop.floor.reading import FloorReading
from decodetop.gpu.library import Memory
from decodetop.report import report
from decodetop.report.block import read
from decodetop.report.diff import difference
from decodetop.report.diff_text import lines
from decodetop.sim.info import Setup
from decodetop.steps.reading import StepsReading
from decodetop.todo.question import write_question
from decodetop.todo.reading import AddAttempt, AddTodo, EditTodo, ImportTodos, TodoReading
from e2e.golden import check, told_in_order
from support.clock import ManualClock
from support.fake_nvml_layer import FakeGpu
from support.inference_box import InferenceBox, Pace, wall_ns
from support.kineto import Trace, layered
from support.sitting import ONE_STREAM, Sitting, investigation, sitting

CONFIGS = Path(__file__).parents[1] / "floor" / "configs"
MODEL = "nvidia/GLM-5-NVFP4"
LAYERS, TP = 78, 8
POOL_TOKENS = 495_000
COMMAND = (
    "python3", "-m", "sglang.launch_server", "--model-path", MODEL, "--tp", "8", "--kv-cache-dtype", "fp8_e4m3",
    "--attention-backend", "triton", "--max-total-tokens", "495000", "--enable-metrics", "--port", "30000",
)  # fmt: skip
GIB = 2**30
CARD = FakeGpu(
    name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    architecture=10,
    memory_bus_bits=512,
    clock_sm=2370,
    max_clock_sm=2430,
    clock_mem=14_001,
    max_clock_mem=14_001,
    event_reasons=0,
    utilization=(100, 31),
    power_mw=312_000,
    power_limit_mw=600_000,
    power_limit_default_mw=600_000,
    memory=Memory(96 * GIB, 88 * GIB, 96 * GIB - 88 * GIB - 6 * GIB // 10, 6 * GIB // 10),
    gpm_supported=False,
    temperature=58,
    energy_mj=0,
)
PASTED = """
Sure! Here is the plan I would follow for the slow decode:

[{"content": "Profile decode: where does the step go", "status": "pending", "priority": "high"},
 {"content": "Try the trtllm_mla backend, which reads FP8 KV", "status": "pending", "priority": "high"},
 {"content": "Try the flashmla backend", "status": "pending", "priority": "medium"},
 {"content": "Cast only the active rows of the KV pool", "status": "pending", "priority": "high"},
 {"content": "Compare before and after under 8 streams", "status": "pending", "priority": "low"}]

Let me know how it goes!
"""
CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}, "
    "std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, "
    "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)"
)
OTHERS_US = (
    ("nvjet_sm120_tst_64x8_64x16_4x1_v_bz_TNT", 92.0),
    ("_fwd_grouped_kernel_stage1", 71.0),
    ("fused_moe_kernel", 118.0),
    ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", 21.0),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 52.0),
)
GAP_US = 3.0


def trace(cast_us: float, steps: int = 6) -> Trace:
    """Decode steps of 78 layers, each with a cast of `cast_us`: 64.6 ms of 93.6 with 828.2."""
    return layered("step[DECODE bs=1]", LAYERS, [*OTHERS_US[:1], (CAST, cast_us), *OTHERS_US[1:]], GAP_US, steps)


def box(clock: ManualClock, *, step_ms: float, started_s: float) -> InferenceBox:
    setup = Setup(
        served_name="glm-5",
        model_path=MODEL,
        port=30000,
        tp=TP,
        kv_tokens=POOL_TOKENS,
        kv_cast="full",
        context_length=131_072,
    )
    said = {"attention_backend": "triton", "quantization": "modelopt_fp4", "max_total_tokens": POOL_TOKENS}
    pace = Pace(ttft_ms=100.0, step_ms=step_ms)
    return InferenceBox(clock, pace, COMMAND, setup=setup, gpu=CARD, said=said, started_s=started_s)


def slow(clock: ManualClock) -> InferenceBox:
    return box(clock, step_ms=95.6, started_s=wall_ns(9, 5) / 1e9)


def fixed(clock: ManualClock) -> InferenceBox:
    return box(clock, step_ms=74.1, started_s=wall_ns(14, 50) / 1e9)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return investigation(tmp_path, monkeypatch, MODEL, CONFIGS / "glm-5-nvfp4")


async def planned_and_measured(desk: Sitting) -> None:
    """The plan is pasted and the baseline measured."""
    await desk.do(ImportTodos(text=PASTED))
    await desk.do(EditTodo(id=desk.item("Profile decode").id, status="in_progress"))
    run = await desk.bench("one", baseline=True)
    assert run.metrics.tpot_ms is not None and run.metrics.tpot_ms.mean == pytest.approx(95.6)


async def profiled(desk: Sitting, traces: Path) -> None:
    """The step is broken down, and what it shows written down."""
    first, tpot = desk.item("Profile decode").id, desk.runs[0].metrics.tpot_ms
    assert tpot is not None
    await desk.capture(trace(828.2), traces / "before-TP-0.trace.json.gz", tpot.mean)
    why = "one copy kernel is 69 % of the step, once a layer: the whole FP8 pool is cast to BF16"
    await desk.do(EditTodo(id=first, status="completed", reason=why))


async def the_fix(desk: Sitting) -> None:
    """The hypothesis is written down before the change is measured."""
    item = desk.item("Cast only the active rows").id
    await desk.do(
        EditTodo(id=item, status="in_progress", hypothesis="the cast of the whole pool is the step"),
        EditTodo(id=item, expected="TPOT 95.6 ms -> about 31 ms if all of the cast goes"),
    )
    await desk.bench("one")


async def profiled_again(desk: Sitting, traces: Path) -> None:
    """A third of the cast is gone, not all of it: the item is closed with that, the rest is an item of its own."""
    item, tpot = desk.item("Cast only the active rows").id, desk.runs[0].metrics.tpot_ms
    assert tpot is not None
    await desk.capture(trace(552.6), traces / "after-TP-0.trace.json.gz", tpot.mean)
    await desk.do(
        AddAttempt(
            id=item,
            change="cast only the rows in use (patch 3f1c2ab)",
            outcome="worked",
            links=("run 2", "move cast-active-rows"),
        ),
        EditTodo(id=item, status="completed", reason="a third of the cast is gone; 43 of 72 ms are still copies"),
        AddTodo(
            content="Find what still copies 43 ms a step",
            priority="high",
            hypothesis="rows are gathered before they are cast",
            expected="TPOT 74.1 ms -> about 31 ms",
        ),
    )


async def test_the_investigation_of_a_hidden_cast(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: None
) -> None:
    traces = tmp_path / "traces"
    write_question(folder, "why 10.5 tok/s?")
    async with sitting(folder, monkeypatch, wall_ns(9, 58), slow, ONE_STREAM) as desk:
        await planned_and_measured(desk)
    async with sitting(folder, monkeypatch, wall_ns(10, 11), slow) as desk:
        await profiled(desk, traces)
        morning = report(await desk.look())
        verdict = desk.state.last("floor", FloorReading)
    assert verdict is not None and verdict.report is not None and verdict.report.verdict is not None
    assert verdict.report.verdict.id == "copy_bound"
    assert 0.03 <= verdict.report.t_phys_ms / 95.6 <= 0.04, "not bandwidth bound"

    async with sitting(folder, monkeypatch, wall_ns(10, 40), slow) as desk:
        await desk.attempt(
            "trtllm_mla", "--attention-backend trtllm_mla", "assertion qk_nope_head_dim == 128: this model has 192"
        )
    async with sitting(folder, monkeypatch, wall_ns(11, 25), slow) as desk:
        await desk.attempt("flashmla", "--attention-backend flashmla", "assertion page_size == 64: the pool has 1")

    async with sitting(folder, monkeypatch, wall_ns(15, 2), fixed) as desk:
        await the_fix(desk)
    async with sitting(folder, monkeypatch, wall_ns(15, 20), fixed) as desk:
        await profiled_again(desk, traces)
        desk.box.visit()
        seen = await desk.look()
    afternoon = report(seen)

    todo, steps = seen.last("todo", TodoReading), seen.last("steps", StepsReading)
    assert todo is not None and steps is not None
    assert [one.status for one in todo.todos] == [
        "completed", "cancelled", "cancelled", "completed", "pending", "pending",
    ]  # fmt: skip
    shares = [
        rank.kinds_us["copy"] / rank.period_us.representative
        for one in steps.captures
        for rank in one.report.ranks
        if rank.period_us is not None
    ]
    assert shares == pytest.approx([0.598, 0.69], abs=0.005)
    linked = next(one for one in todo.todos if "active rows" in one.content).evidence
    summaries = [one.summary or "" for one in linked]
    assert any("95.6 -> 74.1 ms (-22 %)" in one and "10.5 -> 13.5 (+29 %)" in one for one in summaries), summaries

    check("cast.md", afternoon.markdown)
    check("cast.diff.txt", "\n".join(lines(difference(morning.data, afternoon.data))) + "\n")
    path = tmp_path / "read.md"
    path.write_text(afternoon.markdown, "utf-8")
    assert read(path) == (afternoon.data, False)


def test_the_snapshot_tells_the_story_in_its_order() -> None:
    """What a reader without the tool must find, in the order of the reading."""
    text = check.read("cast.md")
    at = told_in_order(
        text,
        "# why 10.5 tok/s?",
        "Copy/cast-bound",
        "TPOT 95.6 -> 74.1 ms (-22 %), 10.5 -> 13.5 tok/s (+29 %)",
        "8 GPUs",
        "--kv-cache-dtype fp8_e4m3",
        "## Can this hardware do better?",
        "## Decode step",
        "### Before and after",
        "| copy | 64,599.6 | 43,102.8 | -21,496.8 | -33.3 |",
        "## Benchmarks",
        "## Checklist",
        "69 % of the step",
        "qk_nope_head_dim == 128",
        "page_size == 64",
        "patch 3f1c2ab",
        "## Log",
        "capture: ",
        "## What is next",
        "Find what still copies 43 ms a step",
        "keep KV in 16 bit",
    )
    assert "Not read yet" not in text, "every instrument has spoken"
    following = text[at : text.rfind("<!--")]
    assert "cast the rows of the running sequences" not in following, "what was tried is not offered again"
