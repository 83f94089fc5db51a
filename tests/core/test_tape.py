"""Tapes: what goes in comes out, whatever part of it; damage and foreign lanes are said, never fatal."""

import errno
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Failure, Header, Sample
from decodetop.core.state import fold_all
from decodetop.core.tape import Codec, Tape, TapeWriter
from decodetop.errors import DataError
from support.probes import HEADER, Count

CODEC_TYPES = {"a": Count, "b": Count}


def write(path: Path, samples: list[Sample]) -> Path:
    writer = TapeWriter(path, HEADER, Codec(CODEC_TYPES))
    for sample in samples:
        writer.write(sample)
    writer.close()
    return path


def sample(n: int, source: str = "a", failed: bool = False) -> Sample:
    t_ns = n * SECOND_NS
    if failed:
        return Sample(source=source, t_ns=t_ns, seq=n, failure=Failure(kind="stalled", message=f"late {n}"))
    return Sample(source=source, t_ns=t_ns, seq=n, reading=Count(n=n, word="[/markup] é \x00"))


def test_a_tape_gives_back_the_samples(tmp_path: Path) -> None:
    samples = [sample(0), sample(1, "b"), sample(2, failed=True), sample(3)]
    tape = Tape(write(tmp_path / "t", samples), Codec(CODEC_TYPES))
    assert tape.header == msgspec.structs.replace(HEADER, schema=2) and not tape.truncated
    assert list(tape.samples()) == samples
    assert tape.end_ns == 3 * SECOND_NS


def test_a_tape_is_never_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "t", [sample(0)])
    before = path.read_bytes()
    with pytest.raises(DataError, match="exists"):
        TapeWriter(path, HEADER, Codec(CODEC_TYPES))
    assert path.read_bytes() == before


def test_an_unwritable_place_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't write"):
        TapeWriter(tmp_path / "no" / "t", HEADER, Codec(CODEC_TYPES))


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_truncated_end_loses_only_itself(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "t", [sample(n) for n in range(5)])
    path.write_bytes(path.read_bytes()[:-cut])
    tape = Tape(path, Codec(CODEC_TYPES))
    expected = 5 if cut == 1 else 4  # cutting the newline alone loses nothing
    assert len(list(tape.samples())) == expected
    assert tape.truncated == (cut != 1)


def test_a_foreign_lane_is_skipped_and_named(tmp_path: Path) -> None:
    codec = Codec({"a": Count})
    tape = Tape(write(tmp_path / "t", [sample(0), sample(1, "b"), sample(2)]), codec)
    assert [one.seq for one in tape.samples()] == [0, 2]
    assert codec.unknown == {"b"}


def test_fields_of_a_newer_version_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "t"
    line = b'{"source":"a","t_ns":1,"seq":0,"reading":{"n":4,"brand_new":[1]},"failure":null,"more":1}\n'
    path.write_bytes(msgspec.json.encode(HEADER) + b"\n" + line)
    (only,) = Tape(path, Codec(CODEC_TYPES)).samples()
    assert only.reading == Count(n=4)


@pytest.mark.parametrize(
    ("first", "word"),
    [
        (b"", "not a decodetop tape"),
        (b'{"a":' * 50_000, "not a decodetop tape"),
        (b"hello\n", "not a decodetop tape"),
        (b'{"traceEvents":[]}\n', "not a decodetop tape"),
        (b'{"schema":99,"kind":"decodetop-tape","version":"9","host":"h","started_wall_ns":0}\n', "schema 99"),
        (b'{"schema":1,"kind":"other","version":"9","host":"h","started_wall_ns":0}\n', "'other'"),
    ],
)
def test_what_is_no_tape_is_refused_in_one_line(tmp_path: Path, first: bytes, word: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(first)
    with pytest.raises(DataError, match=word) as error:
        Tape(path, Codec(CODEC_TYPES))
    assert "\n" not in error.value.message


def test_a_missing_tape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't read"):
        Tape(tmp_path / "none", Codec(CODEC_TYPES))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), min_size=1, max_size=60),
    st.integers(-1, 61),
)
def test_leading_to_folds_to_the_same_state(tmp_path_factory: pytest.TempPathFactory, kinds: object, at: int) -> None:
    samples = [sample(n, source, failed) for n, (source, failed) in enumerate(kinds)]  # type: ignore[arg-type,var-annotated]
    path = tmp_path_factory.mktemp("tape") / "t"
    tape = Tape(write(path, samples), Codec(CODEC_TYPES))
    lines, after = tape.leading_to(at * SECOND_NS)
    whole = fold_all(HEADER, samples[: at + 1])
    few = fold_all(HEADER, [one for line in lines if (one := tape.sample(line))])
    assert {**few.lanes} == {**whole.lanes}
    assert after == max(0, min(at + 1, len(samples)))


def test_leading_to_reads_few_lines_of_a_long_tape(tmp_path: Path) -> None:
    samples = [sample(n, failed=n > 400) for n in range(1000)]
    tape = Tape(write(tmp_path / "t", samples), Codec(CODEC_TYPES))
    lines, _ = tape.leading_to(999 * SECOND_NS)
    few = fold_all(HEADER, [one for line in lines if (one := tape.sample(line))])
    assert few.lanes["a"] == fold_all(HEADER, samples).lanes["a"]
    assert len(lines) < 200


def test_a_full_disk_leaves_no_empty_tape(tmp_path: Path) -> None:
    class Full(Codec):
        def header_line(self, header: Header) -> bytes:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match="No space left"):
        TapeWriter(tmp_path / "x.tape", HEADER, Full({}))
    assert list(tmp_path.iterdir()) == []


def test_an_unchanged_reading_is_written_whole_once_a_minute(tmp_path: Path) -> None:
    samples = [
        Sample(source="a", t_ns=n * SECOND_NS, seq=n, reading=Count(n=n % 7, word="the same long words " * 5))
        for n in range(150)
    ]
    path = write(tmp_path / "t", samples)
    lines = path.read_bytes().splitlines()[1:]
    assert [n for n, line in enumerate(lines) if b"the same" in line] == [0, 60, 120]
    tape = Tape(path, Codec(CODEC_TYPES))
    assert list(tape.samples()) == samples
    assert [tape.sample(at) for at in (149, 3, 61, 59)] == [samples[at] for at in (149, 3, 61, 59)]
    assert tape.header.schema == 2


def test_a_damaged_whole_reading_costs_its_minute_and_no_more(tmp_path: Path) -> None:
    samples = [
        Sample(source="a", t_ns=n * SECOND_NS, seq=n, reading=Count(n=n, word="the same long words " * 5))
        for n in range(70)
    ]
    path = write(tmp_path / "t", samples)
    first, whole, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, b"#" * (len(whole) - 1) + b"\n", *rest]))
    tape = Tape(path, Codec(CODEC_TYPES))
    assert tape.truncated
    assert list(tape.samples()) == samples[60:]
