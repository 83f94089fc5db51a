"""Goes over the events in order of time and adds up, per step, who owned the time and why nobody did."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from decodetop.steps import idle, split
from decodetop.steps.context import NameTable
from decodetop.steps.kinds import UNKNOWN
from decodetop.steps.reading import IDLE_KINDS, KINDS
from decodetop.steps.rows import ROW
from decodetop.steps.spill import Rows, Spill, Table, joined
from decodetop.steps.split import Ints
from decodetop.steps.timeline import EVENT, IN_GRAPH, Timeline

CODES = UNKNOWN + 1
"""Kinds and, last, the unknown."""
_COMMUNICATION = KINDS.index("communication")
_PARTITIONS = 64
PENDING_BUCKETS = 4
"""A step longer than this is worked on in parts."""

NAME_SUM = np.dtype([("window", "<i8"), ("name", "<i8"), ("code", "<i8"), ("ns", "<i8"), ("calls", "<i8")])
"""What one name owned in one window, and how many of its events start there."""
COLLECTIVE = np.dtype([("window", "<i8"), ("name", "<i8"), ("start", "<i8"), ("ns", "<i8")])


class Sums:
    """Per window i, [start[i], end[i]): all arrays in ns or counts; `names` and `collectives` by window % 64."""

    def __init__(self, start: Ints, end: Ints, spill: Spill) -> None:
        self.start, self.end = start, end
        count = len(start)
        self.kinds = np.zeros((count, CODES), np.int64)
        self.idle = np.zeros((count, len(IDLE_KINDS)), np.int64)
        self.kernels = np.zeros(count, np.int64)
        self.graphs = np.zeros(count, np.int64)
        self.longest = np.zeros(count, np.int64)
        self.longest_name = np.zeros(count, np.int64)
        self.outside_ns = 0
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


class _Block:
    """Events with all that is decided about them once: window, kind, first of its launch."""

    def __init__(self, events: Rows, window: Ints, code: Ints, first: NDArray[Any]) -> None:
        self.events, self.window, self.code, self.first = events, window, code, first

    def __len__(self) -> int:
        return len(self.events)

    def where(self, chosen: NDArray[Any]) -> _Block:
        return _Block(self.events[chosen], self.window[chosen], self.code[chosen], self.first[chosen])

    def then(self, more: _Block) -> _Block:
        return _Block(
            joined([self.events, more.events], EVENT),
            np.concatenate([self.window, more.window]),
            np.concatenate([self.code, more.code]),
            np.concatenate([self.first, more.first]),
        )


def sweep(timeline: Timeline, names: NameTable, starts: Ints, ends: Ints, spill: Spill) -> Sums:
    """Add up every window. Windows are in order and don't overlap; time outside them is left out."""
    return _Sweep(timeline, names, Sums(starts, ends, spill)).run()


