"""Turns decoded events into rows of the right process."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decodetop.steps.events import NOTES, Batch, EventDecoder, Row
from decodetop.steps.heads import CALLS, GPU, Head
from decodetop.steps.layout import Columns
from decodetop.steps.rows import ROW, Note, Process, Trace
from decodetop.steps.spill import Rows, taken

EXACT_US = float(1 << 43)
"""Below this a float64 of us with three places still rounds to the right ns (half an ulp < 0.5 ns)."""
DURATION_MAX_NS = 7 * 24 * 3600 * 1_000_000_000
"""A longer event is a CUPTI overflow (HTA drops the same)."""
PENDING_ROWS = 32_768
"""Rows turned into arrays at a time: numpy's calls cost more than the work on a chunk's few hundred."""
NAMES_MAX = 200_000
NAME_MAX_CHARS = 16_384
TRACKS_MAX = 100_000
PROCESSES_MAX = 1024
NOTES_MAX = 200_000
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
    """Columns of rows that are not yet rows, an array a chunk: what Python holds of a chunk is let go at once, while
    it is in the cache. Times are us as decoded, or exact ns of the slow path."""

    def __init__(self) -> None:
        self.count = 0
        self._columns: list[tuple[NDArray[Any], ...]] = []

    def add(self, found: Sequence[Any], names: list[int], tracks: list[int]) -> None:
        """Events as decoded."""
        self._add(
            np.fromiter([event.ts for event in found], np.float64, len(found)),
            np.fromiter([event.dur for event in found], np.float64, len(found)),
            [event.args.correlation for event in found],
            names,
            tracks,
        )

    def add_exact(self, found: Sequence[Row], names: list[int], tracks: list[int]) -> None:
        """Events of the slow path."""
        self._add(
            np.fromiter([row.start_ns for row in found], np.int64, len(found)),
            np.fromiter([row.duration_ns for row in found], np.int64, len(found)),
            [row.correlation for row in found],
            names,
            tracks,
        )

    def add_arrays(self, *columns: NDArray[np.int64]) -> None:
        """Start, duration, correlation, name and track of events."""
        self._columns.append(columns)
        self.count += len(columns[0])

    def _add(
        self, start: NDArray[Any], duration: NDArray[Any], correlation: list[int], name: list[int], track: list[int]
    ) -> None:
        """One number in `track` holds for all."""
        numbers = (np.fromiter(column, np.int64, len(column)) for column in (correlation, name, track))
        self._columns.append((start, duration, *numbers))
        self.count += len(start)

    def rows(self) -> Rows:
        """All of them, and forget them."""
        rows = np.zeros(self.count, ROW)
        starts, durations, correlations, names, tracks = zip(*self._columns, strict=True)
        rows["start"] = _all_ns(starts)
        rows["end"] = rows["start"] + _all_ns(durations)
        rows["correlation"] = np.concatenate(correlations)
        rows["name"] = np.concatenate(names)
        whole = (np.broadcast_to(track, len(start)) for track, start in zip(tracks, starts, strict=True))
        rows["track"] = np.concatenate(list(whole))
        self._columns.clear()
        self.count = 0
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
        self._process_of_tag: dict[str | None, int] = {}
        self._gpu = _Pending()
        self._calls = _Pending()
        self._heads = np.empty((3, 0), np.int64)
        self._columns: list[Columns] = []
        self._column_rows = 0
        self._order = 0

    def add(self, batch: Batch) -> None:
        self._trace.events += batch.events
        if batch.typed and not _exact(batch.typed):
            self._decoder.exact_only = True
            batch = self._decoder.slow(batch.text)
        if batch.columns is not None:
            self._columns.append(batch.columns)
            self._column_rows += len(batch.columns.start)
        for pending, categories in ((self._gpu, GPU), (self._calls, CALLS)):
            found, names = self._of(batch.typed, categories)
            exact, exact_names = self._of(batch.rows, categories)
            if found or exact:
                self._take_columns()
            if found:
                pending.add(found, names, self._tracks_of(found))
            if exact:
                pending.add_exact(exact, exact_names, self._tracks_of(exact))
        for category in NOTES:
            if noted := batch.typed.get(category):
                self._keep_notes(category, noted, _ns(np.array([[note.ts, note.dur] for note in noted])).tolist())
            if rows := batch.rows.get(category):
                self._keep_notes(category, rows, [[row.start_ns, row.duration_ns] for row in rows])
        if self._column_rows + self._gpu.count + self._calls.count > PENDING_ROWS:
            self.finish()

    def _take_columns(self) -> None:
        """What came by columns so far is pending, before what comes otherwise."""
        if not self._columns:
            return
        if self._heads.shape[1] < len(self._decoder.heads):
            fresh = [self._head(head) for head in self._decoder.heads[self._heads.shape[1] :]]
            self._heads = np.concatenate([self._heads, np.array(fresh, np.int64).T], axis=1)
        *columns, heads = (np.concatenate(parts) for parts in zip(*self._columns, strict=True))
        self._columns.clear()
        self._column_rows = 0
        on_gpu, *named = (column.take(heads) for column in self._heads)
        for pending, mine in ((self._gpu, np.flatnonzero(on_gpu)), (self._calls, np.flatnonzero(on_gpu == 0))):
            if len(mine):
                pending.add_arrays(*(column.take(mine) for column in (*columns, *named)))

    def _head(self, head: Head) -> tuple[int, int, int]:
        """Whether it is on a GPU, and the numbers of its name and track."""
        return int(head.cat in GPU), self._names[head.cat][head.name], self._tracks_of([head])[0]

    def _of(self, batch: Mapping[str, list[Any]], categories: Sequence[str]) -> tuple[list[Any], list[int]]:
        """Events of several categories, and the numbers of their names: few calls on many are faster than the other
        way round."""
        found: list[Any] = []
        numbers: list[int] = []
        for category in categories:
            events = batch.get(category)
            if events:
                names = self._names[category]
                numbers += [names[event.name] for event in events]
                found += events
        return found, numbers

    def finish(self) -> None:
        """Hand over what is pending."""
        self._take_columns()
        if self._gpu.count:
            rows = self._gpu.rows()
            duration = rows["end"] - rows["start"]
            good = (duration >= 0) & (duration < DURATION_MAX_NS) & ((rows["start"] != 0) | (duration != 0))
            if not good.all():
                self._trace.impossible += len(rows) - int(np.count_nonzero(good))
                rows = taken(rows, good)
            rows["order"] = np.arange(self._order, self._order + len(rows))
            self._order += len(rows)
            for process, mine in self._by_process(rows):
                process.keep(mine, "gpu")
        if self._calls.count:
            rows = self._calls.rows()
            for process, mine in self._by_process(taken(rows, rows["correlation"] >= 0)):
                process.keep(mine, "calls")

    def _by_process(self, rows: Rows) -> list[tuple[Process, Rows]]:
        processes = self._trace.processes
        if len(processes) == 1 or not len(rows):
            return [(processes[0], rows)] if len(rows) else []
        owner = np.array(self._process_of_track)[rows["track"]]
        return [(processes[index], rows[owner == index]) for index in np.unique(owner).tolist()]

    def _tracks_of(self, found: Sequence[Any]) -> list[int]:
        """Track numbers of events, or a single one that holds for all: nearly always they are of one stream."""
        pids = [event.pid for event in found]
        for pid in {pids[0], *pids} - self._tracks.keys() if pids else ():
            self._tracks[pid] = _Ids(TRACKS_MAX, partial(self._new_track, pid))
        tids = [event.tid for event in found]
        if not found:
            return []
        if tids.count(tids[0]) == pids.count(pids[0]) == len(found):
            return [self._tracks[pids[0]][tids[0]]]
        tracks = self._tracks
        return [tracks[pid][tid] for pid, tid in zip(pids, tids, strict=True)]

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
        tag = found[0] if found else None
        if tag not in self._process_of_tag and len(self._process_of_tag) < PROCESSES_MAX:
            self._process_of_tag[tag] = len(self._trace.processes)
            rank = int(found[1]) if found else None
            self._trace.processes.append(Process(tag, rank, self._trace.spill, self._trace.partitions))
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


def _all_ns(parts: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """The chunks' times in ns, whichever they are in."""
    if all(part.dtype == np.float64 for part in parts):
        return _ns(np.concatenate(parts))
    return np.concatenate([part if part.dtype == np.int64 else _ns(part) for part in parts])


def _ns(us: NDArray[np.float64]) -> NDArray[np.int64]:
    """Exact for |us| < EXACT_US: whole and broken part apart, so that no product is rounded."""
    us = np.clip(us, -1e15, 1e15)
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)
