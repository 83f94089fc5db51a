"""fold is total and pure; a failure keeps the last good reading."""

from hypothesis import given
from hypothesis import strategies as st

from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import ClockReading, Failure, Sample
from decodetop.core.state import HISTORY, State, fold, fold_all
from support.probes import HEADER, Count


def reading(n: int, t_s: float, source: str = "count") -> Sample:
    return Sample(source=source, t_ns=int(t_s * SECOND_NS), seq=n, reading=Count(n=n))


def failure(n: int, t_s: float, source: str = "count") -> Sample:
    return Sample(source=source, t_ns=int(t_s * SECOND_NS), seq=n, failure=Failure(kind="lost", message="gone"))


def test_a_failure_keeps_the_last_good_reading_and_its_own_start() -> None:
    state = fold_all(HEADER, [reading(0, 0), failure(1, 1), failure(2, 2)])
    lane = state.lane("count")
    assert lane.last == Count(n=0) and lane.failure_since_ns == SECOND_NS
    assert state.age_s("count") == 2
    assert fold(state, reading(3, 3)).lane("count").failure is None


def test_unknown_lanes_are_empty() -> None:
    state = State(header=HEADER)
    assert state.lane("nobody").last is None and state.age_s("nobody") is None
    assert state.last("nobody", Count) is None


def test_history_is_bounded() -> None:
    state = fold_all(HEADER, (reading(n, n) for n in range(HISTORY + 50)))
    history = state.lane("count").history
    assert len(history) == HISTORY
    assert history[-1].reading == Count(n=HISTORY + 49)


def test_wall_time_comes_from_the_clock_sample() -> None:
    state = State(header=HEADER)
    assert state.wall_ns == HEADER.started_wall_ns
    tick = Sample(source="clock", t_ns=SECOND_NS, seq=0, reading=ClockReading(wall_ns=77 * SECOND_NS))
    state = fold(fold(state, tick), reading(1, 3))
    assert state.wall_ns == 79 * SECOND_NS


samples = st.lists(
    st.builds(
        lambda n, t, source, failed: failure(n, t, source) if failed else reading(n, t, source),
        st.integers(0, 1000),
        st.floats(0, 1e6),
        st.sampled_from(["a", "b", "c"]),
        st.booleans(),
    ),
    max_size=40,
)


@given(samples)
def test_any_sequence_folds_and_no_state_is_changed_by_the_next(sequence: list[Sample]) -> None:
    state = State(header=HEADER)
    seen = [state]
    copies = [dict(state.lanes)]
    for sample in sequence:
        state = fold(state, sample)
        seen.append(state)
        copies.append(dict(state.lanes))
    assert [dict(one.lanes) for one in seen] == copies
    assert state.now_ns == max((sample.t_ns for sample in sequence), default=0)
