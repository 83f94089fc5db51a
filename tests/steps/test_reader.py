"""The reader: every form a trace comes in gives the same figures; damage stays where it is and is said."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from decodetop.errors import TraceError
from decodetop.steps.analyse import analyse
from decodetop.steps.reading import StepsReport
from decodetop.steps.rescue import ns_of
from decodetop.steps.trace import read_trace
from support.kineto import STEP_US, Trace, decode


def everything(name: str) -> bool:
    return True


def figures(report: StepsReport) -> StepsReport:
    """Without what names the file."""
    return msgspec.structs.replace(report, ranks=tuple(msgspec.structs.replace(rank, file="") for rank in report.ranks))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> StepsReport:
    report = analyse([decode().write(tmp_path_factory.mktemp("plain") / "t.json")])
    (rank,) = report.ranks
    assert rank.period_us is not None and rank.period_us.representative == STEP_US
    assert rank.kinds_us["gemm"] == 200 and rank.kinds_us["attention"] == 100 and rank.kinds_us["norm"] == 50
    assert rank.kinds_us["sampling"] == 10 and rank.idle_us == 40
    assert (rank.steps.found, rank.steps.used, rank.kernels_per_step) == (6, 4, 4)
    return figures(report)


def compact(trace: Trace) -> bytes:
    return json.dumps(trace.value(), separators=(",", ":")).encode()


def two_members(trace: Trace) -> bytes:
    data = trace.text().encode()
    return gzip.compress(data[:3000]) + gzip.compress(data[3000:])


def strings_for_numbers(trace: Trace) -> bytes:
    for event in trace.events:
        event.update(ts=str(event["ts"]), dur=str(event["dur"]), tid=str(event["tid"]), pid=str(event["pid"]))
        if "correlation" in event.get("args", {}):
            event["args"]["correlation"] = str(event["args"]["correlation"])
    return compact(trace)


def absolute_times(trace: Trace) -> bytes:
    """Epoch us, where a float64 is good for a quarter of a us only; texts as Kineto wrote them before 2024."""
    text = compact(trace).decode()
    for event in trace.events:
        text = text.replace(f'"ts":{event["ts"]}', f'"ts":17{event["ts"]:.3f}')
    return text.encode()


def odd_values(trace: Trace) -> bytes:
    """What no JSON parser but Python's takes, in arguments nobody reads."""
    text = trace.text()
    return text.replace('"queued": 0', '"queued": NaN, "bandwidth": Infinity, "low": -inf, "path": "C:\\_x"').encode()


def control_characters(trace: Trace) -> bytes:
    return trace.text().replace('"queued": 0', '"note": "two\nlines\tand a tab"').encode()


def invalid_utf8(trace: Trace) -> bytes:
    return trace.text().encode().replace(b'"queued": 0', b'"note": "\xff\xfe\x80"')


def large_ids(trace: Trace) -> bytes:
    return trace.text().replace('"queued": 0', '"Comms Id": 18446744073709551615, "id": 99999999999999999999').encode()


def nested_boundaries(trace: Trace) -> bytes:
    """Objects inside arguments that look like the next event."""
    inner = '"queued": [{"a": 1}, {"name": "x"}, {"ts": 2}, {"ph": "M"}]'
    return trace.text().replace('"queued": 0', inner).encode()


