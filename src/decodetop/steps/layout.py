"""Reads a chunk by columns where it is laid out as Kineto lays it out: whole arrays of events instead of one by one.

libkineto (output_json.cpp) writes an event as lines: `  {`, then `    "ph": "X", "cat": .., "name": .., "pid": ..,
"tid": ..,` as one, `    "ts": N.ddd, "dur": N.ddd,`, the arguments, `  },`. All that is used is checked, down to each
digit; where anything is otherwise the chunk is left to the decoders that read any JSON. The rest is not looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from decodetop.steps.heads import OPENING, WIDE, Head, Heads, Ints, Strange, Words

OFFSETS_MAX = 64
"""Places of the correlation in its line that are tried; they depend on the width of the numbers before it."""
PAGE_BYTES = 1 << 18
"""Text that is looked through at a time: small enough for the cache."""

_US_DIGITS, _NS_DIGITS = 5, 3
"""A word holds so many digits before and after the point."""
_MICROSECONDS_MAX_DIGITS = 15
"""In ns they are below 2^63."""


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


_OPENING, _PHASE, _COMPLETE = (_word(OPENING[at : at + WIDE]) for at in (0, WIDE, 2 * WIDE))
_CATEGORY, _NAME = _word(b'"cat": "'), _word(b' "name":')
_DUR, _ARGS, _ARGS_OPEN = _word(b', "dur":'), _word(b',\n    "a'), _word(b'rgs": {\n')
_CORR, _ELATION = _word(b'"correla'), _word(b'ation": ')
_EVENTS = [_word(one) for one in (b'kernel",', b"gpu_memc", b"gpu_mems", b"cuda_run", b"cuda_dri")]
_NOTES = [_word(one) for one in (b"user_ann", b"gpu_user")]
_DURATION = b', "dur": '
_CORRELATION_AT, _ARGS_AT, _BRACE_AT = len('"correlation": '), len(',\n    "args": {\n'), len("\n  ")

_ZEROS, _POINTS, _TOPS = _word(b"0" * WIDE), _word(b"\0\0\0\0\0.\0\0"), _word(b"\x80" * WIDE)
_KEEP = np.array([~((1 << 8 * cleared) - 1) & ((1 << 64) - 1) for cleared in range(WIDE)] + [0], np.uint64)
"""Masks that clear the first n bytes."""
_FILL = ~_KEEP & _ZEROS
_NS_MASK = _KEEP[_US_DIGITS]
_US_MASK = ~_NS_MASK
_POINT = np.uint64(0xFF) << np.uint64(8 * _US_DIGITS)


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


def _check(holds: Any) -> None:
    if not holds:
        raise Strange


class Layout:
    """`heads` are the first lines met so far."""

    def __init__(self) -> None:
        self._heads = Heads()
        self._offsets: Ints = np.empty(0, np.int64)

    @property
    def heads(self) -> list[Head]:
        return self._heads.items

    def read(self, text: bytes) -> Found | None:
        """None where the chunk is not laid out so, whatever is the matter."""
        try:
            return self._read(text)
        except (Strange, msgspec.MsgspecError, ValueError, IndexError, RecursionError):
            return None

    def _read(self, text: bytes) -> Found:
        page = _Page(text)
        wanted, notes = page.wanted()
        if not len(wanted):
            nothing = np.empty(0, np.int64)
            return Found(page.events, Columns(nothing, nothing, nothing, nothing), page.whole(notes))
        begin, end = page.opening[wanted], page.closing[wanted]
        head = self._heads.find(text, page.words, begin, end)
        times = page.times(begin + self._heads.length.take(head))
        place = self._correlations(page, times.arguments(page), end, head)
        return Found(page.events, Columns(*page.numbers(times, place), head), page.whole(notes))

    def _correlations(self, page: _Page, line: Ints, closing: Ints, head: Ints) -> Ints:
        """Places of `"correlation": ` in the arguments: as far from the line's start as the last time, if the numbers
        before it are as wide."""
        if len(self._offsets) < len(self.heads):
            self._offsets = np.append(self._offsets, np.zeros(len(self.heads) - len(self._offsets), np.int64))
        place = line + self._offsets.take(head)
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
        _check((page.words[place + _CORRELATION_AT - WIDE] == _ELATION).all())
        return place


class _Times(NamedTuple):
    """Places of the points in start and duration of each event, and how many digits stand before them."""

    point: Ints
    width: int
    last: Ints
    length: Ints

    def arguments(self, page: _Page) -> Ints:
        """Where the line of the arguments starts."""
        end = self.last + 1 + _NS_DIGITS
        _check((page.words[end] == _ARGS).all() and (page.words[end + WIDE] == _ARGS_OPEN).all())
        return end + _ARGS_AT


class _Page:
    """The text of a chunk. `opening[i]` and `closing[i]` are the newlines before the braces of event i."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.bytes = np.frombuffer(text, np.uint8)
        self.words: Words = np.ndarray((len(text) - WIDE + 1,), "<u8", text, 0, (1,))
        edges = _edges(self.bytes)
        brace = self.bytes[edges + _BRACE_AT]
        self.opening, self.closing = edges[::2], edges[1::2]
        self.events = len(self.opening)
        _check(self.events == len(self.closing) > 0)
        _check((brace[::2] == ord("{")).all() and (brace[1::2] == ord("}")).all())

    def wanted(self) -> tuple[Ints, Ints]:
        """Numbers of the GPU events and calls, and of the annotations."""
        _check((self.words[self.opening] == _OPENING).all())
        first, second = self.words[self.opening + WIDE], self.words[self.opening + 2 * WIDE]
        named = first != _PHASE
        if named.any():
            # names of threads, and marks: events without a duration
            for number in np.flatnonzero(named).tolist():
                _check(first[number] == _NAME and b'"ph": "X"' not in self._whole(number))
        complete = np.flatnonzero(second == _COMPLETE)
        _check(len(complete) == np.count_nonzero(second & np.uint64(0xFF) == np.uint64(ord("X"))))
        category = self.opening[complete] + len(OPENING)
        _check((self.words[category - WIDE] == _CATEGORY).all())
        word = self.words[category]
        return complete[_one_of(word, _EVENTS)], complete[_one_of(word, _NOTES)]

    def times(self, begin: Ints) -> _Times:
        """`begin` are the first digits of the starts."""
        # the stamps of a file have one width but in its first seconds
        width = self.text.index(b".", begin[0]) - int(begin[0])
        _check(0 < width <= _MICROSECONDS_MAX_DIGITS)
        point = begin + width
        duration = point + 1 + _NS_DIGITS + len(_DURATION)
        _check((self.words[duration - len(_DURATION)] == _DUR).all() and (self.bytes[duration - 1] == ord(" ")).all())
        length = _digits(self.words[duration])
        _check((length > 0).all() and (length <= _US_DIGITS).all())
        return _Times(point, width, duration + length, length)

    def numbers(self, times: _Times, correlation: Ints) -> tuple[Ints, Ints, Ints]:
        """Start and duration in ns, and the number at the places given."""
        point, width = times.point, times.width
        serial = correlation + _CORRELATION_AT
        width_of_serial = _digits(self.words[serial])
        _check((width_of_serial > 0).all())
        long = bool((width_of_serial == WIDE).any())
        if long:
            more = np.where(width_of_serial == WIDE, _digits(self.words[serial + WIDE]), 0)
            width_of_serial = width_of_serial + more
            _check((width_of_serial < 2 * WIDE).all())
        serial = serial + width_of_serial
        self._ends(serial)
        parts = [
            self._clear(self._around(point), max(0, _US_DIGITS - width)),
            self._clear(self._around(times.last), _US_DIGITS - times.length),
            self._clear(self.words[serial - WIDE], np.maximum(WIDE - width_of_serial, 0)),
        ]
        if long:
            upper = self.words[serial - 2 * WIDE]
            parts.append(self._clear(upper, np.minimum(2 * WIDE - width_of_serial, WIDE)))
        for before in range(_US_DIGITS, width, WIDE):
            parts.append(self._clear(self.words[point - before - WIDE], max(0, before + WIDE - width)))
        start, duration, serials, *rest = _values(np.concatenate(parts)).reshape(-1, len(point))
        if long:
            serials = serials + rest.pop(0) * 10**WIDE
        for power, more in enumerate(rest, 1):
            start = start + more * 10 ** (power * WIDE)
        return start, duration, serials

    def _around(self, point: Ints) -> Words:
        """The digits on both sides of the points, without them."""
        before, after = self.words[point - _US_DIGITS], self.words[point + 1 + _NS_DIGITS - WIDE]
        _check((before & _POINT == _POINTS).all())
        joined: Words = (before & _US_MASK) | (after & _NS_MASK)
        return joined

    @staticmethod
    def _clear(words: Words, count: int | Ints) -> Words:
        """Zeros for the first bytes, which are not of the number."""
        if isinstance(count, int) and not count:
            return words
        cleared: Words = (words & _KEEP[count]) | _FILL[count]
        return cleared

    def _ends(self, place: Ints) -> None:
        """A number's end."""
        found = self.bytes[place]
        _check(((found == ord(",")) | (found == ord("\n"))).all())

    def whole(self, numbers: Ints) -> bytes:
        return b"[" + b",".join(self._whole(number) for number in numbers.tolist()) + b"]"

    def _whole(self, number: int) -> bytes:
        return self.text[self.opening[number] : self.closing[number] + _BRACE_AT + 1]


