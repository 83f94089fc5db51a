"""Server-sent events to the letter: every framing, and reads that end anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop.bench.sse import EVENT_MAX_BYTES, Event, SseDecoder
from decodetop.errors import RequestError

ODD = "\u2028a\u2029b\u0085c\x0b\x0c\x1cd"

FRAMINGS = {
    "LF": (b"data: a\n\ndata: b\n\n", ["a", "b"]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
    "CR": (b"data: a\r\rdata: b\r\r", ["a", "b"]),
    "mixed line ends": (b"data: a\r\n\ndata: b\n\r\n", ["a", "b"]),
    "no space after the colon": (b"data:a\n\n", ["a"]),
    "only the first space is dropped": (b"data:  a \n\n", [" a "]),
    "several data lines": (b"data: a\ndata: b\n\n", ["a\nb"]),
    "an empty data line": (b"data: a\ndata\ndata: b\n\n", ["a\n\nb"]),
    "data without a value": (b"data\n\n", [""]),
    "a comment between events": (b"data: a\n\n: ping\n\ndata: b\n\n", ["a", "b"]),
    "a comment inside an event": (b"data: a\n: ping\ndata: b\n\n", ["a\nb"]),
    "other fields": (b"id: 7\nretry: 10\nnonsense: x\ndata: a\n\n", ["a"]),
    "an event without data is none": (b"event: ping\n\ndata: a\n\n", ["a"]),
    "more blank lines": (b"\n\ndata: a\n\n\n\ndata: b\n\n", ["a", "b"]),
    "the last event was not completed": (b"data: a\n\ndata: b\n", ["a"]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
    "a second byte order mark is text": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", ["b"]),
    "a space before the line end": (b'data: {"x":1} \n\n', ['{"x":1} ']),
    "separators of Unicode are text": (f"data: {ODD}\n\n".encode(), [ODD]),
    "colons in the value": (b"data: a: b\n\n", ["a: b"]),
    "DONE": (b"data: [DONE]\n\n", ["[DONE]"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMINGS)
def test_framing_whole_and_byte_by_byte(name: str) -> None:
    stream, wanted = FRAMINGS[name]
    assert [event.data.decode() for event in SseDecoder().feed(stream, 5)] == wanted
    decoder = SseDecoder()
    single = [event for byte in stream for event in decoder.feed(bytes([byte]), 5)]
    assert [event.data.decode() for event in single] == wanted


@given(st.sampled_from(sorted(FRAMINGS)), st.lists(st.integers(0, 80), max_size=6))
def test_reads_may_end_anywhere(name: str, cuts: list[int]) -> None:
    stream, wanted = FRAMINGS[name]
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    decoder = SseDecoder()
    events = [event for a, b in pairwise(places) for event in decoder.feed(stream[a:b], 0)]
    assert [event.data.decode() for event in events] == wanted


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_give_the_same_events_in_any_pieces(stream: bytes, size: int) -> None:
    whole = SseDecoder().feed(stream, 0)
    decoder = SseDecoder()
    pieces = [event for at in range(0, len(stream), size) for event in decoder.feed(stream[at : at + size], 0)]
    assert pieces == whole


def test_an_event_has_the_stamp_of_the_read_that_completed_it() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a", 1) == []
    assert decoder.inside_event
    assert decoder.feed(b"\n", 2) == []
    assert decoder.feed(b"\ndata: b\n\nda", 3) == [Event(b"a", 3), Event(b"b", 3)]
    assert decoder.feed(b"ta: c\r", 4) == []
    assert decoder.feed(b"\n\r", 5) == [Event(b"c", 5)]
    assert decoder.feed(b"\n", 6) == []
    assert not decoder.inside_event


def test_event_names() -> None:
    events = SseDecoder().feed(b"event: error\ndata: x\n\ndata: y\n\n", 0)
    assert [(event.kind, event.data) for event in events] == [("error", b"x"), ("message", b"y")]


def test_utf8_split_inside_a_character() -> None:
    stream = "data: ŝ→😀\n\n".encode()
    for cut in range(len(stream)):
        decoder = SseDecoder()
        events = decoder.feed(stream[:cut], 0) + decoder.feed(stream[cut:], 1)
        assert [event.data.decode() for event in events] == ["ŝ→😀"]


def test_an_endless_event_is_refused_and_long_streams_of_short_ones_are_not() -> None:
    part = b"x" * (EVENT_MAX_BYTES // 4)
    decoder = SseDecoder()
    with pytest.raises(RequestError, match="longer than"):
        for _ in range(6):
            decoder.feed(b"data: " + part + b"\n", 0)
    patient = SseDecoder()
    half = b"data: " + b"x" * (EVENT_MAX_BYTES // 3)
    for _ in range(5):  # a boundary is never clean: each read holds an end and the next beginning
        patient.feed(half, 0)
        assert len(patient.feed(b"\n\n", 0)) == 1
