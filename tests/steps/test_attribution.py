"""Why the GPU idles, who waits for whom, kinds by context; and that spilling to disk changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from decodetop.errors import TraceError
from decodetop.steps import analyse as analysis
from decodetop.steps import timeline, trace
from decodetop.steps.analyse import analyse
from decodetop.steps.reading import RankSteps
from decodetop.steps.rows import ROW
from decodetop.steps.spill import Spill
from support.kineto import STEP_US, Trace, decode

GEMM, NORM = "nvjet_a", "void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(int)"


def only(found: Trace, tmp_path: Path) -> RankSteps:
    (rank,) = analyse([found.write(tmp_path / "t.json")]).ranks
    assert rank.coverage.ok, rank.coverage.problems
    return rank


def eager(second_called: float, second_starts: float, call_us: float = 5.0) -> Trace:
    """Steps of 1000 us: a GEMM of 300, then a norm of 100 whose call and start are given."""
    made = Trace()
    for step in range(6):
        start = step * 1000.0
        made.label("step[DECODE bs=1]", start - 30, 990)
        made.launch(start - 25, [(GEMM, start, 300.0)])
        made.launch(start + second_called, [(NORM, start + second_starts, 100.0)], call_us=call_us)
    return made


def split(rank: RankSteps) -> dict[str, float]:
    return {kind: us for kind, us in rank.idle_split_us.items() if us}


# the gap after the norm (to 1000) ends with the next GEMM, called 25 us before it: late as well
@pytest.mark.parametrize(
    ("called", "starts", "call_us", "expected"),
    [
        (500, 520, 5, {"host_late": 220 + 380}),
        (280, 350, 60, {"launch_call": 40, "device_gap": 10, "host_late": 550}),
        (100, 330, 5, {"device_gap": 30, "host_late": 570}),
    ],
)
def test_idle_by_what_the_launch_was_doing(
    called: float, starts: float, call_us: float, expected: dict[str, float], tmp_path: Path
) -> None:
    assert split(only(eager(called, starts, call_us), tmp_path)) == expected


def test_a_synchronising_call_of_the_launching_thread_is_told_apart(tmp_path: Path) -> None:
    made = eager(500, 520)
    for step in range(6):
        made.call("cudaEventSynchronize", step * 1000.0 + 250, 200, 900 + step)
        made.call("cudaStreamSynchronize", step * 1000.0 + 330, 100, 950 + step, tid=4000)
    # idle from 300; the thread waits until 450, then takes till 500 to call; another thread's waiting is its own matter
    assert split(only(made, tmp_path)) == {"sync": 150, "host_late": 70 + 380}


def test_gaps_inside_a_graph_and_without_a_call(tmp_path: Path) -> None:
    rank = only(decode(), tmp_path)
    # three gaps of 5 us in the graph; the next one is called, and the call is over, while the last kernel runs
    assert split(rank) == {"in_graph": 15, "device_gap": 25}
    made = eager(500, 520)
    made.events = [one for one in made.events if one["cat"] != "cuda_runtime" or one["args"]["correlation"] % 2]
    assert split(only(made, tmp_path)) == {"unknown": 220, "host_late": 380}


def test_another_streams_work_fills_the_gap(tmp_path: Path) -> None:
    made = eager(500, 520)
    for step in range(6):
        made.call("cudaMemcpyAsync", step * 1000.0 + 200, 5, 800 + step)
        made.gpu("Memcpy DtoH (Device -> Pinned)", step * 1000.0 + 250, 150, 800 + step, 9, "gpu_memcpy")
    rank = only(made, tmp_path)
    assert rank.kinds_us["copy"] == 100, "50 us of it run behind the GEMM"
    assert rank.idle_us == 1000 - 300 - 100 - 100
    assert rank.kernels_per_step == 2, "a memcpy is no kernel"


def tp2(tmp_path: Path, waits: tuple[float, float] = (400.0, 0.0), steps: int = 6) -> list[Path]:
    """Two ranks; the all-reduce transfers for 20 us, and a rank waits in it besides."""
    paths = []
    for rank, wait in enumerate(waits):
        made = Trace()
        for step in range(steps):
            start = step * 1000.0 + (max(waits) - wait)
            made.label("step[DECODE bs=1]", start - 30, 20)
            reduce = [("void vllm::cross_device_reduce_1stage<int, 2>(int)", start + 210.0, 20.0 + wait)]
            made.launch(start - 25, [(GEMM, start, 200.0), *reduce, (NORM, start + 240.0 + wait, 50.0)])
        paths.append(made.write(tmp_path / f"x-TP-{rank}.trace.json"))
    return paths


def test_waiting_is_what_exceeds_the_shortest_rank(tmp_path: Path) -> None:
    report = analyse(tp2(tmp_path))
    waited, late = report.ranks
    assert (waited.communication_us.transfer, waited.communication_us.waiting) == (20, 400)
    assert (late.communication_us.transfer, late.communication_us.waiting) == (20, 0)
    assert report.straggler_rank == 1
    assert waited.kinds_us["communication"] == 420


def test_no_straggler_where_nobody_waits(tmp_path: Path) -> None:
    assert analyse(tp2(tmp_path, (2.0, 0.0))).straggler_rank is None


def test_ranks_that_do_other_work_are_not_compared(tmp_path: Path) -> None:
    first, _ = tp2(tmp_path)
    report = analyse([first, decode().write(tmp_path / "y-TP-1.trace.json")])
    assert [rank.communication_us.transfer for rank in report.ranks] == [None, None]


def test_two_files_of_one_rank_are_said(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    paths = [decode().write(tmp_path / where / "x-TP-0.trace.json") for where in "ab"]
    report = analyse(paths)
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert "compare" in report.errors[0]


@pytest.mark.parametrize(
    ("name", "file", "given", "rank"),
    [
        ("1796023716.33-TP-3.trace.json.gz", None, 0, 3),
        ("1796023716.33-TP-3-DP-1-EP-2.trace.json.gz", None, 0, 3),
        ("dp0_pp0_tp5_dcp0_ep0_rank5.179.pt.trace.json.gz", None, 0, 5),
        ("rank7.1796.pt.trace.json.gz", None, 0, 7),
        ("trace.json", 4, 0, 4),
        ("trace.json", None, 0, 0),
    ],
)
def test_the_rank_is_the_files_or_the_traces(
    name: str, file: int | None, given: int, rank: int, tmp_path: Path
) -> None:
    made = decode()
    if file is not None:
        made.header["distributedInfo"] = {"backend": "nccl", "rank": file, "world_size": 8}
    assert analyse([made.write(tmp_path / name)]).ranks[0].rank == rank


def layers(names: list[str], steps: int = 6, times: int = 4) -> Trace:
    """Steps of `times` layers with the kernels `names`, 10 us each, and one argmax."""
    argmax = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>()"
    made = Trace()
    for step in range(steps):
        start = step * 1000.0
        made.label("step[DECODE bs=1]", start - 30, 20)
        kernels = [(name, start + 11.0 * at, 10.0) for at, name in enumerate([*names * times, argmax])]
        made.launch(start - 25, kernels)
    return made


def test_unnamed_kernels_by_their_neighbours(tmp_path: Path) -> None:
    """Inductor names nothing: between the QKV GEMM and the KV write `red` is the q/k norm, `poi` the rope."""
    write = "void vllm::reshape_and_cache_flash_kernel<int>(int)"
    rank = only(layers(["nvjet_a", "triton_red_fused_3", "triton_poi_fused_4", write, "_fwd_kernel"]), tmp_path)
    assert (rank.kinds_us["norm"], rank.kinds_us["rope"], rank.unknown_share) == (40, 40, 0)
    other = only(layers(["nvjet_a", "triton_red_fused_3", "nvjet_b", "_fwd_kernel"]), tmp_path)
    assert other.kinds_us["other"] == 40 and other.unknown_share == pytest.approx(0.04)
    assert [kernel.name for kernel in other.unknown_kernels] == ["triton_red_fused_3"]


def test_softmax_is_sampling_once_a_step_and_attention_once_a_layer(tmp_path: Path) -> None:
    softmax = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, float, 11>(int)"
    inside = only(layers(["nvjet_a", softmax, "nvjet_b"], times=8), tmp_path)
    assert (inside.kinds_us["attention"], inside.kinds_us["sampling"]) == (80, 10)
    drafts = only(layers(["nvjet_a", softmax, "nvjet_b"], times=5), tmp_path)
    assert (drafts.kinds_us["attention"], drafts.kinds_us["sampling"]) == (0, 60), "each draft has a vocabulary"
    once = only(layers(["nvjet_a", "nvjet_b", softmax], times=1), tmp_path)
    assert (once.kinds_us["attention"], once.kinds_us["sampling"]) == (0, 20)


def test_a_sum_after_the_experts_is_moe(tmp_path: Path) -> None:
    total = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::sum_functor<float>>>(int)"
    assert only(layers(["fused_moe_kernel", total]), tmp_path).kinds_us["moe"] == 80
    assert only(layers(["nvjet_a", total]), tmp_path).kinds_us["elementwise"] == 40


def test_what_goes_to_disk_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny budget, many parts, buckets of a few rows: the figures stay the same to the ns."""
    paths = sorted((Path(__file__).resolve().parents[1] / "captures/sglang_tp2_graph/prof_c1").glob("*.gz"))
    expected = analyse(paths)
    spills: list[Spill] = []

    def small(*args: object, **options: object) -> object:
        spills.append(Spill(budget_bytes=20_000))
        return trace.read_trace(*args, spill=spills[-1], **options)  # type: ignore[arg-type]

    monkeypatch.setattr(analysis, "read_trace", small)
    monkeypatch.setattr(trace, "PARTITION_JSON_BYTES", 1 << 18)
    monkeypatch.setattr(timeline, "BUCKET_ROWS", 300)
    assert analyse(paths) == expected
    assert spills and all(spill.written > 100_000 for spill in spills)


