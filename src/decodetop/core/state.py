"""State: the frozen fold of all samples. Panes, report and JSON see nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

import msgspec

from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import ClockReading, Failure, Header, Reading, Sample

R = TypeVar("R", bound=Reading)

HISTORY = 180
"""Readings kept per lane: three minutes at 1 Hz, enough for a history line and for `since`."""


class Past(msgspec.Struct, frozen=True):
    """One earlier reading of a lane."""

    t_ns: int
    reading: Reading


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one source. `failure` is set while the source is failing; `last` stays its last good reading."""

    last: Reading | None = None
    last_t_ns: int | None = None
    failure: Failure | None = None
    failure_since_ns: int | None = None
    history: tuple[Past, ...] = ()


class State(msgspec.Struct, frozen=True, kw_only=True):
    """`now_ns` is ns since the session began, of the newest sample. `seq` is -1 before the first."""

    header: Header
    now_ns: int = 0
    seq: int = -1
    lanes: Mapping[str, Lane] = MappingProxyType({})

    def lane(self, source: str) -> Lane:
        return self.lanes.get(source, _EMPTY)

    def last(self, source: str, kind: type[R]) -> R | None:
        """The lane's last good reading if it is of `kind`."""
        reading = self.lane(source).last
        return reading if isinstance(reading, kind) else None

    def age_s(self, source: str) -> float | None:
        """Seconds since the lane's last good reading; None if it never had one."""
        t_ns = self.lane(source).last_t_ns
        return None if t_ns is None else (self.now_ns - t_ns) / SECOND_NS

    @property
    def wall_ns(self) -> int:
        """Epoch ns now: the last clock sample moved on by what has passed since."""
        lane = self.lane("clock")
        if isinstance(lane.last, ClockReading) and lane.last_t_ns is not None:
            return lane.last.wall_ns + self.now_ns - lane.last_t_ns
        return self.header.started_wall_ns + self.now_ns


_EMPTY = Lane()


def fold(state: State, sample: Sample) -> State:
    """The next state. Total and pure: any sequence of samples gives a state."""
    lane = state.lane(sample.source)
    if sample.reading is not None:
        past = (*lane.history[-(HISTORY - 1) :], Past(sample.t_ns, sample.reading))
        lane = Lane(last=sample.reading, last_t_ns=sample.t_ns, history=past)
    elif sample.failure is not None:
        since = sample.t_ns if lane.failure_since_ns is None else lane.failure_since_ns
        lane = msgspec.structs.replace(lane, failure=sample.failure, failure_since_ns=since)
    return State(
        header=state.header,
        now_ns=max(state.now_ns, sample.t_ns),
        seq=sample.seq,
        lanes=MappingProxyType({**state.lanes, sample.source: lane}),
    )


def fold_all(header: Header, samples: Iterable[Sample]) -> State:
    state = State(header=header)
    for sample in samples:
        state = fold(state, sample)
    return state
