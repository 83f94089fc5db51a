"""Synthetic states for tests of the face: a box as it may look, every figure a function of the tick."""

from __future__ import annotations

from decodetop.bench.reading import (
    BenchReading,
    ClientCheck,
    Environment,
    Metrics,
    Plan,
    Preset,
    Progress,
    Quantiles,
    Requests,
    Run,
    Tokens,
)
from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import ClockReading, Failure, Header, Notice, Reading, Sample
from decodetop.core.state import State, fold
from decodetop.gpu.reading import Gpu, GpuProcess, GpuReading
from decodetop.host.reading import Disk, HostProcess, HostReading
from decodetop.server.reading import Flag, Latency, Server, ServerProcess, ServerReading
from decodetop.steps.reading import (
    Batch,
    Capture,
    Coverage,
    Period,
    RankSteps,
    Real,
    StepBar,
    StepCounts,
    StepsReading,
    StepsReport,
    TopKernel,
)
from decodetop.todo.reading import Todo, TodoReading

WALL_NS = 1_796_004_000 * SECOND_NS
"""2026-11-30 02:00:00 UTC: when the synthetic session begins."""

ENDPOINT = "http://127.0.0.1:30001"
GIB = 2**30


def header(*, simulated: bool = False) -> Header:
    return Header(version="0.1.0", host="gpu-box-7", started_wall_ns=WALL_NS, simulated=simulated)


def gpus(count: int = 2, tick: int = 0) -> GpuReading:
    """GPU 0 serves; every other one idles. All figures move with `tick`."""
    return GpuReading(
        gpus=tuple(_gpu(index, tick) for index in range(count)),
        driver_version="570.86.15",
        nvml_version="12.570",
        cuda_version="12.8",
        calls=14 * count,
    )


def _gpu(index: int, tick: int) -> Gpu:
    busy = index % 2 == 0
    wave = (tick * 7 + index * 3) % 20
    return Gpu(
        index=index,
        uuid=f"GPU-{index:08d}",
        name="NVIDIA H200",
        pci_bus_id=f"00000000:{index:02X}:00.0",
        numa_node=index // 4,
        sm_clock_mhz=(1755 if busy else 345) + 15 * (wave % 5),
        sm_clock_max_mhz=1980,
        mem_clock_mhz=3201,
        mem_clock_max_mhz=3201,
        performance_state=0,
        event_reasons=0,
        pcie_gen=5,
        pcie_gen_max=5,
        pcie_gen_device_max=5,
        pcie_width=16,
        pcie_width_max=16,
        pcie_tx_bytes_s=1.5e6 + 1e5 * wave,
        pcie_rx_bytes_s=2.5e6 + 1e5 * wave,
        pcie_replays=0,
        memory_used_bytes=int((96.1 + wave / 10 if busy else 0.6) * GIB),
        memory_free_bytes=int((44.0 - wave / 10 if busy else 139.7) * GIB),
        memory_reserved_bytes=int(0.6 * GIB),
        memory_total_bytes=int(140.4 * GIB),
        utilization_percent=float(80 + wave) if busy else 0.0,
        memory_busy_percent=float(20 + wave) if busy else 0.0,
        sm_active_percent=29.0 + wave if busy else 0.0,
        sm_occupancy_percent=12.0 + wave if busy else 0.0,
        tensor_active_percent=3.0 + wave / 10 if busy else 0.0,
        dram_bandwidth_percent=16.0 + wave if busy else 0.0,
        nvlink_tx_bytes_s=0.0,
        nvlink_rx_bytes_s=0.0,
        power_w=251.0 + 3 * wave if busy else 79.0 + wave / 10,
        power_limit_w=700.0,
        energy_j=1e6 + 250.0 * tick,
        temperature_c=44.0 + wave % 3 if busy else 36.0,
        memory_temperature_c=50.0 + wave % 3 if busy else 40.0,
        ecc_uncorrected=0,
        persistence_mode=True,
        mig_enabled=False,
        processes=(GpuProcess(pid=4242, name="sglang::scheduler", memory_bytes=95 * GIB),) if index == 0 else (),
        reasons={"fan_percent": "this GPU has no fan"},
    )


def servers(tick: int = 0, *, count: int = 1) -> ServerReading:
    """An SGLang server; with `count` 2 a vLLM beside it."""
    found = (_sglang(tick), _vllm(tick))[:count]
    return ServerReading(servers=found, current=ENDPOINT if found else None, searched=("processes", "ports"))


