"""Reads a chunk by columns where it is laid out as Kineto lays it out: whole arrays of events instead of one by one.

libkineto (output_json.cpp) writes an event as lines: `  {`, then `    "ph": "X", "cat": .., "name": .., "pid": ..,
"tid": ..,` as one, `    "ts": N.ddd, "dur": N.ddd,`, the arguments, `  },`. All that is used is checked, down to each
digit; where anything is otherwise the chunk is left to the decoders that read any JSON. The rest is not looked at.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
"""Eight bytes of text each, the first in the lowest place."""

HEADS_MAX_BYTES = 8 << 20
"""First lines known by heart; a trace has some hundreds of them."""
OFFSETS_MAX = 64
"""Places of the correlation in its line that are tried; they depend on the width of the numbers before it."""

_WIDE = 8
_US_DIGITS, _NS_DIGITS = 5, 3
"""A word holds so many digits before and after the point."""
_MICROSECONDS_MAX_DIGITS = 15
"""In ns they are below 2^63."""


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


_PHASE, _NAME = _word(b'    "ph"'), _word(b'    "nam')
_OTHER_PHASE, _COMPLETE, _CATEGORY = _word(b': "'), _word(b': "X", "'), _word(b'"cat": "')
_TS, _TS_ENDS, _DUR = _word(b'    "ts"'), _word(b'  "ts": '), _word(b', "dur":')
_CORR, _ELATION = _word(b'"correla'), _word(b'ation": ')
_EVENTS = [_word(one) for one in (b'kernel",', b"gpu_memc", b"gpu_mems", b"cuda_run", b"cuda_dri")]
_NOTES = [_word(one) for one in (b"user_ann", b"gpu_user")]
_CATEGORY_AT = len('    "ph": "X", "cat": "')
_TS_AT, _DUR_AT, _CORRELATION_AT = len('    "ts": '), len(', "dur": '), len('"correlation": ')

_ZEROS, _POINTS, _TOPS = _word(b"0" * _WIDE), _word(b"\0\0\0\0\0.\0\0"), _word(b"\x80" * _WIDE)
_KEEP = np.array([~((1 << 8 * cleared) - 1) & ((1 << 64) - 1) for cleared in range(_WIDE)] + [0], np.uint64)
"""Masks that clear the first n bytes."""
_FILL = ~_KEEP & _ZEROS
_NS_MASK = _KEEP[_US_DIGITS]
_US_MASK = ~_NS_MASK


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the first line of an event says."""

    ph: Literal["X"]
    cat: str
    name: str
    pid: int | str
    tid: int | str


class Columns(NamedTuple):
    """GPU events and calls in the order of the file; times in ns, `head` an index into `Layout.heads`."""

    start: Ints
    duration: Ints
    correlation: Ints
    head: Ints


class Found(NamedTuple):
    """What a chunk holds: `notes` is a JSON list of its annotations."""

    events: int
    columns: Columns
    notes: bytes


class _Strange(Exception):
    """The text is laid out otherwise."""


def _check(holds: Any) -> None:
    if not holds:
        raise _Strange


