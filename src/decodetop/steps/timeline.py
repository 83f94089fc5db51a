"""GPU events joined to the calls that launched them, and handed out in order of time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decodetop.steps.rows import Process, Trace
from decodetop.steps.spill import Rows, Table, taken
from decodetop.steps.split import Ints

EVENT = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("call_start", "<i8"),
        ("call_end", "<i8"),
        ("correlation", "<i8"),
        ("order", "<i8"),
        ("name", "<u4"),
        ("track", "<u4"),
        ("call_track", "<u4"),
        ("flags", "<u4"),
    ]
)
_LAUNCHED = 1
"""Flag: the launching call is in the trace."""
_GRAPHED = 2
"""Flag: launched by a graph launch."""

BUCKET_ROWS = 32_768
"""The arrays of so many stay in the cache."""
_GRAPH = re.compile(r"GraphLaunch")
_LAUNCH = re.compile(r"Launch(?:Cooperative)?Kernel|GraphLaunch")
_SYNC = re.compile(r"Synchronize|^(?:cuda|hip)Memcpy(?:2D|3D)?$|^cuMemcpy(?!.*Async)")


class Events(NamedTuple):
    """Events in order of start, ties in the order of the file; one array a field: the sweep goes over them often."""

    start: Ints
    end: Ints
    call_start: Ints
    call_end: Ints
    correlation: Ints
    name: NDArray[Any]
    track: NDArray[Any]
    call_track: NDArray[Any]
    launched: NDArray[Any]
    in_graph: NDArray[Any]

    @classmethod
    def sorted(cls, rows: Rows) -> Events:
        """An event that stands twice, the same to the ns and of one launch, is there once."""
        start = rows["start"]
        order = np.argsort(start, kind="stable")
        tied = start[order[1:]] == start[order[:-1]]
        if tied.any():
            order = np.lexsort((rows["order"], start))
            order = order[~_again(rows, order, tied)]
        rows = taken(rows, order)
        flags = rows["flags"]
        fields = {field: rows[field].copy() for field in cls._fields[:8]}
        return cls(**fields, launched=(flags & _LAUNCHED) != 0, in_graph=(flags & _GRAPHED) != 0)

    def take(self, chosen: slice | NDArray[Any]) -> Events:
        return Events(*(field[chosen] for field in self))

    @classmethod
    def joined(cls, parts: Sequence[Events]) -> Events:
        return parts[0] if len(parts) == 1 else cls(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


class Calls:
    """Which runtime calls are what, by name id."""

    def __init__(self, trace: Trace) -> None:
        names = [name if category.startswith("cuda_") else "" for category, name in trace.names]
        self.graph = np.array([bool(_GRAPH.search(name)) for name in names], bool)
        self.launch = np.array([bool(_LAUNCH.search(name)) for name in names], bool)
        self.sync = np.array([bool(_SYNC.search(name)) for name in names], bool)


class Timeline:
    """One device's events of one process, by time.

    `first_start[i]` is the start of label i's earliest in-label event on the main stream, `lost[i + 1]` its launches
    without a kernel; `early` events start before their launch; `repeated` stood twice among those handed out last.
    """

    def __init__(self, trace: Trace, process: Process, label_start: Ints, label_end: Ints) -> None:
        self.main_track, self.device = main_track(trace, process)
        used = process.busy_ns.keys()
        self._wanted = np.array(
            [number not in used or one[0] == self.device for number, one in enumerate(trace.tracks)]
        )
        self.first_start = np.full(len(label_start), np.iinfo(np.int64).max)
        self.lost = np.zeros(len(label_start) + 1, np.int64)
        self.early = 0
        self.other_devices = 0
        self.repeated = 0
        self.start = np.iinfo(np.int64).max
        self.end = np.iinfo(np.int64).min
        self._bounds = _bounds(process)
        self.events: Table = trace.spill.table(EVENT, len(self._bounds) + 1)
        self.syncs: Table = trace.spill.table(process.calls.dtype, len(self._bounds) + 1)
        self._label_start, self._label_end = label_start, label_end
        calls = Calls(trace)
        for partition in range(process.gpu.partitions):
            self._join(process.gpu.read(partition), process.calls.read(partition), calls)
        process.gpu.free()
        process.calls.free()

    @property
    def count(self) -> int:
        return self.events.count

    def restart(self, first_start: Ints) -> None:
        """Steps found otherwise than by their launches."""
        self.first_start = first_start
        self.lost = np.zeros(len(first_start) + 1, np.int64)

    def free(self) -> None:
        """Forget the events: with many ranks only the sums of each are kept."""
        self.events.free()
        self.syncs.free()

    def buckets(self) -> Iterator[tuple[Events, Rows, int]]:
        """Events and synchronising calls in order of time, and the time before which all have been handed out."""
        edges = [*self._bounds.tolist(), np.iinfo(np.int64).max]
        self.repeated = 0
        for bucket, edge in enumerate(edges):
            syncs, rows = self.syncs.read(bucket), self.events.read(bucket)
            events = Events.sorted(rows)
            self.repeated += len(rows) - len(events.start)
            yield events, syncs[np.argsort(syncs["start"], kind="stable")], edge

    def _join(self, gpu: Rows, calls: Rows, kinds: Calls) -> None:
        calls = taken(calls, np.lexsort((calls["start"], calls["correlation"])))
        if len(calls):
            calls = taken(calls, np.concatenate([[True], np.diff(calls["correlation"]) != 0]))
        at = np.searchsorted(calls["correlation"], gpu["correlation"])
        at = np.minimum(at, max(0, len(calls) - 1))
        known = calls["correlation"][at] == gpu["correlation"] if len(calls) else np.zeros(len(gpu), bool)
        lost = kinds.launch[calls["name"]] if len(calls) else np.zeros(0, bool)
        lost[at[known]] = False
        if not self._wanted.all():
            kept = self._wanted[gpu["track"]]
            self.other_devices += int(len(gpu) - np.count_nonzero(kept))
            gpu, at, known = taken(gpu, kept), at[kept], known[kept]
        np.add.at(self.lost, np.searchsorted(self._label_start, calls["start"][lost], side="right"), 1)
        events = _events(gpu, calls, at, known, kinds)
        self._count(events, calls, at, known)
        if len(events):
            self.start = min(self.start, int(events["start"].min()))
            self.end = max(self.end, int(events["end"].max()))
        self.events.append(events, self._bucket(events["start"]))
        syncs = taken(calls, kinds.sync[calls["name"]]) if len(calls) else calls
        self.syncs.append(syncs, self._bucket(syncs["start"]))

    def _bucket(self, start: Ints) -> NDArray[np.int64]:
        return np.searchsorted(self._bounds, start, side="right")

    def _count(self, events: Rows, calls: Rows, at: NDArray[Any], known: NDArray[Any]) -> None:
        """`at[i]` is the call of event i where it is `known`."""
        self.early += int(np.count_nonzero(known & (events["start"] < events["call_start"])))
        if not len(self._label_start):
            return
        at_call = np.searchsorted(self._label_start, calls["start"], side="right") - 1
        in_label = (at_call >= 0) & (calls["start"] < self._label_end[at_call])
        label = np.where(in_label, at_call, -1)[at] if len(calls) else np.full(len(events), -1)
        inside = np.flatnonzero(known & (label >= 0) & (events["track"] == self.main_track))
        np.minimum.at(self.first_start, label[inside], events["start"][inside])


def main_track(trace: Trace, process: Process) -> tuple[int | None, int | str | None]:
    """The stream with the most GPU time, on the device with the most."""
    devices: dict[int | str, int] = {}
    for track, busy_ns in process.busy_ns.items():
        device = trace.tracks[track][0]
        devices[device] = devices.get(device, 0) + busy_ns
    if not devices:
        return None, None
    device = max(devices, key=lambda one: devices[one])
    mine = {track: ns for track, ns in process.busy_ns.items() if trace.tracks[track][0] == device}
    return max(mine, key=lambda track: mine[track]), device


def _again(rows: Rows, order: Ints, tied: NDArray[Any]) -> NDArray[Any]:
    """Which places of `order` hold an event that is one before it once more: of those that start as the one before
    (`tied`) or after. The first in the file stays. What takes no time may well come twice.
    """
    places = np.flatnonzero(np.append(tied, False) | np.append(False, tied))
    some = rows[order[places]]
    fields = ("track", "name", "correlation", "end", "start")
    sorted_too = np.lexsort(tuple(some[field] for field in fields))
    alike = np.all([some[field][sorted_too[1:]] == some[field][sorted_too[:-1]] for field in fields], axis=0)
    later = sorted_too[1:][alike & (some["end"] > some["start"])[sorted_too[1:]]]
    again = np.zeros(len(order), bool)
    again[places[later]] = True
    return again


def _bounds(process: Process) -> Ints:
    """Times that part the events into buckets of about BUCKET_ROWS."""
    wanted = -(-process.gpu.count // BUCKET_ROWS)
    if wanted <= 1:
        return np.empty(0, np.int64)
    samples = np.sort(np.concatenate(process.start_samples))
    return np.unique(samples[(np.arange(1, wanted) * len(samples)) // wanted])


def _events(gpu: Rows, calls: Rows, at: NDArray[Any], known: NDArray[Any], kinds: Calls) -> Rows:
    events = np.zeros(len(gpu), EVENT)
    for field in ("start", "end", "correlation", "order", "name", "track"):
        events[field] = gpu[field]
    if len(calls):
        flags = np.where(kinds.graph[calls["name"]], _LAUNCHED | _GRAPHED, _LAUNCHED)
        events["call_start"] = calls["start"][at]
        events["call_end"] = calls["end"][at]
        events["call_track"] = calls["track"][at]
        events["flags"] = np.where(known, flags[at], 0)
    return events
