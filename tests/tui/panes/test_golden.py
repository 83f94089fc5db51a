"""What the operator sees, as text: every pane in the states that matter, at the sizes of real terminals.

DECODETOP_GOLDEN=1 writes the files anew; then read the diff as an operator would.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from decodetop.bench.reading import BenchReading, Gate, Progress, RequestFault, Requests
from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Failure, Reading
from decodetop.core.state import State
from decodetop.floor.reading import WhatIf
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.server.reading import Flag, Latency, ServerReading
from decodetop.steps.reading import (
    Batch,
    Capture,
    Communication,
    Coverage,
    Parsing,
    Period,
    RankSteps,
    Real,
    StepBar,
    StepCounts,
    StepsReading,
    StepsReport,
    TopKernel,
    Totals,
)
from decodetop.todo.reading import Attempt, Evidence, Todo, TodoReading
from decodetop_tui.paint import View
from decodetop_tui.pane import PaneModule
from decodetop_tui.panes import bench, floor, gpu, host, server, steps, todo
from support import floors, states

GOLDEN = Path(__file__).parents[2] / "golden" / "panes"
DASHBOARD = {
    "gpu": ((80, 2), (80, 3), (120, 5), (200, 4)),
    "server": ((59, 5), (80, 2), (99, 6)),
    "todo": ((60, 6), (80, 3), (100, 9)),
    "bench": ((59, 6), (80, 2), (99, 9)),
    "steps": ((60, 8), (80, 3), (100, 11)),
    "host": ((80, 1), (120, 3), (200, 4)),
    "floor": (),
}
"""Widths and heights the layout gives at 80x24, 120x40 and 200x60."""
ZOOMED = ((80, 22), (120, 38))
PANES: dict[str, PaneModule] = {
    "gpu": gpu,
    "server": server,
    "todo": todo,
    "bench": bench,
    "steps": steps,
    "host": host,
    "floor": floor,
}
GIB = 2**30


def with_last(source: str, reading: Reading) -> State:
    """The box with another last reading of `source`, at second 61."""
    return states.put(states.box(60), {source: reading}, 61)


def failing(source: str) -> State:
    state = states.box(60)
    failure = Failure(
        kind="lost", message="Driver/library version mismatch", hint="running jobs go on; reboot or reload"
    )
    state = states.fail(state, source, failure, 61)
    return states.step(state, 75) if source not in ("gpu", "server", "host") else replace(state, now_ns=75 * SECOND_NS)


def odd_gpus() -> State:
    """A card too hot, one lost, one without GPM and on a sleeping link, one that may not be read."""
    first = states.gpus(1).gpus[0]
    hot = replace(first, sm_clock_mhz=1215, event_reasons=0x40 | 0x4, temperature_c=87.0, temperature_slowdown_c=90.0)
    lost = replace(first, index=1, state="lost", state_message="GPU is lost", state_since_ns=49 * SECOND_NS)
    reason = "needs a Hopper or later (GPM)"
    card = Gpu(
        index=2,
        name="NVIDIA GeForce RTX 4090",
        sm_clock_mhz=210,
        sm_clock_max_mhz=3105,
        mem_clock_mhz=405,
        mem_clock_max_mhz=10501,
        event_reasons=0x1,
        pcie_gen=1,
        pcie_gen_max=4,
        pcie_width=8,
        pcie_width_max=16,
        memory_used_bytes=int(0.4 * GIB),
        memory_free_bytes=int(23.1 * GIB),
        memory_total_bytes=24 * GIB,
        utilization_percent=0.0,
        memory_busy_percent=23.0,
        power_w=21.0,
        power_limit_w=450.0,
        temperature_c=31.0,
        reasons=dict.fromkeys(("dram_bandwidth_percent", "sm_active_percent", "tensor_active_percent"), reason),
    )
    denied = Gpu(index=3, state="denied", state_message="no permission to open it", state_since_ns=0)
    return with_last("gpu", GpuReading(gpus=(hot, lost, card, denied), driver_version="570.86.15"))


def a_server(**changed: object) -> State:
    one = replace(states.servers(61).servers[0], **changed)
    return with_last("server", ServerReading(servers=(one,), current=one.endpoint, searched=("processes",)))


def speculating() -> State:
    """Two servers; the current one speculates, its graphs don't cover the batch, its KV is full, a flag differs."""
    one = replace(
        states.servers(61).servers[0],
        quantization="fp8",
        tp=8,
        running=40,
        queued=12,
        kv_usage=0.973,
        cuda_graph=True,
        cuda_graph_max_batch=32,
        cuda_graph_batches=(1, 2, 4, 8, 16, 32),
        speculative_algorithm="EAGLE3",
        speculative_steps=3,
        speculative_draft_tokens=4,
        accept_length=2.81,
        generated_tok_s=4878.6,
        prompt_tok_s=1204.0,
        itl=Latency(mean_ms=7.38, count=9264.0, over_s=10.0, p50_ms=8.0, p99_ms=60.0),
        ttft=Latency(mean_ms=290.2, count=74.0, over_s=None, p99_ms=1000.0),
        flags=(
            Flag(name="attention_backend", requested=None, resolved="fa3"),
            Flag(name="page_size", requested="1", resolved="64"),
            Flag(name="mem_fraction_static", requested="0.88", resolved="0.88"),
        ),
    )
    other = states.servers(61, count=2).servers[1]
    return with_last("server", ServerReading(servers=(one, other), current=one.endpoint, searched=("processes",)))


