"""The reader by columns: it takes what Kineto writes, agrees with the decoder of any JSON, and leaves it the rest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop.steps.chunks import Chunks
from decodetop.steps.inflate import TraceBytes
from decodetop.steps.layout import Layout
from decodetop.steps.trace import read_trace

CAPTURES = Path(__file__).parents[1] / "captures"
RAW = sorted(
    path for path in CAPTURES.rglob("*trace.json.gz") if "no_python" not in path.name and "async" not in path.name
)


def _rows(path: Path) -> list[Any]:
    trace = read_trace(path, lambda _: True)
    found: list[Any] = [trace.events, trace.unreadable]
    for process in trace.processes:
        found.append(sorted((note.name, note.start, note.end, trace.tracks[note.track]) for note in process.notes))
        for table in (process.gpu, process.calls):
            rows = [row for part in range(table.partitions) for row in table.read(part).tolist()]
            found.append(sorted((*row[:3], trace.names[row[3]], trace.tracks[row[4]]) for row in rows))
    trace.close()
    return found


@pytest.mark.parametrize("path", RAW, ids=lambda path: path.parent.name + path.name[-22:-14])
def test_recordings_are_read_by_columns_and_agree_with_the_decoder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = TraceBytes(path)
    chunks = Chunks(source, str(path))
    layout = Layout()
    taken = [layout.read(text) is not None for text in chunks if not chunks.last]
    source.close()
    assert all(taken)
    by_columns = _rows(path)
    monkeypatch.setattr(Layout, "read", lambda *_: None)
    assert by_columns == _rows(path)


US = st.integers(0, 10**15 - 1).map(lambda ns: f"{ns // 1000}.{ns % 1000:03}")
DURATION = st.integers(0, 10**8 - 1).map(lambda ns: f"{ns // 1000}.{ns % 1000:03}")


@given(US, DURATION, st.integers(0, 10**15 - 1))
def test_numbers_of_any_width_are_exact(ts: str, duration: str, correlation: int) -> None:
    text = _event(ts, duration, str(correlation))
    found = Layout().read(text)
    assert found is not None
    assert found.columns.start.tolist() == [int(ts.replace(".", ""))]
    assert found.columns.duration.tolist() == [int(duration.replace(".", ""))]
    assert found.columns.correlation.tolist() == [correlation]


@pytest.mark.parametrize(
    ("ts", "duration", "correlation"),
    [
        ("12.3456", "1.000", "7"),
        ("12", "1.000", "7"),
        ("-12.345", "1.000", "7"),
        ("12.345", "1.0000", "7"),
        ("12.345", "1e3", "7"),
        ("12.345", "NaN", "7"),
        ("12.345", "1.000", "-7"),
        ("12.345", "1.000", "7.5"),
        ("12.345", "1.000", '"7"'),
        ("12.345", "1.000", "18446744073709551615"),
        ('"12.345"', "1.000", "7"),
        ("12.3a5", "1.000", "7"),
    ],
)
def test_other_numbers_are_left_to_the_decoder(ts: str, duration: str, correlation: str) -> None:
    assert Layout().read(_event(ts, duration, correlation)) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"ph": "X", "cat": "kernel"', b'"cat": "kernel", "ph": "X"'),
        (b'"ph": "X", "cat": "kernel"', b'"ph":"X","cat":"kernel"'),
        (b'    "ph": "X", "cat": "kernel"', b'    "name": "k", "ph": "X", "cat": "kernel"'),
        (b'"name": "k"', b'"name": "k\n  "'),
        (b'"name": "k"', b'"name": "\xff"'),
        (b'"kernel"', b'"cuda_runtime_of_another_kind"'),
        (b'"kernel"', b'"gpu_memcpies"'),
        (b'"tid": 7,', b'"tid": 7.5,'),
        (b'"tid": 7,', b'"tid": 7, "more": 1,'),
        (b'"ts"', b'"st"'),
        (b'"ts": ', b'"ts":\0'),
        (b'"ts": ', b'"ts"; '),
        (b'"dur": ', b'"dur":\0'),
        (b'"correlation"', b'"carrelation"'),
        (b'"correlation"', b'"correlatiun"'),
        (b"\n  }", b""),
        (b"\n  {", b""),
        (b"\n", b" "),
    ],
)
def test_other_text_is_left_to_the_decoder(old: bytes, new: bytes) -> None:
    text = _event("12.345", "1.000", "7")
    assert Layout().read(text) is not None
    assert old in text
    assert Layout().read(text.replace(old, new)) is None


def test_names_are_decoded() -> None:
    layout = Layout()
    assert layout.read(_event("12.345", "1.000", "7", name=r"a\u00e9\"b\"")) is not None
    assert layout.heads[0].name == 'aé"b"'


TIMES = re.compile(rb'"ts": (\d+\.\d{3}), "dur": (\d+\.\d{3}),')


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_damage_gives_no_number_that_is_not_in_the_text(changes: list[tuple[int, int]]) -> None:
    events = [_event(f"12.34{digit}", "1.000", "7").decode()[1:-1] for digit in range(5)]
    text = bytearray(("[" + ",".join(events) + "]").encode())
    assert Layout().read(bytes(text)) is not None
    for place, byte in changes:
        text[place % len(text)] = byte
    found = Layout().read(bytes(text))
    if found is not None:
        there = {tuple(int(number.replace(b".", b"")) for number in times) for times in TIMES.findall(text)}
        assert set(zip(found.columns.start.tolist(), found.columns.duration.tolist(), strict=True)) <= there


def _event(ts: str, duration: str, correlation: str, name: str = "k") -> bytes:
    head = f'"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7,'
    args = f'"args": {{\n      "queued": 0, "stream": 7, "correlation": {correlation}\n    }}'
    return f'[\n  {{\n    {head}\n    "ts": {ts}, "dur": {duration},\n    {args}\n  }}]'.encode()