def _edges(text: NDArray[np.uint8]) -> Ints:
    """Newlines before lines whose third character is a brace, or some rare one."""
    count = len(text) - _BRACE_AT
    found = []
    for low in range(0, count, PAGE_BYTES):
        high = min(low + PAGE_BYTES, count)
        edge = text[low:high] == ord("\n")
        edge &= text[low + _BRACE_AT : high + _BRACE_AT] >= ord("{")
        found.append(np.flatnonzero(edge) + low)
    return np.concatenate(found)


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
    return np.where(other == 0, WIDE, exponent >> 3)


def _no_digit(words: Words) -> Words:
    """The highest bit of each byte that is no digit."""
    other = words ^ _ZEROS
    found: Words = (((other & ~_TOPS) + _word(b"\x76" * WIDE)) | other) & _TOPS
    return found


def _values(words: Words) -> Ints:
    """The numbers that words of eight digits make: pairs are joined, then fours, then eights."""
    _check(not _no_digit(words).any())
    value = (words & _word(b"\x0f" * WIDE)) * np.uint64(10 * (1 << 8) + 1) >> np.uint64(8)
    value = (value & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(100 * (1 << 16) + 1) >> np.uint64(16)
    value = (value & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(10000 * (1 << 32) + 1) >> np.uint64(32)
    return value.view(np.int64)