def test_of_a_rank_that_is_read_nothing_is_held_while_the_next_are(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = sorted((Path(__file__).resolve().parents[1] / "captures/sglang_tp2_graph/prof_c1").glob("*.gz"))
    spills: list[Spill] = []
    held: list[int] = []

    def seen(*args: object, **options: object) -> object:
        held.append(sum(spill.held_bytes for spill in spills))
        spills.append(Spill())
        return trace.read_trace(*args, spill=spills[-1], **options)  # type: ignore[arg-type]

    monkeypatch.setattr(analysis, "read_trace", seen)
    assert len(analyse(paths).ranks) == len(held) == 2
    assert held == [0, 0]


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def seek(self, *where: int) -> int:
            return 0

        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        def flush(self) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr("tempfile.TemporaryFile", lambda **options: Full())
    table = Spill(budget_bytes=10).table(ROW, 1)
    with pytest.raises(TraceError, match="No space left") as caught:
        table.append(np.zeros(1000, ROW), np.zeros(1000, np.int64))
    assert "TMPDIR" in caught.value.hint


def test_steps_longer_than_a_block_are_added_up_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = only(decode(6), tmp_path)
    monkeypatch.setattr(timeline, "BUCKET_ROWS", 1)
    assert only(decode(6), tmp_path) == expected
    assert expected.period_us is not None and expected.period_us.representative == STEP_US


def stretched(name: str, long_us: float, calls: int = 4) -> Trace:
    """Steps of 1000 us in which each one call of `name`, another one each time, takes `long_us`, the others 2 us."""
    made = Trace()
    for step in range(8):
        start = step * 1000.0
        made.label("step[DECODE bs=1]", start - 30, 990)
        kernels, at = [(GEMM, start, 50.0)], start + 60
        for call in range(calls):
            took = long_us if call == step % calls and step != 3 else 2.0
            kernels.append((name, at, took))
            at += took + 10
        made.launch(start - 25, kernels)
    return made


def test_one_event_of_most_of_the_step_has_a_likely_cause(tmp_path: Path) -> None:
    (rank,) = analyse([stretched(NORM, 600.0).write(tmp_path / "t.json")]).ranks
    assert not rank.coverage.ok
    assert "one event takes 60% of the step" in rank.coverage.problems[0]
    assert "600 us where 2.0 us are usual: did another process use this GPU?" in rank.coverage.problems[0]


def test_only_mixed_steps_are_said_to_be_so(tmp_path: Path) -> None:
    made = Trace()
    for step in range(5):
        made.label("step[MIXED bs=4 toks=64]", step * 1000.0 - 30, 990)
        made.launch(step * 1000.0 - 25, [(GEMM, step * 1000.0, 300.0)])
    (rank,) = analyse([made.write(tmp_path / "t.json")]).ranks
    assert rank.coverage.problems == (
        "none of the 5 labelled steps is a decode step (5 mixed): capture with fewer prompts arriving",
    )