FORMS: dict[str, Callable[[Trace], bytes]] = {
    "compact": compact,
    "byte order mark": lambda trace: b"\xef\xbb\xbf" + compact(trace),
    "bare list": lambda trace: json.dumps(trace.events).encode(),
    "sorted keys": lambda trace: json.dumps(trace.value(), sort_keys=True).encode(),
    "gzip": lambda trace: gzip.compress(trace.text().encode()),
    "two gzip members": two_members,
    "padded gzip": lambda trace: gzip.compress(trace.text().encode()) + b"\0" * 700,
    "strings for numbers": strings_for_numbers,
    "absolute times": absolute_times,
    "NaN and inf": odd_values,
    "control characters": control_characters,
    "invalid UTF-8": invalid_utf8,
    "large ids": large_ids,
    "nested objects": nested_boundaries,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(form: str, expected: StepsReport, tmp_path: Path) -> None:
    path = tmp_path / "t.trace"
    path.write_bytes(FORMS[form](decode()))
    found = figures(analyse([path]))
    if form == "bare list":  # there is nothing around the events
        found = msgspec.structs.replace(
            found, ranks=(msgspec.structs.replace(found.ranks[0], device_name="NVIDIA H200"),)
        )
    assert found == expected


def test_events_first_and_keys_behind(expected: StepsReport, tmp_path: Path) -> None:
    trace = decode()
    trace.footer = {
        **trace.header,
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "more": [{"id": 1}],
    }
    trace.header = {"traceName": "x"}
    report = analyse([trace.write(tmp_path / "t.json")])
    assert report.ranks[0].rank == 3 and report.ranks[0].device_name == "NVIDIA H200"
    assert report.ranks[0].kinds_us == expected.ranks[0].kinds_us
    assert report.ranks[0].coverage.problems == ()


def test_unknown_categories_and_metadata_among_the_events(expected: StepsReport, tmp_path: Path) -> None:
    trace = decode()
    for at in range(0, len(trace.events), 3):
        trace.events.insert(
            at, {"ph": "M", "name": "process_name", "pid": "", "tid": "", "ts": 1.0, "args": {"name": "x"}}
        )
        trace.events.insert(at, {"ph": "C", "cat": f"counter_{at % 5}", "name": "y", "ts": 1, "args": {"v": 2}})
        trace.events.insert(at, {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 5})
    report = analyse([trace.write(tmp_path / "t.json.gz")])
    assert report.ranks[0].kinds_us == expected.ranks[0].kinds_us
    assert report.ranks[0].unreadable_events == 0
    assert report.ranks[0].events == len(trace.events)


def test_a_category_that_begins_as_a_known_one_is_passed_over(tmp_path: Path) -> None:
    """In Kineto's own layout, where categories are told by their first bytes."""
    path = tmp_path / "t.json"
    expected = read_trace(CAST, everything)
    path.write_bytes(RECORDED_TEXT.replace(b'"cat": "cuda_runtime"', b'"cat": "cuda_runtime_x"', 1))
    trace = read_trace(path, everything)
    assert trace.events == expected.events
    calls, before = (sum(process.calls.count for process in one.processes) for one in (trace, expected))
    assert calls == before - 1


@pytest.mark.parametrize("end", ["}", "},", "},\n", "},\n  {"])
def test_a_file_cut_between_two_events_is_said_to_be_cut(end: str, tmp_path: Path) -> None:
    """What is there decodes; only the bracket is missing."""
    text = decode(40).text()
    path = tmp_path / "t.json"
    for at in (3, 150, 238):
        events = text.split("},\n  {")[: at + 1]
        path.write_text("},\n  {".join(events) + end)
        trace = read_trace(path, everything)
        assert trace.damage == ["the file ends inside the event list: it was cut short or is still being written"]
    path.write_text(text)
    assert read_trace(path, everything).damage == []


def test_merged_ranks_are_told_apart(expected: StepsReport, tmp_path: Path) -> None:
    """One file of two ranks, pids as strings; their correlations are the same numbers."""
    first = decode(trace=Trace(pid="[TP00] 251", device="[TP00] 0"))
    second = decode(trace=Trace(pid="[TP01] 252", device="[TP01] 1"))
    for event in second.events:
        event["dur"] = round(event["dur"] * (0.5 if event["cat"] == "kernel" else 1), 3)
    first.events = [one for pair in zip(first.events, second.events, strict=True) for one in pair]
    ranks = analyse([first.write(tmp_path / "merged.json")]).ranks
    assert [rank.rank for rank in ranks] == [0, 1]
    assert ranks[0].kinds_us == expected.ranks[0].kinds_us
    assert ranks[1].kinds_us["gemm"] == 100


def test_one_bad_event_costs_one_event(expected: StepsReport, tmp_path: Path) -> None:
    """An unescaped quote in one kernel's name: it is counted, its neighbours stay."""
    text = decode().text()
    bad = text.replace('"_fwd_grouped_kernel_stage1"', '"a "quoted" name"', 1)
    path = tmp_path / "t.json"
    path.write_text(bad)
    (rank,) = analyse([path]).ranks
    assert rank.unreadable_events == 1
    assert any("1 of " in problem and "unreadable" in problem for problem in rank.coverage.problems)
    assert rank.coverage.ok and rank.kinds_us == expected.ranks[0].kinds_us, "the damage is in the first step"


def test_a_file_cut_short_keeps_its_whole_steps(expected: StepsReport, tmp_path: Path) -> None:
    data = decode(12).text().encode()
    path = tmp_path / "t.json"
    path.write_bytes(data[: len(data) * 2 // 3])
    (rank,) = analyse([path]).ranks
    assert rank.kinds_us == expected.ranks[0].kinds_us
    assert any("cut short" in problem for problem in rank.coverage.problems)
    zipped = tmp_path / "t.json.gz"
    zipped.write_bytes(gzip.compress(data)[:-200])
    (rank,) = analyse([zipped]).ranks
    assert any("gzip data ends early" in problem for problem in rank.coverage.problems)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "is empty"),
        (b"hello, this is no trace", "no traceEvents"),
        (b'{"requests": [1, 2, 3]}', "no traceEvents"),
        (b"PK\x03\x04 zip", "zip archive"),
        (b"\x28\xb5\x2f\xfd zstd", "zstd"),
        (gzip.compress(b"not json", mtime=0), "no traceEvents"),
        (gzip.compress(b"{}", mtime=0)[:8], "no traceEvents"),
        (b"\x1f\x8b\x08 broken", "no traceEvents"),
    ],
    ids=["empty", "words", "other json", "zip", "zstd", "gzip of words", "cut gzip", "broken gzip"],
)
def test_what_is_no_trace_is_said(content: bytes, word: str, tmp_path: Path) -> None:
    path = tmp_path / "x.trace.json.gz"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=word):
        read_trace(path, everything)
    report = analyse([path])
    assert report.ranks == () and word in report.errors[0]


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.json", tmp_path):
        with pytest.raises(TraceError, match="can't read") as caught:
            read_trace(path, everything)
        assert caught.value.hint


