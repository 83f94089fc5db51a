"""Who owns each ns: the sweep line over all streams. Pure integer arithmetic, so parts + idle = period exactly.

Rule A: on one stream the earliest-started event that still runs owns the time (programmatic dependent launch starts the
next kernel inside the running one, where it only waits); between streams compute hides communication hides memcpy and
memset; ties go to the earliest start, then to file order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
_NOBODY = np.iinfo(np.int64).max


class Segments(NamedTuple):
    """Disjoint stretches in time order that cover exactly the union of the events; `owner` indexes the events."""

    start: Ints
    end: Ints
    owner: Ints


def own(start: Ints, end: Ints, stream: NDArray[Any], rank: NDArray[Any]) -> Segments:
    """Segments of events given in order of start, ties in file order.

    `rank` says what hides what between streams: 0 compute, 1 communication, 2 memcpy and memset.
    """
    lanes = [_lane(start, end, np.flatnonzero(stream == one)) for one in distinct(stream)]
    lanes = [lane for lane in lanes if len(lane.start)]
    if not lanes:
        nothing = np.empty(0, np.int64)
        return Segments(nothing, nothing, nothing)
    if len(lanes) == 1:
        return lanes[0]
    return _across(lanes, start, rank)


def _lane(start: Ints, end: Ints, index: Ints) -> Segments:
    """One stream: an event owns what is left once all that started before it have ended."""
    begin, finish = start[index], end[index]
    before = np.empty_like(finish)
    before[:1] = begin[:1]
    np.maximum.accumulate(finish[:-1], out=before[1:])
    begin = np.maximum(begin, before)
    some = begin < finish
    return Segments(begin[some], finish[some], index[some])


def _across(lanes: list[Segments], start: Ints, rank: NDArray[Any]) -> Segments:
    """Streams together: stretches that meet no other stream's pass; the rest is decided piece by piece."""
    lane_of = np.repeat(np.arange(len(lanes)), [len(lane.start) for lane in lanes])
    begin, finish, owner = (np.concatenate([lane[field] for lane in lanes]) for field in range(3))
    order = np.argsort(begin, kind="stable")
    begin, finish, owner, lane_of = begin[order], finish[order], owner[order], lane_of[order]
    reach = np.maximum.accumulate(finish)
    fresh = np.concatenate([[True], begin[1:] >= reach[:-1]])
    cluster = np.cumsum(fresh) - 1
    alone = np.bincount(cluster)[cluster] == 1
    if alone.all():
        return Segments(begin, finish, owner)
    met = ~alone
    decided = _decide(Segments(begin[met], finish[met], owner[met]), lane_of[met], start, rank)
    parts = (Segments(begin[alone], finish[alone], owner[alone]), decided)
    begin, finish, owner = (np.concatenate([part[field] for part in parts]) for field in range(3))
    order = np.argsort(begin, kind="stable")
    return Segments(begin[order], finish[order], owner[order])


def _decide(met: Segments, lane_of: Ints, start: Ints, rank: NDArray[Any]) -> Segments:
    precedence = np.empty(len(met.owner), np.int64)
    precedence[np.lexsort((met.owner, start[met.owner], rank[met.owner]))] = np.arange(len(met.owner))
    edges = np.unique(np.concatenate([met.start, met.end]))
    left = edges[:-1]
    best = np.full(len(left), _NOBODY)
    for lane in np.unique(lane_of):
        mine = np.flatnonzero(lane_of == lane)
        low, high = np.searchsorted(left, [met.start[mine[0]], met.end[mine[-1]]])
        at = np.searchsorted(met.start[mine], left[low:high], side="right") - 1
        runs = met.end[mine[at]] > left[low:high]
        claim = np.where(runs, precedence[mine[at]], _NOBODY)
        best[low:high] = np.minimum(best[low:high], claim)
    changes = np.flatnonzero(np.diff(best)) + 1
    first = np.concatenate([[0], changes])
    last = np.concatenate([changes, [len(left)]]) - 1
    owned = best[first] != _NOBODY
    by_precedence = np.empty(len(precedence), np.int64)
    by_precedence[precedence] = np.arange(len(precedence))
    return Segments(left[first[owned]], edges[last[owned] + 1], met.owner[by_precedence[best[first[owned]]]])


def clip(segments: Segments, low: int, high: int) -> Segments:
    """What of the segments lies in [low, high)."""
    begin, finish = np.maximum(segments.start, low), np.minimum(segments.end, high)
    some = np.flatnonzero(begin < finish)
    return Segments(begin[some], finish[some], segments.owner[some])


def cut(segments: Segments, cuts: Ints) -> Segments:
    """The same segments, none of which spans one of the sorted `cuts`."""
    before = np.searchsorted(segments.start, cuts) - 1
    spanned = (before >= 0) & (segments.end[before] > cuts) if len(segments.end) else np.zeros(len(cuts), bool)
    if not spanned.any():
        return segments
    index, at = before[spanned], cuts[spanned]
    begin = np.insert(segments.start, index + 1, at)
    finish = np.insert(segments.end, index, at)
    return Segments(begin, finish, np.insert(segments.owner, index + 1, segments.owner[index]))


def distinct(small: NDArray[Any]) -> NDArray[np.int64]:
    """The different values of an array of small numbers, without sorting it."""
    return np.flatnonzero(np.bincount(small))
