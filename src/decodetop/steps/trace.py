"""Reads a torch.profiler (Kineto) trace into compact rows, streaming and in bounded memory.

Format facts and their sources: docs/steps.md. Times are integer ns from the trace's own zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from decodetop.steps.chunks import Chunks
from decodetop.steps.events import CALLS, GPU, NOTES, Batch, EventDecoder, Row
from decodetop.steps.inflate import TraceBytes
from decodetop.steps.spill import Rows, Spill, Table

GPU_ROW = np.dtype(
    [("correlation", "<i8"), ("start", "<i8"), ("end", "<i8"), ("name", "<u4"), ("track", "<u4"), ("order", "<i8")]
)
"""A GPU event or a launch; `order` is its place in the file among GPU events."""

PARTITIONS = 64
EXACT_US = float(1 << 43)
"""Below this a float64 of us with three places still rounds to the right ns (half an ulp < 0.5 ns)."""
DURATION_MAX_NS = 7 * 24 * 3600 * 1_000_000_000
"""A longer event is a CUPTI overflow (HTA drops the same)."""
NAMES_MAX = 200_000
TRACKS_MAX = 100_000
PROCESSES_MAX = 1024
NAME_MAX_CHARS = 16_384
NOTES_MAX = 2_000_000
SAMPLE_EVERY = 64

_TAG = re.compile(r"\[(?:[A-Z]+\d+-)*TP(\d+)(?:-[A-Z]+\d+)*\]")
_DEVICE = re.compile(rb'"id"\s*:\s*(\d+)\s*,\s*"name"\s*:\s*"([^"]{1,200})"')
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[]*?"rank"\s*:\s*(\d+)')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')


class Progress(msgspec.Struct, frozen=True):
    """Bytes of the file read so far, of the file, and of JSON inflated so far."""

    done_bytes: int
    total_bytes: int
    json_bytes: int


class Note(msgspec.Struct, frozen=True):
    """An annotation: `on_gpu` ones are Kineto's copies on a stream's track."""

    name: str
    track: int
    start: int
    end: int
    on_gpu: bool


class Process:
    """What one process of the trace did; a merged file (string pids `[TP00] 7`) holds several."""

    def __init__(self, tag: int | None, spill: Spill) -> None:
        self.tag = tag
        self.gpu: Table = spill.table(GPU_ROW, PARTITIONS)
        self.calls: Table = spill.table(GPU_ROW, PARTITIONS)
        self.notes: list[Note] = []
        self.busy_ns: dict[int, int] = {}
        self.start_samples: list[NDArray[np.int64]] = []

    def keep(self, rows: Rows, what: Literal["gpu", "calls"]) -> None:
        """Raises TraceError if the rows have to go to disk and it is full."""
        partition = rows["correlation"] % PARTITIONS
        if what == "calls":
            self.calls.append(rows, partition)
            return
        self.gpu.append(rows, partition)
        self.start_samples.append(rows["start"][::SAMPLE_EVERY].copy())
        tracks, index = np.unique(rows["track"], return_inverse=True)
        spent = np.bincount(index, weights=rows["end"] - rows["start"])
        for track, ns in zip(tracks.tolist(), spent.tolist(), strict=True):
            self.busy_ns[track] = self.busy_ns.get(track, 0) + int(ns)


class Trace:
    """`names[i]` is (category, name) of a row's name, `tracks[i]` its (pid, tid). Close it to free the disk."""

    def __init__(self, path: Path, spill: Spill) -> None:
        self.path = path
        self.spill = spill
        self.names: list[tuple[str, str]] = []
        self.tracks: list[tuple[int | str, int | str]] = []
        self.processes: list[Process] = []
        self.events = 0
        self.unreadable = 0
        self.impossible = 0
        self.damage: list[str] = []
        self.rank: int | None = None
        self.base_ns: int | None = None
        self.devices: dict[int, str] = {}
        self.vllm = False

    def close(self) -> None:
        self.spill.close()


def read_trace(path: Path, progress: Callable[[Progress], None] | None = None, spill: Spill | None = None) -> Trace:
    """Read the whole file. What `progress` raises ends it.

    Raises TraceError if the file can't be read or is no trace; damage inside it is counted and said in the result.
    """
    with ExitStack() as unfinished:
        source = TraceBytes(path)
        unfinished.callback(source.close)
        trace = Trace(path, spill or Spill())
        unfinished.callback(trace.close)
        chunks = Chunks(source, str(path))
        decoder = EventDecoder(chunks)
        collector = _Collector(trace, decoder)
        for batch in decoder:
            collector.add(batch)
            if progress is not None:
                progress(Progress(source.done_bytes, source.total_bytes, source.json_bytes))
        unfinished.pop_all()
    source.close()
    trace.unreadable = decoder.unreadable
    _describe(trace, chunks.header + chunks.footer)
    if source.damage:
        trace.damage.append(source.damage)
    elif decoder.unfinished:
        trace.damage.append("the file ends inside the event list: it was cut short or is still being written")
    if chunks.skipped_bytes:
        trace.damage.append(f"{chunks.skipped_bytes:,} bytes without an event were passed over")
    return trace


def _describe(trace: Trace, text: bytes) -> None:
    """Rank, device names and time base from the keys around the events."""
    if found := _RANK.search(text):
        trace.rank = int(found[1])
    if found := _BASE.search(text):
        trace.base_ns = int(found[1])
    trace.devices = {int(number): name.decode("utf-8", "replace") for number, name in _DEVICE.findall(text)}
    trace.vllm = b'"vllm_version"' in text


