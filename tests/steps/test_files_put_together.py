"""More or less than one rank in a file: written twice, several GPUs, several workers; ranks of unequal length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from decodetop.steps import ranks
from decodetop.steps.analyse import analyse
from decodetop.steps.compare import compare
from decodetop.steps.reading import StepsReport
from support.kineto import Trace, decode

ALL_REDUCE = "void vllm::cross_device_reduce_1stage<int, 2>(int)"


def report(trace: Trace, path: Path) -> StepsReport:
    return analyse([trace.write(path)])


@pytest.mark.parametrize("once_more", [slice(None), slice(0, None, 3)], ids=["all", "some"])
def test_events_that_stand_twice_count_once(once_more: slice, tmp_path: Path) -> None:
    """Two copies of a file put together: labels, launches, kernels; ties in time keep the order of the file."""
    whole = decode(8)
    (expected,) = report(whole, tmp_path / "t.json").ranks
    twice = decode(8)
    twice.events += twice.events[once_more]
    (rank,) = report(twice, tmp_path / "t.json").ranks
    assert rank.coverage.ok and rank.steps == expected.steps
    assert (rank.period_us, rank.kinds_us, rank.kernels_per_step) == (
        expected.period_us, expected.kinds_us, expected.kernels_per_step,
    )  # fmt: skip
    assert rank.calls_per_step == expected.calls_per_step
    kernels = sum(event["cat"] == "kernel" for event in decode(8).events[once_more])
    assert f"{kernels} GPU events stand twice in the file and count once" in rank.coverage.problems


def test_the_same_kernel_twice_at_one_time_on_two_streams_is_two(tmp_path: Path) -> None:
    made = decode(6)
    for event in [event for event in made.events if event["cat"] == "kernel"]:
        made.events.append({**event, "tid": 9})
    (rank,) = report(made, tmp_path / "t.json").ranks
    assert rank.kernels_per_step == 8 and rank.coverage.problems == ()


def test_a_process_with_several_gpus_shows_the_busiest(tmp_path: Path) -> None:
    """Half of the launches go to another GPU: they have their kernels there, and are not lost."""
    made = decode(8)
    alone = report(made, tmp_path / "t.json").ranks[0]
    for step in range(8):
        made.launch(step * 400.0 - 30, [("nvjet_b", step * 400.0 + 20, 40.0), ("nvjet_c", step * 400.0 + 70, 30.0)])
        for event in made.events[-2:]:
            event.update(pid=1, args={**event["args"], "device": 1})
    (rank,) = report(made, tmp_path / "t.json").ranks
    assert rank.coverage.ok and rank.kinds_us == alone.kinds_us
    assert rank.coverage.problems == ("16 events of other GPUs than 0 are not counted",)


def test_workers_put_into_one_file_without_a_tag_are_not_guessed_apart(tmp_path: Path) -> None:
    """Their launches have the same numbers."""
    made = decode(8)
    other = decode(8, trace=Trace(pid=3081, device=1), first_us=7.0)
    made.events += other.events
    (rank,) = report(made, tmp_path / "t.json").ranks
    assert not rank.coverage.ok and rank.period_us is None
    assert rank.coverage.problems[0] == (
        "labels of 2 processes (3080, 3081) stand in one file, and their launches can't be told apart: "
        "give the file that each of them wrote"
    )


@pytest.mark.parametrize("tags", [("[TP00-DP00]", "[TP00-DP01]"), ("[TP00-PP00-EP00]", "[TP00-PP01-EP00]")])
def test_merged_replicas_and_stages_are_told_apart(tags: tuple[str, str], tmp_path: Path) -> None:
    first, second = (decode(trace=Trace(pid=f"{tag} 25{at}", device=f"{tag} {at}")) for at, tag in enumerate(tags))
    for event in second.events:
        event["dur"] = round(event["dur"] * (0.5 if event["cat"] == "kernel" else 1), 3)
    first.events += second.events
    found = report(first, tmp_path / "merged.json")
    assert [(rank.rank, rank.kinds_us["gemm"]) for rank in found.ranks] == [(0, 200), (1, 100)]
    assert found.errors == (), "that TP 0 comes twice is as it should be"


@pytest.mark.parametrize(
    "names",
    [
        ("1796-TP-0-DP-0.trace.json", "1796-TP-0-DP-1.trace.json"),
        ("dp0_pp0_tp0_dcp0_ep0_rank0.17.pt.trace.json", "dp1_pp0_tp0_dcp0_ep1_rank1.17.pt.trace.json"),
    ],
)
def test_files_of_replicas_are_no_second_capture(names: tuple[str, str], tmp_path: Path) -> None:
    found = analyse([decode().write(tmp_path / name) for name in names])
    assert [rank.rank for rank in found.ranks] == [0, 1] and found.errors == ()


def unequal(tmp_path: Path, kept: tuple[slice, slice], base_ns: tuple[int, int] = (0, 0)) -> list[Path]:
    """Two ranks in lock-step; in step n the second comes n x 10 us late. Of each a part of the steps is recorded."""
    paths = []
    for rank, steps in enumerate(kept):
        made = Trace(zero_us=5e9 - base_ns[rank] / 1000)
        made.header["baseTimeNanoseconds"] = 1790857026000000000 + base_ns[rank]
        for step in range(12)[steps]:
            late, start = step * 10.0, step * 1000.0 + 3.0 * step * step
            begun, wait = (start + late, 0.0) if rank else (start, late)
            made.label("step[DECODE bs=1]", begun - 30, 20)
            reduce = (ALL_REDUCE, begun + 210.0, 20.0 + wait)
            made.launch(begun - 25, [("nvjet_a", begun, 200.0), reduce, ("nvjet_b", begun + 240.0 + wait, 50.0)])
        paths.append(made.write(tmp_path / f"x-TP-{rank}.trace.json"))
    return paths


@pytest.mark.parametrize(
    "kept",
    [
        (slice(0, 12), slice(3, 12)),
        (slice(3, 12), slice(0, 12)),
        (slice(0, 9), slice(2, 12)),
        (slice(0, 9), slice(3, 12)),
        (slice(3, 12), slice(0, 9)),
    ],
)
@pytest.mark.parametrize("base_ns", [(0, 0), (0, 7_776_000_000_000_000)], ids=["one base", "two bases"])
def test_steps_of_unequal_ranks_are_matched_by_time(
    kept: tuple[slice, slice], base_ns: tuple[int, int], tmp_path: Path
) -> None:
    """Also where as many are missing at one's start as at the other's end; Kineto's base may differ by a quarter."""
    found = analyse(unequal(tmp_path, kept, base_ns))
    waited, late = found.ranks
    assert waited.representative_step is not None
    step = waited.representative_step + range(12)[kept[0]].start
    assert (waited.communication_us.transfer, waited.communication_us.waiting) == (20, 10.0 * step)
    assert (late.communication_us.transfer, late.communication_us.waiting) == (20, 0)
    assert found.straggler_rank == 1