def notebook() -> State:
    items = (
        Todo(
            id="a",
            content="Why is the step 90 ms? 解码步骤分析",
            status="in_progress",
            priority="high",
            hypothesis="a cast of the whole KV pool on every layer",
            expected="TPOT below 80 ms",
            evidence=(Evidence(kind="run", ref="#4", summary="10.5 tok/s"), Evidence(kind="capture", ref="14:01")),
        ),
        Todo(
            id="b",
            content="Try other attention backends, one by one, with the flags that each of them needs and no others",
            status="cancelled",
            priority="medium",
            attempts=(Attempt(change="--attention-backend trtllm_mla", outcome="failed", reason="page_size == 64"),),
        ),
        Todo(id="c", content="flashmla", priority="medium", depth=1, parent="b", blocked_by=("b",)),
        Todo(id="d", content="[red]not markup[/]\x1b[31m", status="waiting", priority="someday"),
        Todo(id="e", content="Cast only the active rows", status="completed", priority="low", reason="74.1 ms, -22 %"),
    )
    reading = TodoReading(
        path="/data/why/todos.json",
        title="why 10 tok/s?",
        todos=items,
        gone=(Todo(id="f", content="Ask upstream"),),
        unsaved="No space left on device",
    )
    return with_last("todo", reading)


def running_bench() -> State:
    progress = Progress(
        preset="sweep",
        endpoint=states.ENDPOINT,
        phase="measuring",
        step=3,
        steps=6,
        streams=4,
        requests_done=12,
        requests_total=16,
        errors=1,
        elapsed_s=31.0,
        eta_s=94.0,
        output_tok_s=612.4,
        ttft_ms_mean=61.2,
        icl_ms_mean=6.41,
        loop_lag_ms_p99=0.4,
    )
    return with_last("bench", states.bench(progress))


def doubtful_runs() -> State:
    hot = Gate(name="clock", severity="suspect", detail="SM clock fell 18 % on GPU 0")
    slow = Gate(name="client", severity="invalid", detail="client-bound: event loop lag p99 41 ms")
    faults = (RequestFault(kind="http", count=3, example="503 Service Unavailable"),)
    base = states.run(7, 198.2, 5.05)
    runs = (
        replace(states.run(10, 3120.0, 9.7, valid=False), gates=(slow, hot), plan=replace(base.plan, streams=64)),
        replace(states.run(9, 161.0, 6.21), gates=(hot,), requests=Requests(ok=5, failed=3, errors=faults)),
        replace(states.run(8, 197.0, 5.08), partial=True),
        base,
    )
    return with_last("bench", BenchReading(presets=states.PRESETS, runs=runs, baseline_id=7))


