"""The sweep line against a painter that fills every ns by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decodetop.steps import split

COMPUTE, COMMUNICATION, MEMORY = 0, 1, 2
Event = tuple[int, int, int, int]
"""start, end, stream, rank"""

events = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 15), st.integers(0, 3), st.integers(0, 2)).map(
        lambda one: (one[0], one[0] + one[1], one[2], one[3])
    ),
    max_size=16,
).map(lambda found: sorted(found, key=lambda one: one[0]))
cuts = st.lists(st.integers(0, 60), max_size=5, unique=True).map(sorted)


def painted(found: list[Event]) -> dict[int, int]:
    """Owner of every ns by the words of the rule: per stream the earliest started, then the strongest stream."""
    owners: dict[int, int] = {}
    for now in range(60):
        running = [at for at, (start, end, _, _) in enumerate(found) if start <= now < end]
        by_stream: dict[int, int] = {}
        for at in running:
            by_stream.setdefault(found[at][2], at)
        if by_stream:
            owners[now] = min(by_stream.values(), key=lambda at: (found[at][3], found[at][0], at))
    return owners


def own(found: list[Event]) -> split.Segments:
    columns = np.array(found, np.int64).reshape(-1, 4)
    return split.own(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3])


def by_ns(segments: split.Segments) -> dict[int, int]:
    owners: dict[int, int] = {}
    for start, end, owner in zip(*(field.tolist() for field in segments), strict=True):
        assert start < end, "no empty stretch"
        for now in range(start, end):
            assert now not in owners, "each ns has one owner"
            owners[now] = owner
    return owners


@given(events)
def test_every_ns_has_the_owner_of_the_rule(found: list[Event]) -> None:
    segments = own(found)
    assert by_ns(segments) == painted(found)
    assert segments.start.tolist() == sorted(segments.start.tolist())


@given(events, cuts)
def test_cutting_moves_nothing(found: list[Event], at: list[int]) -> None:
    pieces = split.cut(own(found), np.array(at, np.int64))
    assert by_ns(pieces) == painted(found)
    assert not any(
        start < edge < end for start, end in zip(pieces.start.tolist(), pieces.end.tolist(), strict=True) for edge in at
    )


@given(events, st.integers(0, 60), st.integers(0, 60))
def test_clipping_keeps_what_is_inside(found: list[Event], low: int, high: int) -> None:
    inside = split.clip(own(found), low, high)
    assert by_ns(inside) == {now: owner for now, owner in painted(found).items() if low <= now < high}


def shares(*found: Event) -> list[int]:
    owners = list(painted(list(found)).values())
    assert owners == list(by_ns(own(list(found))).values())
    return [owners.count(at) for at in range(len(found))]


def test_a_kernel_launched_early_does_not_take_the_wait_of_the_one_before() -> None:
    """Programmatic dependent launch: the norm spans the wait of the all-reduce, and is compute."""
    all_reduce, norm = (0, 50, 7, COMMUNICATION), (1, 53, 7, COMPUTE)
    assert shares(all_reduce, norm) == [50, 3]


def test_between_streams_compute_hides_communication_hides_memory() -> None:
    assert shares((0, 50, 1, MEMORY), (10, 40, 2, COMMUNICATION), (20, 30, 3, COMPUTE)) == [20, 20, 10]


def test_equal_ranks_go_to_the_earlier_start_then_to_the_order_of_the_file() -> None:
    assert shares((0, 20, 1, COMPUTE), (5, 30, 2, COMPUTE)) == [20, 10]
    assert shares((0, 20, 1, COMPUTE), (0, 30, 2, COMPUTE)) == [20, 10]


def test_the_sum_of_durations_is_not_the_time() -> None:
    found: list[Event] = [(0, 50, 7, COMPUTE), (10, 60, 7, COMPUTE)]
    assert sum(end - start for start, end, _, _ in found) == 100
    assert sum(shares(*found)) == 60


def test_no_events() -> None:
    assert [len(field) for field in own([])] == [0, 0, 0]
