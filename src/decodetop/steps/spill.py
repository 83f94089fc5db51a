"""Rows of numpy records in partitions: in memory while few, in one unlinked temporary file when many.

What makes the reader's memory bounded whatever the size of the trace. Each table is written once and read by partition.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from decodetop.errors import TraceError

Rows = NDArray[Any]

BUDGET_BYTES = 16 << 20
"""Rows kept in memory over all tables before they go to the file; a usual capture of a few steps stays below."""


def joined(parts: Sequence[Rows], dtype: np.dtype[Any]) -> Rows:
    """One array of all parts, as words: numpy copies records field by field."""
    if not parts:
        return np.empty(0, dtype)
    rows: Rows = np.concatenate([part.view(np.int64) for part in parts]).view(dtype)
    return rows


def taken(rows: Rows, chosen: NDArray[Any]) -> Rows:
    """`rows[chosen]`, by numbers or a mask, as words."""
    if chosen.dtype == bool:
        chosen = np.flatnonzero(chosen)
    words = rows.view(np.int64).reshape(len(rows), rows.dtype.itemsize // 8)
    found: Rows = words.take(chosen, axis=0).view(rows.dtype).reshape(-1)
    return found


class Spill:
    """The file and the budget that all tables of one trace share."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self.written = 0
        self._budget = budget_bytes
        self.held_bytes = 0
        self._file: BinaryIO | None = None
        self._tables: list[Table] = []

    def table(self, dtype: np.dtype[Any], partitions: int) -> Table:
        table = Table(self, dtype, partitions)
        self._tables.append(table)
        return table

    def took(self, size: int) -> None:
        """`size` bytes more are held; everything goes to the file when the budget is spent. Raises TraceError."""
        self.held_bytes += size
        if size > 0 and self.held_bytes > self._budget:
            self.flush()

    def flush(self) -> None:
        """Nothing is held in memory any more. Raises TraceError."""
        for table in self._tables:
            table.flush()

    def write(self, rows: Rows) -> tuple[int, int]:
        """Where the rows went: offset and count."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="decodetop-")  # noqa: SIM115
            offset = self._file.seek(0, 2)
            self._file.write(rows.view(np.uint8).data)
            self._file.flush()
        except OSError as error:
            message = f"can't write temporary data to {tempfile.gettempdir()}: {error.strerror or error}"
            raise TraceError(message, "free some space there, or set TMPDIR to another folder") from error
        self.written += rows.nbytes
        return offset, len(rows)

    def read(self, offset: int, count: int, dtype: np.dtype[Any]) -> Rows:
        assert self._file is not None
        self._file.seek(offset)
        data = self._file.read(count * dtype.itemsize)
        if len(data) < count * dtype.itemsize:
            raise TraceError(f"temporary data in {tempfile.gettempdir()} is gone", "try again")
        return np.frombuffer(data, dtype)

    def close(self) -> None:
        """Gives the space back; the tables are empty afterwards."""
        self._tables.clear()
        if self._file is not None:
            self._file.close()
            self._file = None


class Table:
    """Append rows with the partition each belongs to; read one partition whole, in the order of appending."""

    def __init__(self, spill: Spill, dtype: np.dtype[Any], partitions: int) -> None:
        self.dtype = dtype
        self.partitions = partitions
        self.count = 0
        self._spill = spill
        self._held = 0
        self._parts: list[list[Rows]] = [[] for _ in range(partitions)]
        self._extents: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]

    def append(self, rows: Rows, partition: NDArray[np.int64]) -> None:
        """`partition[i]` says where row i goes. Raises TraceError if the disk is full."""
        if not len(rows):
            return
        if partition[0] == partition[-1] and (partition == partition[0]).all():
            self._parts[partition[0]].append(rows)
        else:
            # 16-bit keys are sorted by radix
            order = np.argsort(partition.astype(np.uint16), kind="stable")
            edges = np.append(0, np.cumsum(np.bincount(partition, minlength=self.partitions)))
            rows = taken(rows, order)
            for part in np.flatnonzero(np.diff(edges)):
                self._parts[part].append(rows[edges[part] : edges[part + 1]])
        self.count += len(rows)
        self._held += rows.nbytes
        self._spill.took(rows.nbytes)

    def read(self, partition: int) -> Rows:
        stored = [self._spill.read(offset, count, self.dtype) for offset, count in self._extents[partition]]
        return joined([*stored, *self._parts[partition]], self.dtype)

    def free(self) -> None:
        """Forget the rows (the file's space is given back by Spill.close)."""
        self._parts = [[] for _ in range(self.partitions)]
        self._extents = [[] for _ in range(self.partitions)]
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, 0
        self._spill.took(-held)

    def flush(self) -> None:
        for part, rows in enumerate(self._parts):
            if rows:
                self._extents[part].append(self._spill.write(joined(rows, self.dtype)))
                rows.clear()
        self._release()