def two_ranks(ok: bool = True) -> State:
    """SGLang TP2 with graphs as recorded on two H200: rank 0 waits, mostly for the profiler's sake."""
    first = _rank(0, 5424.0, waiting=953.0, idle=909.0)
    second = _rank(1, 5029.0, waiting=23.0, idle=1580.0)
    if not ok:
        why = ("212 launches have no kernel", "kernel counts of the steps differ: 601, 389, 601")
        totals = Totals(span_us=38_211.0, kinds_us={"gemm": 16_630.0, "communication": 7_900.0}, kernels=4240)
        first = replace(first, coverage=Coverage(ok=False, problems=why), totals=totals)
        second = replace(second, coverage=Coverage(ok=False, problems=why), totals=totals)
    report = StepsReport(engine="sglang", itl_ms=3.42, ranks=(first, second), straggler_rank=1)
    capture = Capture(id="c2", made_wall_ns=states.WALL_NS, files=(first.file, second.file), report=report)
    older = states.steps().captures[0]
    return with_last("steps", StepsReading(captures=(capture, older)))


def _rank(number: int, period: float, waiting: float, idle: float) -> RankSteps:
    kinds = {"gemm": 2376.0, "attention": 471.0, "norm": 191.0, "rope": 60.0, "kv_write": 53.0, "copy": 5.0}
    kinds["communication"] = 178.0 + waiting
    kinds["idle"] = idle
    kinds["activation"] = period - sum(kinds.values())
    busy = period - idle
    attention = "void flash::_fwd_grouped_kernel_stage1<cutlass::half_t, 64, 128, true>(Params, int, float const*)" * 2
    return RankSteps(
        rank=number,
        file=f"/traces/run-TP-{number}.trace.json.gz",
        batches=(Batch(batch_size=1, label="step[DECODE bs=1]", steps_used=5),),
        steps=StepCounts(found=7, used=5, other={"prefill": 1}),
        period_us=Period(representative=period, median=period - 8, p10=period - 400, p90=period + 99),
        busy_us=busy,
        idle_us=idle,
        representative_step=3,
        kinds_us=kinds,
        groups_us={
            "compute": busy - kinds["communication"] - 5.0,
            "copies": 5.0,
            "communication": kinds["communication"],
            "idle": idle,
        },
        idle_split_us={"host_late": 12.0, "launch_call": 380.0, "in_graph": 214.0, "unknown": idle - 606.0},
        communication_us=Communication(transfer=178.0, waiting=waiting),
        real=Real(step_ms=3.42, idle_share=0.021),
        kernels_per_step=601,
        graph_launches_per_step=1,
        top_kernels=(
            TopKernel(name="nvjet_tst_192x8_64x8", kind="gemm", us_per_step=1405.5, calls_per_step=72, share=0.26),
            TopKernel(name=attention, kind="attention", us_per_step=411.2, calls_per_step=36, share=0.076),
        ),
        calls_per_step={"gemm": 217.0, "attention": 76.0, "norm": 145.0, "communication": 74.0},
        unknown_share=0.031,
        unknown_kernels=(
            TopKernel(name="mystery_kernel", kind="other", us_per_step=168.0, calls_per_step=1, share=0.031),
        ),
        kept_steps=tuple(
            StepBar(
                index=n,
                period_us=period + 700 * (n == 3),
                idle_us=idle,
                kinds_us={**kinds, "communication": kinds["communication"] + 700 * (n == 3)},
            )
            for n in range(5)
        ),
        coverage=Coverage(ok=True),
    )


def compared(state: State) -> State:
    reading = state.last("steps", StepsReading)
    assert reading is not None
    newer, older = (one.id for one in reading.captures)
    return with_last("steps", replace(reading, compared=(older, newer)))


