"""Why the GPU was idle before an event: what its launching call and thread were doing in the gap.

A launch that began after the GPU went idle makes the whole gap `host_late`, but for the time its thread spent in a
synchronising call before (`sync`). A launch that had begun earlier: `launch_call` while it still runs, `device_gap`
from its return. Events of a graph after its first one have no call of their own: `in_graph`. No call in the trace:
`unknown`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from decodetop.steps.reading import IDLE_KINDS
from decodetop.steps.spill import Rows
from decodetop.steps.split import Ints, Segments
from decodetop.steps.timeline import Events

_AT = {kind: number for number, kind in enumerate(IDLE_KINDS)}


def why(gaps: Segments, window: Ints, windows: int, events: Events, first: NDArray[Any], syncs: Rows) -> Ints:
    """ns by window and IDLE_KINDS, shape (windows, kinds), of gaps that lie in `window` each.

    Event `gaps.owner[i]` ends gap i; `first` says of each event whether it is the first of its launch; `syncs` are the
    synchronising calls.
    """
    sums = np.zeros((windows, len(IDLE_KINDS)), np.int64)
    launched, first = events.launched[gaps.owner], first[gaps.owner]
    length = gaps.end - gaps.start
    for kind, chosen in (("in_graph", launched & ~first), ("unknown", ~launched)):
        sums[:, _AT[kind]] = _summed(window[chosen], length[chosen], windows)
    # with graphs few gaps end with an event that has a call of its own
    own = np.flatnonzero(launched & first)
    parts = _own_call(gaps.start[own], gaps.end[own], events, gaps.owner[own], syncs)
    for kind in ("sync", "host_late", "launch_call", "device_gap"):
        sums[:, _AT[kind]] = _summed(window[own], parts[:, _AT[kind]], windows)
    return sums


def _summed(window: Ints, ns: Ints, windows: int) -> Ints:
    """Exact: whole numbers below 2**53."""
    return np.bincount(window, weights=ns, minlength=windows).astype(np.int64)


def _own_call(low: Ints, high: Ints, events: Events, ended_by: Ints, syncs: Rows) -> Ints:
    parts = np.zeros((len(low), len(IDLE_KINDS)), np.int64)
    begun = events.call_start[ended_by]
    late = begun > low
    waiting = _overlap(low, np.clip(begun, low, high), events.call_track[ended_by], syncs)
    returned = np.clip(events.call_end[ended_by], low, high)
    parts[:, _AT["sync"]] = np.where(late, waiting, 0)
    parts[:, _AT["host_late"]] = np.where(late, high - low - waiting, 0)
    parts[:, _AT["launch_call"]] = np.where(late, 0, returned - low)
    parts[:, _AT["device_gap"]] = np.where(late, 0, high - returned)
    return parts


def _overlap(low: Ints, high: Ints, track: NDArray[Any], syncs: Rows) -> Ints:
    """ns of [low, high) that the thread `track` spent in synchronising calls."""
    total = np.zeros(len(low), np.int64)
    for thread in np.unique(syncs["track"]):
        mine = np.flatnonzero(track == thread)
        calls = syncs[syncs["track"] == thread]
        # calls of one thread follow each other; nested ones would count twice, so ends only grow
        begin = np.maximum(calls["start"], np.concatenate([[np.iinfo(np.int64).min], calls["end"][:-1]]))
        end = np.maximum(begin, calls["end"])
        spent = np.concatenate([[0], np.cumsum(end - begin)])
        total[mine] = _until(high[mine], begin, end, spent) - _until(low[mine], begin, end, spent)
    return total


def _until(at: Ints, begin: Ints, end: Ints, spent: Ints) -> Ints:
    """ns spent in calls before `at`."""
    call = np.searchsorted(begin, at, side="right") - 1
    running = np.minimum(at, end[call]) - begin[call]
    return np.where(call < 0, 0, spent[call] + running)
