"""Goes over the events in order of time and adds up, per step, who owned the time and why nobody did."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decodetop.steps import idle, split
from decodetop.steps.context import NameTable
from decodetop.steps.kinds import UNKNOWN
from decodetop.steps.reading import IDLE_KINDS, KINDS
from decodetop.steps.rows import ROW
from decodetop.steps.spill import Rows, Spill, Table, joined
from decodetop.steps.split import Ints
from decodetop.steps.timeline import Events, Timeline

DENSE_MAX = 1 << 20
"""Cells of a table over window, name and kind that is summed in place; beyond it the keys are sorted."""
CODES = UNKNOWN + 1
"""Kinds and, last, the unknown."""
_COMMUNICATION = KINDS.index("communication")
_PARTITIONS = 64
PENDING_BUCKETS = 12
"""A step longer than this is worked on in parts."""

NAME_SUM = np.dtype([("window", "<i8"), ("name", "<i8"), ("code", "<i8"), ("ns", "<i8"), ("calls", "<i8")])
"""What one name owned in one window, and how many of its events start there."""
COLLECTIVE = np.dtype([("window", "<i8"), ("name", "<i8"), ("start", "<i8"), ("ns", "<i8")])


class Sums:
    """Per window i, [start[i], end[i]): all arrays in ns or counts; `kernels_after` start behind the last window."""

    def __init__(self, start: Ints, end: Ints, spill: Spill) -> None:
        self.start, self.end = start, end
        count = len(start)
        self.kinds = np.zeros((count, CODES), np.int64)
        self.idle = np.zeros((count, len(IDLE_KINDS)), np.int64)
        self.kernels = np.zeros(count, np.int64)
        self.kernels_after = 0
        self.graphs = np.zeros(count, np.int64)
        self.longest = np.zeros(count, np.int64)
        self.longest_name = np.zeros(count, np.int64)
        self._names: Table = spill.table(NAME_SUM, _PARTITIONS)
        self._collectives: Table = spill.table(COLLECTIVE, _PARTITIONS)

    def keep(self, names: Rows, collectives: Rows) -> None:
        self._names.append(names, names["window"] % _PARTITIONS)
        self._collectives.append(collectives, collectives["window"] % _PARTITIONS)

    def names_of(self, window: int) -> Rows:
        rows = self._names.read(window % _PARTITIONS)
        mine: Rows = rows[rows["window"] == window]
        return mine

    def collectives_of(self, window: int) -> Rows:
        """In order of time."""
        rows = self._collectives.read(window % _PARTITIONS)
        rows = rows[rows["window"] == window]
        ordered: Rows = rows[np.argsort(rows["start"], kind="stable")]
        return ordered


class _Block(NamedTuple):
    """Events with all that is decided about them once: their window, their kind, whether first of their launch."""

    events: Events
    window: Ints
    code: Ints
    first: NDArray[Any]

    def take(self, chosen: NDArray[Any]) -> _Block:
        return _Block(self.events.take(chosen), self.window[chosen], self.code[chosen], self.first[chosen])

    def then(self, more: _Block) -> _Block:
        events = Events.joined([self.events, more.events])
        rest = (np.concatenate(fields) for fields in zip(self[1:], more[1:], strict=True))
        return _Block(events, *rest)


def sweep(timeline: Timeline, names: NameTable, starts: Ints, ends: Ints, spill: Spill) -> Sums:
    """Add up every window. Windows are in order and don't overlap; time outside them is left out."""
    return _Sweep(timeline, names, Sums(starts, ends, spill)).run()