def test_a_good_rank_survives_a_bad_one(expected: StepsReport, tmp_path: Path) -> None:
    good = decode().write(tmp_path / "x-TP-0.trace.json.gz")
    bad = tmp_path / "x-TP-1.trace.json.gz"
    bad.write_bytes(b"nothing of the kind")
    report = analyse([good, bad])
    assert len(report.ranks) == 1 and len(report.errors) == 1
    assert report.ranks[0].kinds_us == expected.ranks[0].kinds_us


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("5166514835486.228", 5166514835486228),
        ("1712195495519689.123", 1712195495519689123),
        ("12", 12000),
        ("-1.5", -1500),
        ('"7.25"', 7250),
        ("1.2345", 1234),
        ("1.2355", 1236),
        ("1e3", 1_000_000),
        ("NaN", None),
        ("Infinity", None),
        ('"soon"', None),
        ("null", None),
        ("1e300", None),
        ("99999999999999999999", None),
        ("", None),
    ],
)
def test_times_are_exact(text: str, ns: int | None) -> None:
    assert ns_of(msgspec.Raw(text.encode())) == ns


def test_impossible_times_are_left_out(tmp_path: Path) -> None:
    trace = decode()
    trace.gpu("overflow", 100, 8 * 24 * 3600 * 1e6, 77)
    trace.events[-2:-2] = [{**trace.events[-1], "dur": -5.0}]
    (rank,) = analyse([trace.write(tmp_path / "t.json")]).ranks
    assert any("2 GPU events had impossible times" in problem for problem in rank.coverage.problems)
    assert rank.period_us is not None and rank.period_us.representative == STEP_US