def _sglang(tick: int) -> Server:
    wave = tick % 10
    return Server(
        endpoint=ENDPOINT,
        engine="sglang",
        version="0.5.15",
        status="up",
        model="dense-8b",
        served_name="dense-8b",
        root_pid=4200,
        started_wall_ns=WALL_NS - 3600 * SECOND_NS,
        gpu_indices=(0,),
        processes=(
            ServerProcess(pid=4200, role="api", title="sglang.launch_server"),
            ServerProcess(pid=4242, role="scheduler", title="sglang::scheduler"),
        ),
        command=("python", "-m", "sglang.launch_server", "--disable-cuda-graph", "--port", "30001"),
        flags=(Flag(name="disable_cuda_graph", requested="True", resolved="True"),),
        tp=1,
        weights_dtype="bf16",
        kv_dtype="bf16",
        attention_backend="triton",
        cuda_graph=False,
        context_length=32768,
        kv_capacity_tokens=441_000,
        running=1,
        queued=0,
        kv_usage=0.001 + wave / 1e4,
        generated_tok_s=51.7 + wave / 10,
        prompt_tok_s=0.0,
        ttft=Latency(mean_ms=55.0, count=12.0, over_s=60.0),
        itl=Latency(mean_ms=19.3 + wave / 100, count=3000.0, over_s=60.0),
        scrape_ms=4.0,
        reasons={"accept_length": "no speculation", "ep": "not said by the server"},
    )


def _vllm(tick: int) -> Server:
    return Server(
        endpoint="http://127.0.0.1:8000",
        engine="vllm",
        version="0.14.0",
        status="up",
        model="moe-30b",
        tp=1,
        gpu_indices=(1,),
        running=0,
        queued=0,
        kv_usage=0.0,
        generated_tok_s=0.0,
        reasons={"ttft": "no request yet", "itl": "no request yet"},
    )


TODOS = (
    Todo(id="t1", content="Profile SGLang decode: identify bottlenecks", status="in_progress", priority="high"),
    Todo(id="t2", content="Break down step: kernel, allreduce, scheduling", priority="high"),
    Todo(
        id="t3",
        content="trtllm_mla backend",
        status="cancelled",
        priority="medium",
        notes="AssertionError: qk_nope_head_dim == 128",
    ),
    Todo(id="t4", content="Enable CUDA graphs, compare", priority="medium"),
    Todo(id="t5", content="Measure the baseline", status="completed", priority="low"),
)


def todos(items: tuple[Todo, ...] = TODOS) -> TodoReading:
    return TodoReading(path="/data/why/todos.json", title="why 51 tok/s?", todos=items, revision=7, undo_depth=2)


PRESETS = (
    Preset(name="single", title="one stream, 256 tokens out", requests_per_stream=8),
    Preset(name="sweep", title="1 to 32 streams", streams=(1, 2, 4, 8, 16, 32)),
    Preset(name="long", title="long context", input_tokens=16_384),
)


def run(id: int, tok_s: float, tpot_ms: float, *, valid: bool = True) -> Run:
    return Run(
        id=id,
        started_wall_ns=WALL_NS - (600 - id) * SECOND_NS,
        duration_s=42.0,
        valid=valid,
        gates=(),
        plan=Plan(preset="single", endpoint=ENDPOINT, model="dense-8b"),
        environment=Environment(decodetop="0.1.0", host="gpu-box-7", engine="sglang", model="dense-8b", tp=1),
        requests=Requests(ok=8, failed=0),
        tokens=Tokens(output=2048, prompt=1024, cached=None, source="usage"),
        metrics=Metrics(
            ttft_ms=_spread(55.0),
            itl_ms=_spread(tpot_ms),
            icl_ms=_spread(tpot_ms),
            tpot_ms=_spread(tpot_ms),
            e2e_ms=_spread(tpot_ms * 256),
            output_tok_s=tok_s,
            request_s=tok_s / 256,
            accept_length=None,
        ),
        client=ClientCheck(loop_lag_ms_p99=0.4, cpu_percent=3.0, send_delay_ms_p99=0.1),
    )


def _spread(value: float) -> Quantiles:
    return Quantiles(n=8, mean=value, p50=value, p90=value * 1.1, p99=value * 1.3)


def bench(progress: Progress | None = None) -> BenchReading:
    return BenchReading(
        presets=PRESETS, runs=(run(4, 51.7, 19.3), run(3, 195.7, 5.1)), baseline_id=3, progress=progress
    )


def progress(tick: int = 0) -> Progress:
    return Progress(
        preset="single",
        endpoint=ENDPOINT,
        phase="measuring",
        streams=1,
        requests_done=2,
        requests_total=8,
        elapsed_s=10.0 + tick,
        eta_s=32.0 - tick % 32,
        output_tok_s=51.7,
        ttft_ms_mean=55.0,
        icl_ms_mean=19.3,
    )


