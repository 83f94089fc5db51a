"""Turns decoded events into rows of the right process."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decodetop.steps.events import CALLS, GPU, NOTES, Batch, EventDecoder, Row
from decodetop.steps.rows import ROW, Note, Process, Trace
from decodetop.steps.spill import Rows

EXACT_US = float(1 << 43)
"""Below this a float64 of us with three places still rounds to the right ns (half an ulp < 0.5 ns)."""
DURATION_MAX_NS = 7 * 24 * 3600 * 1_000_000_000
"""A longer event is a CUPTI overflow (HTA drops the same)."""
PENDING_ROWS = 16_384
"""Rows turned into arrays at a time: numpy's calls cost more than the work on a chunk's few hundred."""
NAMES_MAX = 200_000
NAME_MAX_CHARS = 16_384
TRACKS_MAX = 100_000
PROCESSES_MAX = 1024
NOTES_MAX = 1_000_000
CORRELATION_MAX = (1 << 63) - 1

_TAG = re.compile(r"\[(?:[A-Z]+\d+-)*TP(\d+)(?:-[A-Z]+\d+)*\]")


class _Ids(dict[Any, int]):
    """Numbers keys as they are first met; beyond `limit` all new ones are the last."""

    def __init__(self, limit: int, made: Callable[[Any], int]) -> None:
        super().__init__()
        self._limit = limit
        self._made = made

    def __missing__(self, key: Any) -> int:
        if len(self) >= self._limit:
            return next(reversed(self.values()))
        number = self[key] = self._made(key)
        return number


class _Pending:
    """Columns of rows that are not yet arrays; times in us as decoded, or in ns of the slow path."""

    def __init__(self) -> None:
        self.correlation: list[int] = []
        self.start: list[Any] = []
        self.duration: list[Any] = []
        self.name: list[int] = []
        self.track: list[int] = []

    def rows(self, exact: bool) -> Rows:
        """All of them, and forget them. `exact` = the times are ns already."""
        count = len(self.name)
        rows = np.zeros(count, ROW)
        if exact:
            rows["start"], rows["end"] = self.start, self.duration
        else:
            rows["start"] = _ns(np.fromiter(self.start, np.float64, count))
            rows["end"] = _ns(np.fromiter(self.duration, np.float64, count))
        rows["end"] += rows["start"]
        rows["correlation"] = np.fromiter(self.correlation, np.int64, count)
        rows["name"] = np.fromiter(self.name, np.int64, count)
        rows["track"] = np.fromiter(self.track, np.int64, count)
        for column in (self.correlation, self.start, self.duration, self.name, self.track):
            column.clear()
        return rows


class Collector:
    """`add` every batch, then `finish`. `wanted` says which annotations may be step labels."""

    def __init__(self, trace: Trace, decoder: EventDecoder, wanted: Callable[[str], bool]) -> None:
        self._trace = trace
        self._decoder = decoder
        self._wanted = wanted
        self._known_notes: dict[str, bool] = {}
        self._names = {category: _Ids(NAMES_MAX, partial(self._new_name, category)) for category in (*GPU, *CALLS)}
        self._tracks: dict[int | str, _Ids] = {}
        self._process_of_track: list[int] = []
        self._process_of_tag: dict[int | None, int] = {}
        self._gpu = _Pending()
        self._calls = _Pending()
        self._order = 0

    def add(self, batch: Batch) -> None:
        self._trace.events += batch.events
        if batch.typed and not _exact(batch.typed):
            self._decoder.exact_only = True
            batch = self._decoder.slow(batch.text)
        for category, found in batch.typed.items():
            if found and category not in NOTES:
                self._typed(category, found)
            elif found:
                times = _ns(np.array([[event.ts, event.dur] for event in found])).tolist()
                self._keep_notes(category, found, times)
        if batch.rows:
            self._slow(batch.rows)
        elif len(self._gpu.name) + len(self._calls.name) > PENDING_ROWS:
            self._flush(exact=False)

    def finish(self) -> None:
        self._flush(exact=False)

    def _typed(self, category: str, found: list[Any]) -> None:
        pending = self._gpu if category in GPU else self._calls
        names = self._names[category]
        pending.name += [names[event.name] for event in found]
        pending.track += self._tracks_of(found)
        pending.start += [event.ts for event in found]
        pending.duration += [event.dur for event in found]
        pending.correlation += [event.args.correlation for event in found]

    def _slow(self, batch: dict[str, list[Row]]) -> None:
        """Rows with exact times; what is pending goes first, so that the order of the file is kept."""
        self._flush(exact=False)
        for category, found in batch.items():
            if category in NOTES:
                times = [[row.start_ns, row.duration_ns] for row in found]
                self._keep_notes(category, found, times)
                continue
            pending = self._gpu if category in GPU else self._calls
            names = self._names[category]
            pending.name += [names[row.name] for row in found]
            pending.track += self._tracks_of(found)
            pending.start += [row.start_ns for row in found]
            pending.duration += [row.duration_ns for row in found]
            pending.correlation += [row.correlation for row in found]
        self._flush(exact=True)

    def _flush(self, exact: bool) -> None:
        if self._gpu.name:
            rows = self._gpu.rows(exact)
            duration = rows["end"] - rows["start"]
            good = (duration >= 0) & (duration < DURATION_MAX_NS) & ((rows["start"] != 0) | (duration != 0))
            if not good.all():
                self._trace.impossible += len(rows) - int(np.count_nonzero(good))
                rows = rows[good]
            rows["order"] = np.arange(self._order, self._order + len(rows))
            self._order += len(rows)
            for process, mine in self._by_process(rows):
                process.keep(mine, "gpu")
        if self._calls.name:
            rows = self._calls.rows(exact)
            for process, mine in self._by_process(rows[rows["correlation"] >= 0]):
                process.keep(mine, "calls")

    def _by_process(self, rows: Rows) -> list[tuple[Process, Rows]]:
        processes = self._trace.processes
        if len(processes) == 1 or not len(rows):
            return [(processes[0], rows)] if len(rows) else []
        owner = np.array(self._process_of_track)[rows["track"]]
        return [(processes[index], rows[owner == index]) for index in np.unique(owner).tolist()]

    def _tracks_of(self, found: Sequence[Any]) -> list[int]:
        """Track numbers of events; nearly always all of one process."""
        pids = {event.pid for event in found}
        for pid in pids - self._tracks.keys():
            self._tracks[pid] = _Ids(TRACKS_MAX, partial(self._new_track, pid))
        if len(pids) == 1:
            ids = self._tracks[pids.pop()]
            return [ids[event.tid] for event in found]
        tracks = self._tracks
        return [tracks[event.pid][event.tid] for event in found]

    def _keep_notes(self, category: str, found: Sequence[Any], times: list[list[int]]) -> None:
        on_gpu = category == "gpu_user_annotation"
        for event, (start, duration) in zip(found, times, strict=True):
            name: str = event.name
            if not self._is_wanted(name) or duration < 0:
                continue
            (track,) = self._tracks_of([event])
            notes = self._trace.processes[self._process_of_track[track]].notes
            if len(notes) < NOTES_MAX:
                notes.append(Note(name[:NAME_MAX_CHARS], track, start, start + duration, on_gpu))

    def _is_wanted(self, name: str) -> bool:
        if name not in self._known_notes:
            if len(self._known_notes) >= NAMES_MAX:
                return self._wanted(name)
            self._known_notes[name] = self._wanted(name)
        return self._known_notes[name]

    def _new_name(self, category: str, name: str) -> int:
        self._trace.names.append((category, name[:NAME_MAX_CHARS]))
        return len(self._trace.names) - 1

    def _new_track(self, pid: int | str, tid: int | str) -> int:
        if len(self._process_of_track) >= TRACKS_MAX:
            return TRACKS_MAX - 1
        found = _TAG.search(pid) if isinstance(pid, str) else None
        tag = int(found[1]) if found else None
        if tag not in self._process_of_tag and len(self._process_of_tag) < PROCESSES_MAX:
            self._process_of_tag[tag] = len(self._trace.processes)
            self._trace.processes.append(Process(tag, self._trace.spill, self._trace.partitions))
        self._trace.tracks.append((pid, tid))
        self._process_of_track.append(self._process_of_tag.get(tag, 0))
        return len(self._process_of_track) - 1


def _exact(typed: dict[str, list[Any]]) -> bool:
    """Whether floats hold the stamps. A file's stamps are all of one size, so the ends of a chunk tell."""
    for category, found in typed.items():
        for event in (found[0], found[-1]) if found else ():
            if not (abs(event.ts) < EXACT_US and abs(event.dur) < EXACT_US):
                return False
            if category not in NOTES and not -1 <= event.args.correlation <= CORRELATION_MAX:
                return False
    return True


def _ns(us: NDArray[np.float64]) -> NDArray[np.int64]:
    """Exact for |us| < EXACT_US: whole and broken part apart, so that no product is rounded."""
    us = np.clip(us, -1e15, 1e15)
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)
