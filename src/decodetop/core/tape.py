"""The tape: NDJSON, a header line and then one line per sample; also what `stream` prints and a pipe reads.

Readable by older and newer versions: unknown fields are ignored, a lane of an unknown source is skipped and named,
a truncated last line is tolerated and said.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from decodetop.core.regular import open_regular
from decodetop.core.sample import SCHEMA, ClockReading, Failure, Header, Notice, Reading, Sample
from decodetop.core.source import RecordReading
from decodetop.core.state import HISTORY
from decodetop.errors import DataError

LINE_MAX_BYTES = 16 << 20
"""A longer line is not one of ours."""

_CORE: Mapping[str, type[Reading]] = {"clock": ClockReading, "notice": Notice, "record": RecordReading}


_NULL = msgspec.Raw(b"null")


class _Line(msgspec.Struct):
    source: str
    t_ns: int
    seq: int = 0
    reading: msgspec.Raw = _NULL
    failure: Failure | None = None


class _Stamp(msgspec.Struct):
    source: str
    t_ns: int
    failure: msgspec.Raw = _NULL


class Codec:
    """Turns samples into lines and back. `readings` says which type each source's reading has."""

    def __init__(self, readings: Mapping[str, type[Reading]]) -> None:
        self._encoder = msgspec.json.Encoder()
        self._line = msgspec.json.Decoder(_Line)
        self._decoders = {name: msgspec.json.Decoder(kind) for name, kind in {**_CORE, **readings}.items()}
        self.unknown: set[str] = set()

    def header_line(self, header: Header) -> bytes:
        return self._encoder.encode(header) + b"\n"

    def line(self, sample: Sample) -> bytes:
        return self._encoder.encode(sample) + b"\n"

    def header(self, line: bytes, where: str) -> Header:
        """Raises DataError if the line is no header, or one of a format this version can't read."""
        try:
            header = msgspec.json.decode(line, type=Header)
        except msgspec.MsgspecError as error:
            hint = "a tape starts with a line that `decodetop record` wrote"
            raise DataError(f"{where} is not a decodetop tape: {error}", hint) from error
        if header.kind != "decodetop-tape":
            raise DataError(f"{where} is not a decodetop tape but {header.kind!r}")
        if header.schema > SCHEMA:
            message = f"{where} has tape schema {header.schema}; this decodetop reads up to {SCHEMA}"
            raise DataError(message, f"it was written by decodetop {header.version}: upgrade to read it")
        return header

    def sample(self, line: bytes) -> Sample | None:
        """The sample of a line, or None (and its source in `unknown`) if this version doesn't know the source.

        Raises msgspec.MsgspecError for a line that is no sample.
        """
        raw = self._line.decode(line)
        reading: Reading | None = None
        if bytes(raw.reading) != b"null":
            decoder = self._decoders.get(raw.source)
            if decoder is None:
                self.unknown.add(raw.source)
                return None
            reading = decoder.decode(raw.reading)
        return Sample(source=raw.source, t_ns=raw.t_ns, seq=raw.seq, reading=reading, failure=raw.failure)


class TapeWriter:
    """Appends samples to a file, flushed per line so that a killed session loses nothing. Never overwrites."""

    def __init__(self, path: Path, header: Header, codec: Codec) -> None:
        """Raises DataError if the file exists or can't be made."""
        try:
            self._file: BinaryIO = path.open("xb", buffering=0)
        except FileExistsError as error:
            raise DataError(f"{path} exists", "choose another name; a tape is never overwritten") from error
        except OSError as error:
            raise DataError(f"can't write {path}: {error.strerror or error}", "choose another place") from error
        try:
            self._file.write(codec.header_line(header))
        except OSError as error:
            self._file.close()
            path.unlink()  # made above and empty: in the way of the next try
            raise DataError(f"can't write {path}: {error.strerror or error}", "choose another place") from error
        self.path = path
        self.samples = 0
        self._codec = codec

    def write(self, sample: Sample) -> None:
        """Raises DataError if the disk refuses."""
        try:
            self._file.write(self._codec.line(sample))
        except OSError as error:
            message = f"recording stopped: {self.path}: {error.strerror or error}"
            raise DataError(message, f"{self.samples} samples are safe") from error
        self.samples += 1

    def close(self) -> None:
        self._file.close()


class Tape:
    """A tape opened for reading: its header and an index of (t_ns, offset, length) per line, in order."""

    def __init__(self, path: Path, codec: Codec) -> None:
        self.path = path
        self.codec = codec
        self.truncated = False
        self.index: list[tuple[int, int, int]] = []
        self._good: dict[str, list[int]] = {}
        self._failed: dict[str, list[int]] = {}
        try:
            self._file: BinaryIO = open_regular(path)
        except OSError as error:
            raise DataError(f"can't read {path}: {error.strerror or error}") from error
        try:
            self.header = codec.header(self._file.readline(LINE_MAX_BYTES), str(path))
            self._scan()
        except BaseException:
            self._file.close()
            raise

    @property
    def begin_ns(self) -> int:
        return self.header.begin_ns

    @property
    def end_ns(self) -> int:
        return max(self.begin_ns, self.index[-1][0]) if self.index else self.begin_ns

    def sample(self, at: int) -> Sample | None:
        """Sample number `at`, or None if its source is unknown or its line unreadable."""
        _, offset, length = self.index[at]
        self._file.seek(offset)
        try:
            return self.codec.sample(self._file.read(length))
        except msgspec.MsgspecError:
            return None

    def samples(self) -> Iterator[Sample]:
        for at in range(len(self.index)):
            sample = self.sample(at)
            if sample is not None:
                yield sample

    def leading_to(self, t_ns: int) -> tuple[list[int], int]:
        """The few line numbers whose fold equals that of all lines up to `t_ns`, and the next line's number."""
        end = bisect_right(self.index, t_ns, key=lambda line: line[0])
        kept: set[int] = set()
        for source in self._good.keys() | self._failed.keys():
            good = self._good.get(source, [])
            failed = self._failed.get(source, [])
            good = good[: bisect_left(good, end)][-HISTORY:]
            failed = failed[bisect_right(failed, good[-1]) if good else 0 : bisect_left(failed, end)]
            kept.update(good, failed[:1], failed[-1:])
        return sorted(kept), end

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Tape:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _scan(self) -> None:
        decoder = msgspec.json.Decoder(_Stamp)
        offset = self._file.tell()
        for line in iter(lambda: self._file.readline(LINE_MAX_BYTES), b""):
            try:
                stamp = decoder.decode(line)
            except msgspec.MsgspecError:
                self.truncated = True
            else:
                failed = bytes(stamp.failure) != b"null"
                (self._failed if failed else self._good).setdefault(stamp.source, []).append(len(self.index))
                self.index.append((stamp.t_ns, offset, len(line)))
            offset += len(line)
