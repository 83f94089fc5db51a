"""The tape: NDJSON, a header line and then one line per sample; also what `stream` prints and a pipe reads.

Readable by older and newer versions: unknown fields are ignored, a lane of an unknown source is skipped and named,
a truncated last line is tolerated and said. A tape's line holds a whole reading (once a minute a source) or `change`:
how it differs from the last whole one, so any line can be read with one other. `stream` prints whole readings only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from decodetop.core.change import change, changed
from decodetop.core.clock import SECOND_NS
from decodetop.core.decode import NotDecoded, decode, decode_by
from decodetop.core.encode import encode
from decodetop.core.regular import open_regular
from decodetop.core.sample import ClockReading, Failure, Header, Notice, Reading, Sample
from decodetop.core.source import RecordReading
from decodetop.core.state import HISTORY
from decodetop.errors import DataError

LINE_MAX_BYTES = 16 << 20
"""A longer line is not one of ours."""

TAPE_SCHEMA = 2
"""1 had whole readings only; this version reads both."""

WHOLE_NS = 60 * SECOND_NS
"""How often a source's reading is written whole."""

_CORE: Mapping[str, type[Reading]] = {"clock": ClockReading, "notice": Notice, "record": RecordReading}


_NULL = msgspec.Raw(b"null")


class _Line(msgspec.Struct):
    source: str
    t_ns: int
    seq: int = 0
    reading: msgspec.Raw = _NULL
    change: msgspec.Raw = _NULL
    failure: Failure | None = None


class _Stamp(msgspec.Struct):
    source: str
    t_ns: int
    change: msgspec.Raw = _NULL
    failure: msgspec.Raw = _NULL


class _Changed(msgspec.Struct):
    source: str
    t_ns: int
    seq: int
    change: dict[str, Any]


class Codec:
    """Turns samples into lines and back. `readings` says which type each source's reading has."""

    def __init__(self, readings: Mapping[str, type[Reading]]) -> None:
        self._line = msgspec.json.Decoder(_Line)
        self._decoders = {name: msgspec.json.Decoder(kind) for name, kind in {**_CORE, **readings}.items()}
        self.unknown: set[str] = set()

    def header_line(self, header: Header) -> bytes:
        return encode(header) + b"\n"

    def line(self, sample: Sample) -> bytes:
        return encode(sample) + b"\n"

    def change_line(self, sample: Sample, whole: Any) -> tuple[bytes, Any]:
        """The line that tells a reading by its change from `whole` (None: whole), and the reading as plain values."""
        assert sample.reading is not None
        plain = decode(encode(sample.reading))
        if whole is None:
            return self.line(sample), plain
        by = _Changed(sample.source, sample.t_ns, sample.seq, change(whole, plain))
        return encode(by) + b"\n", plain

    def header(self, line: bytes, where: str) -> Header:
        """Raises DataError if the line is no header, or one of a format this version can't read."""
        try:
            header = decode(line, Header)
        except NotDecoded as error:
            hint = "a tape starts with a line that `decodetop record` wrote"
            raise DataError(f"{where} is not a decodetop tape: {error}", hint) from error
        if header.kind != "decodetop-tape":
            raise DataError(f"{where} is not a decodetop tape but {header.kind!r}")
        if header.schema > TAPE_SCHEMA:
            message = f"{where} has tape schema {header.schema}; this decodetop reads up to {TAPE_SCHEMA}"
            raise DataError(message, f"it was written by decodetop {header.version}: upgrade to read it")
        return header

    def plain(self, line: bytes) -> Any:
        """The reading of a whole line as plain values. Raises NotDecoded."""
        return decode(decode_by(self._line, line).reading)

    def sample(self, line: bytes, whole: Any = None) -> Sample | None:
        """The sample of a line, or None (and its source in `unknown`) if this version doesn't know the source.

        `whole`: for a line that tells a change, what it changes. Raises NotDecoded for a line that is no
        sample.
        """
        raw = decode_by(self._line, line)
        reading: Reading | None = None
        if bytes(raw.reading) != b"null" or bytes(raw.change) != b"null":
            decoder = self._decoders.get(raw.source)
            if decoder is None:
                self.unknown.add(raw.source)
                return None
            text: bytes | msgspec.Raw = raw.reading
            if bytes(raw.change) != b"null":
                try:
                    text = encode(changed(whole, decode(raw.change)))
                except (ValueError, RecursionError) as error:
                    raise NotDecoded(str(error)) from error
            reading = decode_by(decoder, text)
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
            self._file.write(codec.header_line(msgspec.structs.replace(header, schema=TAPE_SCHEMA)))
        except OSError as error:
            self._file.close()
            path.unlink()  # made above and empty: in the way of the next try
            raise DataError(f"can't write {path}: {error.strerror or error}", "choose another place") from error
        self.path = path
        self.samples = 0
        self._codec = codec
        self._whole: dict[str, tuple[int, Any]] = {}

    def write(self, sample: Sample) -> None:
        """Raises DataError if the disk refuses."""
        try:
            self._file.write(self._line(sample))
        except OSError as error:
            message = f"recording stopped: {self.path}: {error.strerror or error}"
            raise DataError(message, f"{self.samples} samples are safe") from error
        self.samples += 1

    def _line(self, sample: Sample) -> bytes:
        """A reading by what changed, unless it is time to write it whole, or that is no longer."""
        if sample.reading is None:
            return self._codec.line(sample)
        since_ns, whole = self._whole.get(sample.source, (0, None))
        if sample.t_ns - since_ns >= WHOLE_NS or sample.t_ns < since_ns:
            whole = None
        line, plain = self._codec.change_line(sample, whole)
        if whole is not None and len(line) * 2 > len(self._codec.line(sample)):
            line, whole = self._codec.line(sample), None
        if whole is None:
            self._whole[sample.source] = sample.t_ns, plain
        return line

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
        self._bases: dict[int, tuple[str, int]] = {}
        """For a line that tells a change: its source, and the line it changes."""
        self._wholes: dict[str, tuple[int, Any]] = {}
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
        try:
            return self.codec.sample(self._read(at), self._whole_for(at))
        except NotDecoded:
            return None

    def _read(self, at: int) -> bytes:
        _, offset, length = self.index[at]
        self._file.seek(offset)
        return self._file.read(length)

    def _whole_for(self, at: int) -> Any:
        """What line `at` changes; None if it is whole. Raises NotDecoded."""
        base = self._bases.get(at)
        if base is None:
            return None
        source, line = base
        known = self._wholes.get(source)
        if known is None or known[0] != line:
            known = self._wholes[source] = line, self.codec.plain(self._read(line))
        return known[1]

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
        whole: dict[str, int] = {}
        offset = self._file.tell()
        for line in iter(lambda: self._file.readline(LINE_MAX_BYTES), b""):
            try:
                stamp = decode_by(decoder, line)
            except NotDecoded:
                self.truncated = True
            else:
                failed = bytes(stamp.failure) != b"null"
                if bytes(stamp.change) != b"null":
                    self._bases[len(self.index)] = stamp.source, whole.get(stamp.source, 0)
                elif not failed:
                    whole[stamp.source] = len(self.index)
                (self._failed if failed else self._good).setdefault(stamp.source, []).append(len(self.index))
                self.index.append((stamp.t_ns, offset, len(line)))
            offset += len(line)