def parsing() -> State:
    under_way = Parsing(
        files=("/traces/a.json.gz", "/traces/b.json.gz"), done_bytes=45, total_bytes=100, mb_s=212.0, eta_s=3.0
    )
    return with_last("steps", StepsReading(parsing=under_way))


CASES: dict[str, tuple[str, Callable[[], State]]] = {
    **{f"{name}.box": (name, lambda: states.box(60)) for name in PANES},
    **{f"{name}.bare": (name, states.bare) for name in PANES},
    **{f"{name}.empty": (name, states.empty) for name in PANES},
    **{f"{name}.failing": (name, lambda name=name: failing(name)) for name in PANES},
    "gpu.eight": ("gpu", lambda: states.box(60, gpu_count=8)),
    "gpu.odd": ("gpu", odd_gpus),
    "server.down": ("server", lambda: a_server(status="down", status_message="connection refused")),
    "server.needs_key": ("server", lambda: a_server(status="needs_key", status_message="401 from /v1/models")),
    "server.hung": ("server", lambda: a_server(status="hung", status_message="no answer within 5 s")),
    "server.speculating": ("server", speculating),
    "todo.notebook": ("todo", notebook),
    "bench.running": ("bench", running_bench),
    "bench.doubtful": ("bench", doubtful_runs),
    "steps.two_ranks": ("steps", two_ranks),
    "steps.compared": ("steps", lambda: compared(two_ranks())),
    "steps.uncovered": ("steps", lambda: two_ranks(ok=False)),
    "steps.parsing": ("steps", parsing),
    "steps.judged": ("steps", floors.judged),
    "floor.judged": ("floor", floors.judged),
    "floor.what_if": ("floor", lambda: floors.judged(seen=floors.reading(asked=WhatIf(tp=2, kv_dtype="fp8_e4m3")))),
    "floor.unmeasured": ("floor", lambda: floors.judged(seen=floors.reading(None))),
    "floor.elsewhere": ("floor", lambda: floors.judged(seen=floors.reading(model="Qwen/Nowhere"))),
    "steps.unread": (
        "steps",
        lambda: with_last("steps", StepsReading(last_error="/traces/x.json.gz: not a trace (no traceEvents)")),
    ),
}
CURSORS = {"floor.judged": "move:0", "steps.two_ranks": "kernel:0:1", "gpu.odd": "gpu:2", "bench.doubtful": "run:9"}


def seen(module: PaneModule, state: State, view: View) -> list[str]:
    picture = module.draw(state, view)
    mode = f" {module.MODES[view.mode]}" if view.mode else ""
    head = f"== {view.width}x{view.height}{' zoomed' if view.zoomed else ''}{mode} == {picture.note}"
    least, wanted = module.want(state, view.width)
    lines = ["".join(span.text for span in line).rstrip() for line in picture.lines]
    cut = [] if view.zoomed or len(lines) <= view.height else [f"-- {len(lines) - view.height} more --"]
    shown = lines if view.zoomed else lines[: view.height]
    return [f"{head} [{least}, {wanted}]", *shown, *cut, ""]


def text_of(case: str) -> str:
    name, make = CASES[case]
    module, state = PANES[name], make()
    cursor = CURSORS.get(case)
    lines = [line for width, height in DASHBOARD[name] for line in seen(module, state, View(width, height))]
    for width, height in ZOOMED:
        for mode in range(len(module.MODES) if (width, height) == ZOOMED[-1] else 1):
            view = View(width, height, focused=True, zoomed=True, cursor=cursor, mode=mode)
            lines += seen(module, state, view)
    return "\n".join(lines)


@pytest.mark.parametrize("case", CASES)
def test_looks_as_reviewed(case: str) -> None:
    path, text = GOLDEN / f"{case}.txt", text_of(case)
    if os.environ.get("DECODETOP_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text


def test_no_golden_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)