def test_a_bomb_of_zeros_stays_small(tmp_path: Path) -> None:
    """200 MB of blanks in 200 KB: neither much memory nor a trace."""
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"x": "' + b" " * 200_000_000, 1))
    tracemalloc.start()
    with pytest.raises(TraceError):
        read_trace(path, everything)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


SAMPLE = decode(8).text().encode()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_never_crashes_the_reader(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes overwritten, removed, doubled, cut: a report or a word, and never more events than there were."""
    text = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(0, len(text) - 1)))
        what = data.draw(st.sampled_from(["put", "drop", "double", "cut"]))
        if what == "put":
            junk = data.draw(st.binary(min_size=1, max_size=12))
            text[at : at + len(junk)] = junk
        elif what == "drop":
            del text[at : at + data.draw(st.integers(1, 400))]
        elif what == "double":
            text[at:at] = text[at : at + data.draw(st.integers(1, 400))]
        elif len(text) > 1000:
            del text[max(500, at) :]
    path = tmp_path / "t.json"
    path.write_bytes(text)
    report = analyse([path])
    assert report.ranks or report.errors
    for rank in report.ranks:
        assert rank.coverage.ok or rank.coverage.problems
        if rank.period_us is not None:
            total = sum(round(us * 1000) for us in rank.kinds_us.values())
            assert total == round(rank.period_us.representative * 1000)


CAST = Path(__file__).parents[1] / "captures" / "cast_full.trace.json.gz"
RECORDED = CAST.read_bytes()
RECORDED_TEXT = gzip.decompress(RECORDED)
SWAPS = (
    (b'"ts": ', b'"ts": "'),
    (b'"tid": ', b'"tid": [7], "x": '),
    (b'"dur": ', b'"dur": -'),
    (b'"args": {', b'"args": 7, "x": {'),
)


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    places=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 7)), min_size=1, max_size=8),
    cut=st.one_of(st.none(), st.floats(0.01, 1)),
    packed=st.booleans(),
    swap=st.one_of(st.none(), st.sampled_from(SWAPS)),
)
@example(places=[(0.46084329788823764, 0)], cut=None, packed=True, swap=None)  # halved without end
@example(places=[(0.25, 6)], cut=None, packed=True, swap=None)
def test_a_damaged_recording_is_a_report_or_a_word(
    tmp_path: Path,
    places: list[tuple[float, int]],
    cut: float | None,
    packed: bool,
    swap: tuple[bytes, bytes] | None,
) -> None:
    """Bits flipped in the text or in its gzip, the file cut, values of another type: parts still sum to the step."""
    text = RECORDED_TEXT
    if swap is not None:
        at = int(places[0][0] * len(text))
        text = text[:at] + text[at:].replace(*swap, 40)
    data = bytearray(RECORDED if packed else text)
    for share, bit in places:
        data[min(int(share * len(data)), len(data) - 1)] ^= 1 << bit
    path = tmp_path / "t.json.gz"
    path.write_bytes(data if cut is None else data[: int(cut * len(data))])
    report = analyse([path])
    assert report.ranks or report.errors
    for rank in report.ranks:
        assert rank.coverage.ok or rank.coverage.problems
        if rank.period_us is not None:
            total = sum(round(us * 1000) for us in rank.kinds_us.values())
            assert total == round(rank.period_us.representative * 1000)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=600))
def test_any_bytes_are_a_report_or_a_word(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "t"
    for content in (junk, b'{"traceEvents": [' + junk, gzip.compress(b"[" + junk)):
        path.write_bytes(content)
        report = analyse([path])
        assert report.errors or report.ranks


def test_garbage_between_boundaries_takes_no_hours(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'{"traceEvents": [' + b'{"ph": {"x": [},' * 60_000 + b"]}")
    report = analyse([path])
    assert report.ranks == () and "unreadable" in report.errors[0]


def test_the_order_of_events_in_the_file_does_not_matter(expected: StepsReport, tmp_path: Path) -> None:
    trace = decode()
    random.Random(1).shuffle(trace.events)
    assert figures(analyse([trace.write(tmp_path / "t.json")])) == expected