class _Sweep:
    def __init__(self, timeline: Timeline, names: NameTable, sums: Sums) -> None:
        self._timeline = timeline
        self._names = names
        self._sums = sums
        self._cuts = np.unique(np.concatenate([sums.start, sums.end]))
        self._carry = _nothing()
        self._done = np.iinfo(np.int64).min
        self._last_end: int | None = None

    def run(self) -> Sums:
        pending: list[Rows] = []
        syncs: list[Rows] = []
        for events, calls, edge in self._timeline.buckets():
            pending.append(events)
            syncs.append(calls)
            horizon = self._horizon(edge)
            if horizon is None and len(pending) < PENDING_BUCKETS:
                continue
            horizon = edge if horizon is None else horizon
            fresh, waiting = joined(pending, EVENT), joined(syncs, ROW)
            ready = fresh["start"] < horizon
            self._block(fresh[ready], waiting, horizon)
            before = horizon if self._last_end is None else min(horizon, self._last_end)
            pending, syncs = [fresh[~ready]], [waiting[waiting["end"] >= before]]
        return self._sums

    def _horizon(self, edge: int) -> int | None:
        """Blocks end where steps begin, so that a layer's neighbours stand in one block."""
        if edge == np.iinfo(np.int64).max or not len(self._cuts) or edge > self._cuts[-1]:
            return edge
        at = int(np.searchsorted(self._cuts, edge, side="right")) - 1
        if at < 0:
            return edge
        return int(self._cuts[at]) if self._cuts[at] > self._done else None

    def _block(self, events: Rows, syncs: Rows, horizon: int) -> None:
        window = self._window_at(events["start"])
        fresh = _Block(events, window, self._names.codes(events, window), _first_of_launch(events))
        self._count(fresh)
        block = self._carry.then(fresh)
        events = block.events
        owned = split.own(events["start"], events["end"], events["track"], self._names.rank[events["name"]])
        owned = split.clip(owned, self._done, horizon)
        self._gaps(owned, block, syncs)
        owned = split.cut(owned, self._cuts)
        self._add(owned, block)
        self._carry = block.where(events["end"] > horizon)
        self._done = horizon

    def _window_at(self, time: Ints) -> Ints:
        """The window that holds each time, -1 for none."""
        sums = self._sums
        if not len(sums.start):
            return np.full(len(time), -1)
        window = np.searchsorted(sums.start, time, side="right") - 1
        return np.where((window >= 0) & (time < sums.end[window]), window, -1)

    def _count(self, block: _Block) -> None:
        """Kernels, graph launches, the longest event and the collectives of each window, by start."""
        inside = block.where(block.window >= 0)
        events, sums, window = inside.events, self._sums, inside.window
        length = events["end"] - events["start"]
        np.add.at(sums.kernels, window[self._names.is_kernel[events["name"]]], 1)
        np.add.at(sums.graphs, window[inside.first & ((events["flags"] & IN_GRAPH) != 0)], 1)
        working = inside.code != _COMMUNICATION
        order = np.argsort(length[working], kind="stable")
        longer = length[working][order] > sums.longest[window[working][order]]
        at = order[longer]
        sums.longest[window[working][at]] = length[working][at]
        sums.longest_name[window[working][at]] = events["name"][working][at]
        shared = ~working
        collectives = np.empty(int(np.count_nonzero(shared)), COLLECTIVE)
        collectives["window"], collectives["name"] = window[shared], events["name"][shared]
        collectives["start"], collectives["ns"] = events["start"][shared], length[shared]
        calls = _sum_by_name(window, events["name"], inside.code, np.zeros(len(window), np.int64), 1)
        sums.keep(calls, collectives)

    def _add(self, owned: split.Segments, block: _Block) -> None:
        window = self._window_at(owned.start)
        length = owned.end - owned.start
        self._sums.outside_ns += int(length[window < 0].sum())
        inside = window >= 0
        window, length, owner = window[inside], length[inside], owned.owner[inside]
        code = block.code[owner]
        np.add.at(self._sums.kinds, (window, code), length)
        name = block.events["name"][owner]
        self._sums.keep(_sum_by_name(window, name, code, length, 0), np.empty(0, COLLECTIVE))

    def _gaps(self, owned: split.Segments, block: _Block, syncs: Rows) -> None:
        if not len(owned.start):
            return
        ends = np.concatenate([[owned.start[0] if self._last_end is None else self._last_end], owned.end[:-1]])
        self._last_end = int(owned.end[-1])
        gap = np.flatnonzero(owned.start > ends)
        gaps = split.cut(split.Segments(ends[gap], owned.start[gap], owned.owner[gap]), self._cuts)
        window = self._window_at(gaps.start)
        gaps = split.Segments(*(field[window >= 0] for field in gaps))
        parts = idle.why(gaps.start, gaps.end, block.events[gaps.owner], block.first[gaps.owner], syncs)
        np.add.at(self._sums.idle, window[window >= 0], parts)


def _nothing() -> _Block:
    empty = np.empty(0, np.int64)
    return _Block(np.empty(0, EVENT), empty, empty, np.empty(0, bool))


def _first_of_launch(events: Rows) -> NDArray[Any]:
    """Whether no earlier event of the block has the same launch."""
    _, first = np.unique(events["correlation"], return_index=True)
    chosen = np.zeros(len(events), bool)
    chosen[first] = True
    return chosen | (events["correlation"] < 0)


def _sum_by_name(window: Ints, name: NDArray[Any], code: Ints, ns: Ints, calls: int) -> Rows:
    keys = (window * (1 << 32) + name) * CODES + code
    unique, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    rows = np.zeros(len(unique), NAME_SUM)
    rows["window"], rows["name"], rows["code"] = window[first], name[first], code[first]
    np.add.at(rows["ns"], inverse.reshape(-1), ns)
    np.add.at(rows["calls"], inverse.reshape(-1), calls)
    return rows