class Layout:
    """`heads` are the first lines met so far."""

    def __init__(self) -> None:
        self.heads: list[Head] = []
        self._numbers: dict[bytes, int] = {}
        self._room = HEADS_MAX_BYTES
        self._offsets: Ints = np.empty(0, np.int64)

    def read(self, text: bytes) -> Found | None:
        """None where the chunk is not laid out so, whatever is the matter."""
        try:
            return self._read(text)
        except (_Strange, msgspec.MsgspecError, ValueError, IndexError, RecursionError):
            return None

    def _read(self, text: bytes) -> Found:
        page = _Page(text)
        wanted, notes = page.wanted()
        if not len(wanted):
            nothing = np.empty(0, np.int64)
            return Found(page.events, Columns(nothing, nothing, nothing, nothing), page.whole(notes))
        head = self._heads(page, wanted)
        place = self._correlations(page, wanted, head)
        return Found(page.events, Columns(*page.numbers(wanted, place), head), page.whole(notes))

    def _heads(self, page: _Page, wanted: Ints) -> Ints:
        begin, end = page.head[wanted] + _CATEGORY_AT, page.lines[page.opening[wanted] + 2]
        text, numbers = page.text, self._numbers
        lines = [text[low:high] for low, high in zip(begin.tolist(), end.tolist(), strict=True)]
        try:
            found = [numbers[line] for line in lines]
        except KeyError:
            found = [self._number(line) for line in lines]
        return np.array(found, np.int64)

    def _number(self, line: bytes) -> int:
        number = self._numbers.get(line)
        if number is None:
            self._room -= len(line)
            _check(self._room > 0 and line.endswith(b",\n"))
            head = msgspec.json.decode(b'{"ph": "X", "cat": "' + line[:-2] + b"}", type=Head)
            number = self._numbers[line] = len(self.heads)
            self.heads.append(head)
        return number

    def _correlations(self, page: _Page, wanted: Ints, head: Ints) -> Ints:
        """Places of `"correlation": ` in the arguments: as far from the line's start as the last time, if the numbers
        before it are as wide."""
        if len(self._offsets) < len(self.heads):
            self._offsets = np.append(self._offsets, np.zeros(len(self.heads) - len(self._offsets), np.int64))
        line, closing = page.lines[page.opening[wanted] + 4], page.lines[page.closing[wanted]]
        place = line + self._offsets[head]
        missing = np.flatnonzero(page.words[np.minimum(place, len(page.words) - 1)] != _CORR)
        for _ in range(OFFSETS_MAX):
            if not len(missing):
                break
            first = missing[0]
            offset = page.text.index(b'"correlation": ', line[first], closing[first]) - int(line[first])
            at = line[missing] + offset
            here = page.words[np.minimum(at, len(page.words) - 1)] == _CORR
            place[missing[here]] = at[here]
            self._offsets[head[missing[here]]] = offset
            missing = missing[~here]
        _check(not len(missing) and (place < closing).all())
        _check((page.words[place + _CORRELATION_AT - _WIDE] == _ELATION).all())
        return place