def test_ranks_without_a_common_step_are_not_compared(tmp_path: Path) -> None:
    found = analyse(unequal(tmp_path, (slice(0, 5), slice(7, 12))))
    assert [rank.communication_us.transfer for rank in found.ranks] == [None, None]
    assert found.straggler_rank is None


@pytest.mark.parametrize(
    ("start", "alike", "found"),
    [
        (2100, None, 2),
        (1900, 5, 2),
        (2700, 2, 2),
        (2400, 1, 2),
        (9000, None, None),
        (5499, None, 5),
        (-501, None, None),
    ],
)
def test_a_step_of_another_rank_is_the_nearest_or_the_one_of_its_number(
    start: int, alike: int | None, found: int | None
) -> None:
    assert ranks.same_step(start, 1000, np.arange(6) * 1000, alike) == found


def test_captures_of_other_numbers_of_ranks_are_compared_with_a_word(tmp_path: Path) -> None:
    """The rank that both have a step of; that each does another share of the work is said."""
    (tmp_path / "a").mkdir()
    two = analyse(unequal(tmp_path, (slice(0, 12), slice(0, 12))))
    one = analyse([unequal(tmp_path / "a", (slice(0, 12), slice(0, 12)))[1]])
    found = compare(two, one)
    assert found.period.before_us is not None and found.period.after_us is not None
    assert found.problems == ("2 ranks before and 1 after: each does another share of the work",)
    assert compare(one, two).problems == ("1 rank before and 2 after: each does another share of the work",)
    assert found.kinds[0].delta_us == 0, "rank 1 with rank 1"


def test_what_is_noted_of_a_comparison_is_of_the_ranks_compared(tmp_path: Path) -> None:
    """Rank 0 has no whole step; where a label does not say the batch size it is not known, which is no other one."""
    two = analyse(unequal(tmp_path, (slice(0, 2), slice(0, 12))))
    assert two.ranks[0].period_us is None and two.ranks[0].coverage.problems
    assert compare(two, two).problems == () and compare(two, two).period.delta_us == 0
    bare, known = report(decode(8, "decode_step_1"), tmp_path / "a.json"), report(decode(8), tmp_path / "b.json")
    unknown = ("the batch size of one is not known: the steps may do different work",)
    assert compare(known, bare).problems == compare(bare, known).problems == unknown