class _Sweep:
    def __init__(self, timeline: Timeline, names: NameTable, sums: Sums) -> None:
        self._timeline = timeline
        self._names = names
        self._sums = sums
        self._cuts = np.unique(np.concatenate([sums.start, sums.end]))
        self._carry: _Block | None = None
        self._done = np.iinfo(np.int64).min
        self._last_end: int | None = None

    def run(self) -> Sums:
        pending: list[Events] = []
        syncs: list[Rows] = []
        for events, calls, edge in self._timeline.buckets():
            pending.append(events)
            syncs.append(calls)
            horizon = self._horizon(edge)
            if horizon is None and len(pending) < PENDING_BUCKETS:
                continue
            horizon = edge if horizon is None else horizon
            fresh, waiting = Events.joined(pending), joined(syncs, ROW)
            ready = int(np.searchsorted(fresh.start, horizon))
            if ready:
                self._block(fresh.take(slice(ready)), waiting, horizon)
            before = horizon if self._last_end is None else min(horizon, self._last_end)
            pending, syncs = [fresh.take(slice(ready, None))], [waiting[waiting["end"] >= before]]
        return self._sums

    def _horizon(self, edge: int) -> int | None:
        """Blocks end where steps begin, so that a layer's neighbours stand in one block."""
        if edge == np.iinfo(np.int64).max or not len(self._cuts) or edge > self._cuts[-1]:
            return edge
        at = int(np.searchsorted(self._cuts, edge, side="right")) - 1
        if at < 0:
            return edge
        return int(self._cuts[at]) if self._cuts[at] > self._done else None

    def _block(self, events: Events, syncs: Rows, horizon: int) -> None:
        window = self._window_at(events.start)
        block = _Block(events, window, self._names.codes(events, window), _first_of_launch(events))
        self._count(block)
        if self._carry is not None:
            block = self._carry.then(block)
        events = block.events
        owned = split.own(events.start, events.end, events.track, self._names.rank[events.name])
        owned = split.clip(owned, self._done, horizon)
        self._gaps(owned, block, syncs)
        self._add(split.cut(owned, self._cuts), block)
        beyond = np.flatnonzero(events.end > horizon)
        self._carry = block.take(beyond) if len(beyond) else None
        self._done = horizon

    def _window_at(self, time: Ints) -> Ints:
        """The window that holds each of the sorted times, -1 for none."""
        if not len(time) or not len(self._sums.start):
            return np.full(len(time), -1)
        first, last = np.searchsorted(self._sums.end, [time[0], time[-1]], side="right")
        chosen = np.arange(first, min(last + 1, len(self._sums.start)))
        edges = np.stack([self._sums.start[chosen], self._sums.end[chosen]], axis=1).reshape(-1)
        places = np.searchsorted(time, edges)
        # before, in and between the windows by turns
        counts = np.diff(np.concatenate([[0], places, [len(time)]]))
        return np.repeat(np.append(np.stack([np.full(len(chosen), -1), chosen], axis=1).reshape(-1), -1), counts)

    def _count(self, block: _Block) -> None:
        """Kernels, graph launches, the longest event and the collectives of each window, by start."""
        inside = np.flatnonzero(block.window >= 0)
        if len(self._cuts):
            beyond = block.events.start >= self._cuts[-1]
            self._sums.kernels_after += int(np.count_nonzero(self._names.is_kernel[block.events.name[beyond]]))
        sums, window, code, name = self._sums, block.window[inside], block.code[inside], block.events.name[inside]
        start = block.events.start[inside]
        length = block.events.end[inside] - start
        sums.kernels += np.bincount(window[self._names.is_kernel[name]], minlength=len(sums.kernels))
        launch = block.first[inside] & block.events.in_graph[inside]
        sums.graphs += np.bincount(window[launch], minlength=len(sums.graphs))
        self._longest(window, np.where(code == _COMMUNICATION, 0, length), name)
        shared = np.flatnonzero(code == _COMMUNICATION)
        collectives = np.empty(len(shared), COLLECTIVE)
        collectives["window"], collectives["name"] = window[shared], name[shared]
        collectives["start"], collectives["ns"] = start[shared], length[shared]
        sums.keep(_sum_by_name(window, name, code, None), collectives)

    def _longest(self, window: Ints, length: Ints, name: NDArray[Any]) -> None:
        """Windows are met in order, so each is one run of events."""
        if not len(window):
            return
        first = np.flatnonzero(np.concatenate([[True], window[1:] != window[:-1]]))
        most = np.maximum.reduceat(length, first)
        at = np.flatnonzero(length == np.repeat(most, np.diff(np.append(first, len(window)))))
        at = at[length[at] > self._sums.longest[window[at]]]
        self._sums.longest[window[at]], self._sums.longest_name[window[at]] = length[at], name[at]

    def _add(self, owned: split.Segments, block: _Block) -> None:
        window = self._window_at(owned.start)
        length = owned.end - owned.start
        inside = np.flatnonzero(window >= 0)
        owner = owned.owner[inside]
        by_name = _sum_by_name(window[inside], block.events.name[owner], block.code[owner], length[inside])
        np.add.at(self._sums.kinds, (by_name["window"], by_name["code"]), by_name["ns"])
        self._sums.keep(by_name, np.empty(0, COLLECTIVE))

    def _gaps(self, owned: split.Segments, block: _Block, syncs: Rows) -> None:
        if not len(owned.start):
            return
        ends = np.concatenate([[owned.start[0] if self._last_end is None else self._last_end], owned.end[:-1]])
        self._last_end = int(owned.end[-1])
        gap = np.flatnonzero(owned.start > ends)
        gaps = split.cut(split.Segments(ends[gap], owned.start[gap], owned.owner[gap]), self._cuts)
        window = self._window_at(gaps.start)
        inside = np.flatnonzero(window >= 0)
        gaps = split.Segments(*(field[inside] for field in gaps))
        self._sums.idle += idle.why(gaps, window[inside], len(self._sums.idle), block.events, block.first, syncs)


def _first_of_launch(events: Events) -> NDArray[Any]:
    """Whether no earlier event of the block has the same launch."""
    _, first = np.unique(events.correlation, return_index=True)
    chosen = np.zeros(len(events.start), bool)
    chosen[first] = True
    return chosen | (events.correlation < 0)


def _sum_by_name(window: Ints, name: NDArray[Any], code: Ints, ns: Ints | None) -> Rows:
    """Rows per window, name and kind: with the sum of `ns`, or where it is None with the number of events."""
    if not len(window):
        return np.empty(0, NAME_SUM)
    first, names = int(window.min()), int(name.max()) + 1
    keys = ((window - first) * names + name) * CODES + code
    cells = (int(window.max()) - first + 1) * names * CODES
    if cells <= DENSE_MAX:
        used = np.flatnonzero(np.bincount(keys, minlength=0))
        place = keys
    else:
        used, place = np.unique(keys, return_inverse=True)
    # sums of whole ns below 2**53 are exact in bincount's doubles
    sums = np.bincount(place, weights=ns)
    rows = np.zeros(len(used), NAME_SUM)
    rows["window"], rest = first + used // (names * CODES), used % (names * CODES)
    rows["name"], rows["code"] = rest // CODES, rest % CODES
    rows["calls" if ns is None else "ns"] = sums[used] if cells <= DENSE_MAX else sums
    return rows