class _Page:
    """The lines of a chunk. `opening[i]` and `closing[i]` are the lines of event i's braces, `head[i]` the place of its
    first line."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.bytes = np.frombuffer(text, np.uint8)
        self.words: Words = np.ndarray((len(text) - _WIDE + 1,), "<u8", text, 0, (1,))
        self.lines = np.flatnonzero(self.bytes == ord("\n")) + 1
        third = self.bytes[self.lines + 2]
        self.opening, self.closing = np.flatnonzero(third == ord("{")), np.flatnonzero(third == ord("}"))
        self.events = len(self.opening)
        _check(self.events == len(self.closing) > 0)
        _check((self.opening + 2 <= self.closing).all() and (self.closing[:-1] < self.opening[1:]).all())
        self.head = self.lines[self.opening + 1]

    def wanted(self) -> tuple[Ints, Ints]:
        """Numbers of the GPU events and calls, and of the annotations."""
        first, second = self.words[self.head], self.words[self.head + _WIDE]
        named = first == _NAME
        _check((named | ((first == _PHASE) & (second & np.uint64(0xFFFFFF) == _OTHER_PHASE))).all())
        # names of threads, and marks: events without a duration
        for number in np.flatnonzero(named).tolist():
            _check(b'"ph": "X"' not in self._whole(number))
        complete = np.flatnonzero(~named & (second == _COMPLETE))
        head = self.head[complete]
        _check((self.words[head + _CATEGORY_AT - _WIDE] == _CATEGORY).all())
        category = self.words[head + _CATEGORY_AT]
        return complete[_one_of(category, _EVENTS)], complete[_one_of(category, _NOTES)]

    def numbers(self, wanted: Ints, correlation: Ints) -> tuple[Ints, Ints, Ints]:
        """Start and duration in ns, and the number at the places given."""
        line = self.lines[self.opening[wanted] + 2]
        begin = line + _TS_AT
        # the stamps of a file have one width but in its first seconds
        width = self.text.index(b".", begin[0]) - int(begin[0])
        point = begin + width
        _check(0 < width <= _MICROSECONDS_MAX_DIGITS and (self.words[line] == _TS).all())
        _check((self.words[line + _TS_AT - _WIDE] == _TS_ENDS).all())
        _check((self.words[point + 4] == _DUR).all())
        begin, serial = point + 4 + _DUR_AT, correlation + _CORRELATION_AT
        _check((self.bytes[begin - 1] == ord(" ")).all())
        count = len(wanted)
        length = _digits(self.words[np.concatenate([begin, serial])])
        last, width_of_serial = begin + length[:count], length[count:]
        _check((length > 0).all() and (length[:count] <= _US_DIGITS).all())
        long = width_of_serial == _WIDE
        if long.any():
            width_of_serial = width_of_serial + np.where(long, _digits(self.words[serial + _WIDE]), 0)
            _check((width_of_serial < 2 * _WIDE).all())
        serial = serial + width_of_serial
        self._ends(np.concatenate([last + 4, serial]))
        parts = [
            self._clear(self._around(point), max(0, _US_DIGITS - width)),
            self._clear(self._around(last), _US_DIGITS - length[:count]),
            self._clear(self.words[serial - _WIDE], np.maximum(_WIDE - width_of_serial, 0)),
        ]
        if long.any():
            upper = self.words[serial - 2 * _WIDE]
            parts.append(self._clear(upper, np.minimum(2 * _WIDE - width_of_serial, _WIDE)))
        for before in range(_US_DIGITS, width, _WIDE):
            parts.append(self._clear(self.words[point - before - _WIDE], max(0, before + _WIDE - width)))
        start, duration, serials, *rest = _values(np.concatenate(parts)).reshape(-1, count)
        if long.any():
            serials = serials + rest.pop(0) * 10**_WIDE
        for power, more in enumerate(rest, 1):
            start = start + more * 10 ** (power * _WIDE)
        return start, duration, serials

    def _around(self, point: Ints) -> Words:
        """The digits on both sides of the points, without them."""
        before, after = self.words[point - _US_DIGITS], self.words[point + 4 - _WIDE]
        _check((before & (np.uint64(0xFF) << np.uint64(8 * _US_DIGITS)) == _POINTS).all())
        joined: Words = (before & _US_MASK) | (after & _NS_MASK)
        return joined

    @staticmethod
    def _clear(words: Words, count: int | Ints) -> Words:
        """Zeros for the first bytes, which are not of the number."""
        cleared: Words = (words & _KEEP[count]) | _FILL[count]
        return cleared

    def _ends(self, place: Ints) -> None:
        """A number's end."""
        found = self.bytes[place]
        _check(((found == ord(",")) | (found == ord("\n"))).all())

    def whole(self, numbers: Ints) -> bytes:
        return b"[" + b",".join(self._whole(number) for number in numbers.tolist()) + b"]"

    def _whole(self, number: int) -> bytes:
        return self.text[self.lines[self.opening[number]] : self.lines[self.closing[number]] + 3]


def _one_of(words: Words, wanted: list[np.uint64]) -> NDArray[Any]:
    found: NDArray[Any] = words == wanted[0]
    for one in wanted[1:]:
        found |= words == one
    return found


def _digits(words: Words) -> Ints:
    """How many digits each word begins with."""
    other = _no_digit(words)
    lowest = np.maximum(other & (~other + np.uint64(1)), np.uint64(1))
    # a power of two as a float has its logarithm in the exponent
    exponent = (lowest.astype(np.float64).view(np.int64) >> 52) - 1023
    return np.where(other == 0, _WIDE, exponent >> 3)


def _no_digit(words: Words) -> Words:
    """The highest bit of each byte that is no digit."""
    other = words ^ _ZEROS
    found: Words = (((other & ~_TOPS) + _word(b"\x76" * _WIDE)) | other) & _TOPS
    return found


def _values(words: Words) -> Ints:
    """The numbers that words of eight digits make: pairs are joined, then fours, then eights."""
    _check(not _no_digit(words).any())
    value = (words & _word(b"\x0f" * _WIDE)) * np.uint64(10 * (1 << 8) + 1) >> np.uint64(8)
    value = (value & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(100 * (1 << 16) + 1) >> np.uint64(16)
    value = (value & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(10000 * (1 << 32) + 1) >> np.uint64(32)
    return value.view(np.int64)