class _Ids(dict[Any, int]):
    """Numbers keys as they are first met."""

    def __init__(self, made: Callable[[Any], int]) -> None:
        super().__init__()
        self._made = made

    def __missing__(self, key: Any) -> int:
        number = self[key] = self._made(key)
        return number


class _InexactError(Exception):
    """A float can't hold these stamps to the ns."""


class _Collector:
    """Turns batches of events into rows of the right process."""

    def __init__(self, trace: Trace, decoder: EventDecoder) -> None:
        self._trace = trace
        self._decoder = decoder
        self._name_ids = {category: _Ids(partial(self._new_name, category)) for category in (*GPU, *CALLS)}
        self._track_ids = _Ids(self._new_track)
        self._process_of_track: list[int] = []
        self._process_of_tag: dict[int | None, int] = {}
        self._order = 0

    def add(self, batch: Batch) -> None:
        self._trace.events += batch.events
        if batch.typed:
            try:
                made = [(category, self._typed(category, found)) for category, found in batch.typed.items() if found]
            except (_InexactError, OverflowError):
                self._decoder.exact_only = True
                batch = self._decoder.slow(batch.text)
        if not batch.typed:
            made = [(category, self._slow(category, found)) for category, found in batch.rows.items() if found]
        for category, rows in made:
            if category in GPU:
                self._keep_gpu(rows)
            elif category in CALLS:
                self._keep(rows[rows["correlation"] >= 0], "calls")

    def _typed(self, category: str, found: list[Any]) -> Rows:
        start_us = np.array([event.ts for event in found])
        duration_us = np.array([event.dur for event in found])
        if not (np.abs(start_us).max() < EXACT_US and np.abs(duration_us).max() < EXACT_US):
            raise _InexactError
        tracks = self._track_ids
        track = [tracks[event.pid, event.tid] for event in found]
        start, duration = _ns(start_us), _ns(duration_us)
        if category in NOTES:
            self._keep_notes(category, [event.name for event in found], track, start.tolist(), duration.tolist())
            return _NO_ROWS
        correlation = [event.args.correlation for event in found]
        names = self._name_ids[category]
        return _rows(correlation, start, duration, [names[event.name] for event in found], track)

    def _slow(self, category: str, found: list[Row]) -> Rows:
        tracks = self._track_ids
        track = [tracks[row.pid, row.tid] for row in found]
        start, duration = [row.start_ns for row in found], [row.duration_ns for row in found]
        if category in NOTES:
            self._keep_notes(category, [row.name for row in found], track, start, duration)
            return _NO_ROWS
        names = self._name_ids[category]
        correlation = [row.correlation for row in found]
        return _rows(correlation, start, duration, [names[row.name] for row in found], track)

    def _keep_gpu(self, rows: Rows) -> None:
        duration = rows["end"] - rows["start"]
        good = (duration >= 0) & (duration < DURATION_MAX_NS) & ((rows["start"] != 0) | (duration != 0))
        self._trace.impossible += len(rows) - int(np.count_nonzero(good))
        rows = rows[good]
        rows["order"] = np.arange(self._order, self._order + len(rows))
        self._order += len(rows)
        self._keep(rows, "gpu")

    def _keep(self, rows: Rows, what: Literal["gpu", "calls"]) -> None:
        processes = self._trace.processes
        if not len(rows):
            return
        if len(processes) == 1:
            processes[0].keep(rows, what)
            return
        owner = np.array(self._process_of_track)[rows["track"]]
        for index in np.unique(owner):
            processes[index].keep(rows[owner == index], what)

    def _keep_notes(self, category: str, names: list[str], track: list[int], start: list[int], ns: list[int]) -> None:
        on_gpu = category == "gpu_user_annotation"
        for name, on, begin, length in zip(names, track, start, ns, strict=True):
            notes = self._trace.processes[self._process_of_track[on]].notes
            if len(notes) < NOTES_MAX and length >= 0:
                notes.append(Note(name[:NAME_MAX_CHARS], on, begin, begin + length, on_gpu))

    def _new_name(self, category: str, name: str) -> int:
        names = self._trace.names
        if len(names) < NAMES_MAX:
            names.append((category, name[:NAME_MAX_CHARS]))
        return len(names) - 1

    def _new_track(self, track: tuple[int | str, int | str]) -> int:
        if len(self._process_of_track) >= TRACKS_MAX:
            return TRACKS_MAX - 1
        found = _TAG.search(track[0]) if isinstance(track[0], str) else None
        tag = int(found[1]) if found else None
        if tag not in self._process_of_tag and len(self._process_of_tag) < PROCESSES_MAX:
            self._process_of_tag[tag] = len(self._trace.processes)
            self._trace.processes.append(Process(tag, self._trace.spill))
        self._trace.tracks.append(track)
        self._process_of_track.append(self._process_of_tag.get(tag, 0))
        return len(self._process_of_track) - 1


_NO_ROWS: Rows = np.empty(0, GPU_ROW)


def _rows(correlation: Any, start: Any, duration: Any, name: Any, track: Any) -> Rows:
    rows = np.empty(len(correlation), GPU_ROW)
    rows["correlation"] = correlation
    rows["start"] = start
    rows["end"] = rows["start"] + np.asarray(duration)
    rows["name"] = name
    rows["track"] = track
    rows["order"] = 0
    return rows


def _ns(us: NDArray[np.float64]) -> NDArray[np.int64]:
    """Exact for |us| < EXACT_US: whole and broken part apart, so that no product is rounded."""
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)
