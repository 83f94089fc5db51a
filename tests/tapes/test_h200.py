"""A session on a box with two H200, SGLang 0.5.15 with and without CUDA graphs, recorded by the key R: replayed whole.

In it: a benchmark (b, Enter), a capture of the live server (p, y), an item ticked (x), a report written (w).
"""

from pathlib import Path

import pytest

from decodetop.bench.reading import BenchReading
from decodetop.core.state import State, fold
from decodetop.core.tape import Tape
from decodetop.findings import evaluate
from decodetop.findings.owners import gpus_of
from decodetop.flows.catalog import codec
from decodetop.gpu.reading import GpuReading
from decodetop.host.reading import HostReading
from decodetop.report import markdown
from decodetop.server.reading import Server, ServerReading
from decodetop.steps.reading import StepsReading
from decodetop.todo.reading import TodoReading

TAPE = Path(__file__).parent / "h200_sglang.tape"


@pytest.fixture(scope="module")
def states() -> list[State]:
    """The state after each sample."""
    with Tape(TAPE, codec()) as tape:
        state = State(header=tape.header)
        seen = [state := fold(state, sample) for sample in tape.samples()]
        assert not tape.truncated and tape.codec.unknown == set()
    return seen


def server_of(state: State) -> Server | None:
    reading = state.last("server", ServerReading)
    return None if reading is None else reading.current_server


def test_what_the_box_is(states: list[State]) -> None:
    gpu, server, host = (
        states[-1].last(*one) for one in (("gpu", GpuReading), ("server", ServerReading), ("host", HostReading))
    )
    assert gpu is not None and server is not None and host is not None
    assert [(one.name, one.pcie_gen, one.pcie_width, one.nvlink_links_active) for one in gpu.gpus] == [
        ("NVIDIA H200", 5, 16, 18)
    ] * 2
    current, other = sorted(server.servers, key=lambda one: one.endpoint)
    assert (current.engine, current.version, current.tp, current.cuda_graph) == ("sglang", "0.5.15", 1, True)
    assert (other.status, other.cuda_graph) == ("needs_key", False)
    owned = gpus_of(current, gpu)
    assert owned is not None and [one.index for one in owned] == [0]
    assert host.cpu_count == 32 and {one.role for one in host.processes} >= {"scheduler"}


def test_under_the_benchmark_gpu_and_server_agree(states: list[State]) -> None:
    """15.1 GB of weights a token at the rate the server counts, against the bandwidth NVML's GPM saw."""
    loaded = []
    for state in states:
        server, gpu = server_of(state), state.last("gpu", GpuReading)
        if server is None or gpu is None or not server.generated_tok_s or server.generated_tok_s < 180:
            continue
        percent = gpu.gpus[0].dram_bandwidth_percent
        if percent is not None and percent > 55:
            loaded.append((server.generated_tok_s, percent, gpu.gpus[0].power_w or 0.0, gpu.gpus[0].sm_clock_mhz))
    assert len(loaded) >= 3
    for tok_s, percent, power_w, clock_mhz in loaded:
        assert percent / 100 * 4814.3 == pytest.approx(tok_s * 15.136, rel=0.08)
        assert power_w > 400 and clock_mhz == 1980


def test_the_benchmark_agrees_with_the_servers_counters(states: list[State]) -> None:
    bench = states[-1].last("bench", BenchReading)
    assert bench is not None
    (run,) = bench.runs
    assert run.valid and run.tokens.output == 1024 and run.metrics.itl_ms is not None
    seen = run.environment.server
    assert seen is not None and seen.generated_tokens == 1024 and seen.itl_mean_ms is not None
    assert run.metrics.itl_ms.mean == pytest.approx(seen.itl_mean_ms, rel=0.02)


def test_the_capture_sums_to_the_step(states: list[State]) -> None:
    steps = states[-1].last("steps", StepsReading)
    assert steps is not None
    (rank,) = steps.captures[0].report.ranks
    assert rank.coverage.ok and rank.steps.used == 17 and rank.period_us is not None
    assert sum(rank.kinds_us.values()) == pytest.approx(rank.period_us.representative, abs=1e-6)
    assert rank.kinds_us["gemm"] / rank.period_us.representative == pytest.approx(0.82, abs=0.02)
    assert rank.real is not None and rank.real.step_ms == pytest.approx(4.96, abs=0.01)


def test_an_idle_gauge_is_not_shown_as_running(states: list[State]) -> None:
    last = server_of(states[-1])
    assert last is not None and last.running is None and "not renewed" in last.reasons["running"]


def test_a_healthy_box_gave_no_finding(states: list[State]) -> None:
    assert [finding.id for state in states[::7] for finding in evaluate(state)] == []


def test_the_story_is_in_the_report(states: list[State]) -> None:
    todo = states[-1].last("todo", TodoReading)
    assert todo is not None and [item.status for item in todo.todos] == ["completed", "pending", "pending", "pending"]
    text = markdown(states[-1])
    assert text.count("\n## ") == 9 and "# why 51 tok/s?" in text and "| `#1` | single | 1 | 128 | 196.5 |" in text
    assert "sk-" not in text
