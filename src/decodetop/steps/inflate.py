"""Bytes of a trace file: plain or gzip (any number of members, cut short or damaged), in blocks of bounded size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, cast

from isal import igzip_lib, isal_zlib

from decodetop.core.regular import open_regular
from decodetop.errors import TraceError

BLOCK_BYTES = 2 << 20
"""Size of the blocks handed out: large enough for the work on arrays, small enough for the cache."""
BLOCKS_AHEAD = 2
"""On a busy machine a thread waits milliseconds for its turn, as long as it takes to decode a block."""
READ_BYTES = 1 << 18
PACKED_MAX, PACKED_OVER_BYTES = 250, 1 << 30
"""A trace packs 15 to 30 times; what unpacks to so many times its size would hold its reader up for hours."""
_DAMAGED = cast(type[Exception], igzip_lib.IsalError)  # its stub says it is an instance
_GZIP = b"\x1f\x8b"
_GZIP_AND_HEADER = 31
_FOREIGN = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"\x28\xb5\x2f\xfd": "zstd-compressed; decompress it with `zstd -d`",
    b"BZh": "bzip2-compressed; decompress it with `bunzip2`",
    b"\xfd7zXZ\x00": "xz-compressed; decompress it with `unxz`",
    b"SQLite format 3": "a SQLite file (nsys export?); decodetop reads torch.profiler traces",
}


class TraceBytes:
    """Iterate for the uncompressed blocks. `done_bytes` of `total_bytes` count the file, not its content.

    `damage` says in words why the content ends early; it is None for a whole file.
    """

    def __init__(self, path: Path) -> None:
        """Raises TraceError if the file can't be opened, is empty, or is plainly something else."""
        self.path = path
        self.done_bytes = 0
        self.json_bytes = 0
        self.damage: str | None = None
        try:
            self._file: BinaryIO = open_regular(path)
            head = self._file.read(16)
            self.total_bytes = path.stat().st_size
        except OSError as error:
            raise TraceError(
                f"can't read {path}: {error.strerror or error}", "give the trace files, all ranks of one capture"
            ) from error
        self.gzip = head.startswith(_GZIP)
        if not head:
            self._file.close()
            raise TraceError(f"{path} is empty", "the engine may still be writing it; wait until its size is stable")
        for magic, what in _FOREIGN.items():
            if head.startswith(magic):
                self._file.close()
                raise TraceError(f"{path} is no trace but {what.split(';')[0]}", what.partition("; ")[2])
        self._file.seek(0)
        self._ahead = ThreadPoolExecutor(1, "decodetop-inflate")

    def close(self) -> None:
        """Ends the thread too; to be called whether or not the iteration came to its end."""
        self._ahead.shutdown(wait=True, cancel_futures=True)
        self._file.close()

    def __iter__(self) -> Iterator[bytes]:
        """A thread reads and inflates some blocks ahead (both release the interpreter's lock).

        The thread is ended by `close` and not here: a generator may be closed by the garbage collector, at a moment
        when waiting for a thread never ends.
        """
        blocks = self._inflated() if self.gzip else self._plain()
        coming = deque(self._ahead.submit(next, blocks, None) for _ in range(BLOCKS_AHEAD))
        while (block := coming.popleft().result()) is not None:
            coming.append(self._ahead.submit(next, blocks, None))
            self.json_bytes += len(block)
            yield block

    def _read(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except OSError as error:
            self.damage = f"reading stopped at byte {self.done_bytes:,}: {error.strerror or error}"
            return b""
        self.done_bytes += len(data)
        return data

    def _plain(self) -> Iterator[bytes]:
        while block := self._read(BLOCK_BYTES):
            yield block

    def _inflated(self) -> Iterator[bytes]:
        """`max_length` bounds a block even where the data inflates a thousandfold."""
        pending = b""
        member = isal_zlib.decompressobj(_GZIP_AND_HEADER)
        parts: list[bytes] = []
        size = unpacked = 0
        while True:
            pending = pending or self._read(READ_BYTES)
            if not pending:
                if self.damage is None:
                    self.damage = "the gzip data ends early: the file was cut short or is still being written"
                break
            try:
                part = member.decompress(pending, BLOCK_BYTES - size)
            except _DAMAGED as error:
                self.damage = f"the gzip data is damaged near byte {self.done_bytes:,} ({error})"
                break
            parts.append(part)
            size += len(part)
            unpacked += len(part)
            if unpacked > max(PACKED_OVER_BYTES, PACKED_MAX * self.done_bytes):
                self.damage = (
                    f"it unpacks to over {PACKED_MAX} times its size, as no trace does: left after {unpacked:,} bytes"
                )
                break
            pending = member.unconsumed_tail
            if size >= BLOCK_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
            if member.eof:
                pending = self._next_member(member.unused_data)
                if not pending:
                    break
                member = isal_zlib.decompressobj(_GZIP_AND_HEADER)
        if size:
            yield b"".join(parts)

    def _next_member(self, rest: bytes) -> bytes:
        """The first bytes of the next gzip member, or nothing; zero padding is allowed, other garbage is said."""
        while True:
            rest = rest.lstrip(b"\0")
            if len(rest) < len(_GZIP):
                more = self._read(READ_BYTES)
                if not more:
                    return b""
                rest += more
            elif rest.startswith(_GZIP):
                return rest
            else:
                self.damage = f"bytes that are not gzip follow the data near byte {self.done_bytes:,}; ignored"
                return b""