def steps() -> StepsReading:
    """One capture of one rank: 63.7 ms a profiled step, almost all idle; kinds and idle sum to the period."""
    kinds = {
        "gemm": 4170.0,
        "attention": 360.0,
        "kv_write": 52.0,
        "norm": 190.0,
        "rope": 60.0,
        "activation": 68.0,
        "sampling": 100.0,
        "idle": 58_700.0,
    }
    busy = sum(kinds.values()) - kinds["idle"]
    rank = RankSteps(
        rank=0,
        file="/traces/dense-8b-TP-0.trace.json.gz",
        batches=(Batch(batch_size=1, label="step[DECODE bs=1]", steps_used=5),),
        steps=StepCounts(found=7, used=5),
        period_us=Period(representative=63_700.0, median=63_700.0, p10=63_200.0, p90=64_400.0),
        busy_us=busy,
        idle_us=58_700.0,
        representative_step=2,
        kinds_us=kinds,
        groups_us={"compute": busy, "copies": 0.0, "communication": 0.0, "idle": 58_700.0},
        idle_split_us={"host_late": 58_000.0, "launch_call": 700.0},
        real=Real(step_ms=19.3, idle_share=0.74),
        kernels_per_step=601,
        graph_launches_per_step=0,
        top_kernels=(
            TopKernel(
                name="nvjet_sm90_tst_192x8_64x8", kind="gemm", us_per_step=2376.0, calls_per_step=72, share=0.037
            ),
            TopKernel(
                name="_fwd_grouped_kernel_stage1", kind="attention", us_per_step=300.0, calls_per_step=36, share=0.005
            ),
        ),
        kept_steps=tuple(StepBar(index=n, period_us=63_700.0 + 200 * n, idle_us=58_700.0) for n in range(5)),
        coverage=Coverage(ok=True),
        device_name="NVIDIA H200",
    )
    report = StepsReport(engine="sglang", itl_ms=19.3, ranks=(rank,))
    return StepsReading(captures=(Capture(id="c1", made_wall_ns=WALL_NS, files=(rank.file,), report=report),))


def host(tick: int = 0) -> HostReading:
    wave = tick % 10
    return HostReading(
        cpu_count=32,
        cpu_percent=7.0 + wave / 10,
        cpu_max_core_percent=100.0,
        cpu_per_core_percent=tuple(100.0 if core == 3 else 4.0 for core in range(32)),
        cpu_steal_percent=0.0,
        load_1=3.2,
        load_5=3.0,
        load_15=2.8,
        memory_used_bytes=41 * GIB,
        memory_available_bytes=210 * GIB,
        memory_total_bytes=251 * GIB,
        swap_used_bytes=0,
        swap_total_bytes=0,
        disks=(Disk(role="traces", path="/traces", free_bytes=128 * GIB, total_bytes=512 * GIB),),
        processes=(
            HostProcess(pid=4200, root_pid=4200, role="api", title="sglang", cpu_percent=4.0, threads=60),
            HostProcess(pid=4242, root_pid=4200, role="scheduler", title="sglang::scheduler", cpu_percent=100.0),
        ),
        kernel="6.8.0",
        boot_wall_ns=WALL_NS - 86_400 * SECOND_NS,
    )


def box(
    ticks: int = 60, gpu_count: int = 2, *, simulated: bool = False, server_count: int = 1, busy_bench: bool = False
) -> State:
    """The state after `ticks` seconds on a box with a server, a checklist, two runs and a capture."""
    state = State(header=header(simulated=simulated))
    once: dict[str, Reading] = {
        "todo": todos(),
        "bench": bench(progress() if busy_bench else None),
        "steps": steps(),
    }
    state = put(state, once, 0)
    for tick in range(ticks + 1):
        state = step(state, tick, gpu_count, server_count=server_count)
    return state


def step(state: State, tick: int, gpu_count: int = 2, *, server_count: int = 1) -> State:
    """One second more of the sources that read at 1 Hz."""
    seen: dict[str, Reading] = {
        "gpu": gpus(gpu_count, tick),
        "server": servers(tick, count=server_count),
        "host": host(tick),
        "clock": ClockReading(wall_ns=WALL_NS + tick * SECOND_NS),
    }
    return put(state, seen, tick)


def put(state: State, readings: dict[str, Reading], second: float) -> State:
    """Fold the readings, all at `second` of the session."""
    for source, reading in readings.items():
        sample = Sample(source=source, t_ns=int(second * SECOND_NS), seq=state.seq + 1, reading=reading)
        state = fold(state, sample)
    return state


def fail(state: State, source: str, failure: Failure, second: float | None = None) -> State:
    """Fold a failure of `source`, now unless told otherwise."""
    t_ns = state.now_ns if second is None else int(second * SECOND_NS)
    return fold(state, Sample(source=source, t_ns=t_ns, seq=state.seq + 1, failure=failure))


def notice(state: State, message: str, *, level: str = "info", ring: bool = False, hint: str = "") -> State:
    word = Notice(level=level, message=message, ring=ring, hint=hint)  # type: ignore[arg-type]
    return fold(state, Sample(source="notice", t_ns=state.now_ns, seq=state.seq + 1, reading=word))


def empty(*, simulated: bool = False) -> State:
    """Before the first sample."""
    return State(header=header(simulated=simulated))


def bare() -> State:
    """A machine with no GPU, no server and no investigation yet, after a second."""
    state = put(empty(), {"clock": ClockReading(wall_ns=WALL_NS + SECOND_NS)}, 1)
    state = fail(state, "gpu", Failure(kind="absent", message="no NVIDIA driver here", hint="traces still work"))
    return put(
        state,
        {
            "server": ServerReading(searched=("processes", "ports")),
            "host": host(),
            "todo": TodoReading(path="/data/default/todos.json"),
            "bench": BenchReading(presets=PRESETS),
            "steps": StepsReading(),
        },
        1,
    )
