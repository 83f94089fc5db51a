"""What the reader keeps of a trace: compact rows of GPU events and launches, labels, names. Times are integer ns."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from decodetop.steps.spill import Rows, Spill, Table

ROW = np.dtype(
    [("correlation", "<i8"), ("start", "<i8"), ("end", "<i8"), ("name", "<u4"), ("track", "<u4"), ("order", "<i8")]
)
"""A GPU event or a launch; `order` is its place in the file among the GPU events."""

SAMPLE_EVERY = 64
CORRELATIONS_TOGETHER = 12
"""Bits of a correlation: neighbours in the file go to one partition, so that rows need not be sorted."""


class Note(msgspec.Struct, frozen=True):
    """An annotation: `on_gpu` ones are Kineto's copies on a stream's track."""

    name: str
    track: int
    start: int
    end: int
    on_gpu: bool


class Process:
    """What one process of the trace did; a merged file (string pids `[TP00-DP01] 7`, rank 0) holds several.

    `busy_ns[track]` is the sum of durations on a stream, `start_samples` every 64th start of a GPU event.
    """

    def __init__(self, tag: str | None, rank: int | None, spill: Spill, partitions: int) -> None:
        self.tag, self.rank = tag, rank
        self.gpu: Table = spill.table(ROW, partitions)
        self.calls: Table = spill.table(ROW, partitions)
        self.notes: list[Note] = []
        self.busy_ns: dict[int, int] = {}
        self.start_samples: list[NDArray[np.int64]] = []

    def keep(self, rows: Rows, what: Literal["gpu", "calls"]) -> None:
        """Raises TraceError if the rows have to go to disk and it is full."""
        partition = (rows["correlation"] >> CORRELATIONS_TOGETHER) % self.gpu.partitions
        if what == "calls":
            self.calls.append(rows, partition)
            return
        self.gpu.append(rows, partition)
        self.start_samples.append(rows["start"][::SAMPLE_EVERY].copy())
        spent = np.bincount(rows["track"], rows["end"] - rows["start"])
        for track in np.flatnonzero(np.bincount(rows["track"])).tolist():
            self.busy_ns[track] = self.busy_ns.get(track, 0) + int(spent[track])


class Trace:
    """`names[i]` is (category, name) of a row's name, `tracks[i]` its (pid, tid). Close it to free the disk."""

    def __init__(self, path: Path, spill: Spill, partitions: int = 1) -> None:
        self.path = path
        self.spill = spill
        self.partitions = partitions
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
