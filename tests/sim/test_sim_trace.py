"""The simulated traces: valid, cut into the steps that were decoded, and of the recorded proportions."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from decodetop.sim import model
from decodetop.sim.batch import Pass
from decodetop.sim.gpus import NAME
from decodetop.sim.trace import Capture, render, write
from decodetop.steps.analyse import analyse

EPOCH_NS = 1_796_000_000 * 10**9
GPU = ("kernel", "gpu_memcpy", "gpu_memset")


def passes(tp: int, graphs: bool, count: int = 7, streams: int = 1, context: int = 1036) -> tuple[Pass, ...]:
    pace = model.pace(tp, graphs=graphs)
    out: list[Pass] = []
    at_ns = 10**12
    for step in range(count):
        held = context + streams * step
        end_ns = at_ns + int(pace.decode_ms(streams, held, profiling=True) * 1e6)
        out.append(Pass(start_ns=at_ns, end_ns=end_ns, streams=streams, context_tokens=held, graphed=graphs))
        at_ns = end_ns
    return tuple(out)


def capture(tp: int, graphs: bool, **more: Any) -> Capture:
    made = passes(tp, graphs, **more)
    return Capture(passes=made, tp=tp, pid=4242, epoch_ns=EPOCH_NS, profile_id="1796000000.5")


def ns(text: float) -> int:
    return round(text * 1000)


def steps(trace: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """GPU events by the label before their launch: an independent, plain cut by correlation."""
    events = trace["traceEvents"]
    launches = {e["args"]["correlation"]: e["ts"] for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    labels = sorted(e["ts"] for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("step["))
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") in GPU:
            launched = launches[event["args"]["correlation"]]
            assert event["ts"] > launched
            found[sum(label <= launched for label in labels)].append(event)
    assert 0 not in found
    return [sorted(found[at], key=lambda e: e["ts"]) for at in sorted(found)]


@pytest.mark.parametrize(("tp", "graphs"), [(1, True), (1, False), (2, True), (2, False)])
def test_every_step_has_its_kernels_and_its_period(tp: int, graphs: bool) -> None:
    made = capture(tp, graphs)
    for rank in range(tp):
        cut = steps(json.loads(render(made, rank)))
        # the bookkeeping of the next batch is launched under the next label, so the first step lacks it
        assert [len(step) for step in cut[1:-1]] == [528 if tp == 1 else 605] * 5
        main = [[event for event in step if event["tid"] == 13] for step in cut]
        starts = [ns(step[0]["ts"]) for step in main]
        periods = [one.end_ns - one.start_ns for one in made.passes]
        for (start, following), period in zip(pairwise(starts), periods, strict=False):
            assert following - start == pytest.approx(period, abs=1500)


@pytest.mark.parametrize(("tp", "graphs"), [(1, True), (2, True), (1, False)])
def test_a_stream_never_runs_two_kernels_but_where_the_next_is_launched_early(tp: int, graphs: bool) -> None:
    early = ("RMSNormKernel", "splitKreduce", "fused_qknorm", "all_reduce", "gemm", "nvjet")
    for step in steps(json.loads(render(capture(tp, graphs), 0))):
        main = [event for event in step if event["tid"] == 13]
        for before, after in pairwise(main):
            overlap = before["ts"] + before["dur"] - after["ts"]
            assert overlap < 1.8 or any(word in after["name"] for word in early), (before["name"], after["name"])


def test_the_proportions_are_the_recorded_ones() -> None:
    """sgl_tp1_graph_c1: gemm 4158.6, attention 463.3, busy 5063.8 of 5295.9 us; without graphs busy 4928 of 63,702."""
    step = steps(json.loads(render(capture(1, True), 0)))[3]
    by_kind = {
        "gemm": sum(e["dur"] for e in step if e["name"].startswith("nvjet") or "splitKreduce" in e["name"]),
        "attention": sum(e["dur"] for e in step if e["name"].startswith(("_fwd", "create_flash", "get_num_kv"))),
    }
    assert by_kind["gemm"] == pytest.approx(4158.6, rel=0.02)
    assert by_kind["attention"] == pytest.approx(463.3, rel=0.03)
    assert sum(e["dur"] for e in step) == pytest.approx(5098.3, rel=0.02)
    eager = steps(json.loads(render(capture(1, False), 0)))[3]
    assert sum(e["dur"] for e in eager) == pytest.approx(4928.1, rel=0.04)


def test_graph_kernels_share_one_correlation() -> None:
    for step in steps(json.loads(render(capture(1, True), 0))):
        counts: dict[int, int] = defaultdict(int)
        for event in step:
            counts[event["args"]["correlation"]] += 1
        assert max(counts.values()) == 509
        assert sorted(counts.values())[-2] == 1


def test_two_ranks_wait_for_each_other_in_the_first_all_reduce() -> None:
    made = capture(2, True)
    reduces = [[e for e in steps(json.loads(render(made, rank)))[3] if "all_reduce" in e["name"]] for rank in range(2)]
    assert [len(rank) for rank in reduces] == [73, 73]
    assert reduces[0][0]["dur"] - reduces[1][0]["dur"] == pytest.approx(920, rel=0.03)
    for mine, other in zip(*reduces, strict=True):
        assert mine["ts"] + mine["dur"] == pytest.approx(other["ts"] + other["dur"], abs=2)


def test_longer_context_makes_attention_longer_and_gemm_no_shorter() -> None:
    def attention_us(context: int) -> float:
        step = steps(json.loads(render(capture(1, True, streams=4, context=context), 0)))[2]
        return sum(float(e["dur"]) for e in step if e["name"] == "_fwd_grouped_kernel_stage1")

    assert attention_us(60_000) - attention_us(4_000) == pytest.approx(56_000 * 3.5e-5 * 1036, rel=0.1)


def test_a_prefill_stands_under_its_own_label() -> None:
    decode = passes(1, True, count=3)
    end_ns = decode[-1].end_ns
    prefill = Pass(start_ns=end_ns, end_ns=end_ns + 60_000_000, streams=2, context_tokens=900, new_tokens=900)
    made = Capture(passes=(*decode, prefill), tp=1, pid=1, epoch_ns=EPOCH_NS, profile_id="1")
    trace = json.loads(render(made, 0))
    labels = [e["name"] for e in trace["traceEvents"] if e.get("cat") == "user_annotation" and "step[" in e["name"]]
    assert labels == ["step[DECODE bs=1]"] * 3 + ["step[EXTEND bs=2 toks=900]"]
    last = steps(trace)[-1]
    assert {"_fwd_kernel"} <= {e["name"] for e in last}
    assert last[-1]["ts"] + last[-1]["dur"] - last[0]["ts"] == pytest.approx(60_000, rel=0.05)


def test_without_cpu_activity_there_are_launches_but_no_labels() -> None:
    made = Capture(passes=passes(1, True, count=2), tp=1, pid=1, epoch_ns=EPOCH_NS, profile_id="1", cpu=False)
    events = json.loads(render(made, 0))["traceEvents"]
    assert not any(e.get("cat") == "user_annotation" for e in events)
    assert sum(e.get("name") == "cudaGraphLaunch" for e in events) == 2


def test_files_are_whole_and_named_as_sglang_names_them(tmp_path: Path) -> None:
    paths = write(capture(2, True, count=2), tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [f"1796000000.5-TP-{rank}.trace.json.gz" for rank in range(2)]
    assert sorted(paths) == sorted(paths[0].parent.iterdir())
    for rank, path in enumerate(paths):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        assert trace["distributedInfo"]["rank"] == rank
        assert trace["deviceProperties"][0]["name"] == NAME


@pytest.mark.parametrize(
    ("tp", "graphs", "period_us", "busy_us", "gemm_us", "in_graph_us"),
    [(1, True, 5295.9, 5063.8, 4158.6, 214.0), (1, False, 63_702.0, 4928.1, 4167.3, 0.0)],
)
def test_our_own_reader_finds_the_recorded_figures(
    tmp_path: Path, tp: int, graphs: bool, period_us: float, busy_us: float, gemm_us: float, in_graph_us: float
) -> None:
    report = analyse(write(capture(tp, graphs), tmp_path))
    assert (report.engine, report.errors) == ("sglang", ())
    rank = report.ranks[0]
    assert (rank.steps.found, rank.steps.used, rank.kernels_per_step) == (7, 5, 524)
    assert rank.graph_launches_per_step == (1 if graphs else 0)
    assert rank.coverage.ok, rank.coverage.problems
    assert rank.period_us is not None
    assert rank.period_us.median == pytest.approx(period_us, rel=0.01)
    assert rank.busy_us == pytest.approx(busy_us, rel=0.03)
    assert rank.kinds_us["gemm"] == pytest.approx(gemm_us, rel=0.02)
    assert rank.idle_split_us["in_graph"] == pytest.approx(in_graph_us, abs=5)
    assert sum(rank.kinds_us.values()) == pytest.approx(rank.period_us.representative)
    if not graphs:
        assert rank.idle_split_us["host_late"] > 0.99 * (rank.idle_us or 0)


def test_our_own_reader_tells_waiting_from_transfer(tmp_path: Path) -> None:
    report = analyse(write(capture(2, True), tmp_path))
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert report.straggler_rank == 1
    waits = [rank.communication_us.waiting for rank in report.ranks]
    assert waits == [pytest.approx(920, rel=0.05), pytest.approx(0, abs=30)]
    assert {rank.kernels_per_step for rank in report.ranks} == {601}


def cast_pass(at_ns: int, tp: int, speed: float) -> Pass:
    cast_ms = model.cast_ms("full", tp, 68_000, 1036)
    step_ms = model.pace(tp, graphs=True).decode_ms(1, 1036, cast_ms=cast_ms, profiling=True) / speed
    end_ns = at_ns + int(step_ms * 1e6)
    return Pass(start_ns=at_ns, end_ns=end_ns, streams=1, context_tokens=1036, cast_ms=cast_ms)


@pytest.mark.parametrize(("tp", "speed"), [(1, 1.0), (2, 1.0), (1, 10.0)])
def test_a_cast_of_the_whole_pool_shows_as_copies(tmp_path: Path, tp: int, speed: float) -> None:
    made = [cast_pass(10**12, tp, speed)]
    for _ in range(6):
        made.append(cast_pass(made[-1].end_ns, tp, speed))
    report = analyse(write(Capture(passes=tuple(made), tp=tp, pid=1, epoch_ns=EPOCH_NS, profile_id="9"), tmp_path))
    rank = report.ranks[0]
    assert rank.coverage.ok, rank.coverage.problems
    assert rank.kernels_per_step == {1: 524, 2: 601}[tp] + 36
    assert rank.kinds_us["copy"] * speed / 1000 == pytest.approx(made[0].cast_ms, rel=0.02)
    assert "direct_copy_kernel_cuda" in rank.top_kernels[0].name
