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

_LOW_US_DIGITS, _NS_DIGITS = 4, 3
"""A word holds so many digits before and after a point."""
_MICROSECONDS_MAX_DIGITS = 15
"""In ns they are below 2^63."""
_DURATION_MAX_DIGITS = 5
"""Of the microseconds; with their point they end in the word they begin in."""


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


_OPENING, _PHASE, _COMPLETE = (_word(OPENING[at : at + WIDE]) for at in (0, WIDE, 2 * WIDE))
_CATEGORY, _NAME = _word(b'": "'), _word(b' "name":')
_DUR, _ARGS, _ARGS_OPEN = _word(b', "dur":'), _word(b',\n    "a'), _word(b'rgs": {\n')
_CORREL, _ATION = _word(b' "correl'), _word(b'ation": ')
_EVENTS = [_word(one) for one in (b'kernel",', b"gpu_memc", b"gpu_mems", b"cuda_run", b"cuda_dri")]
_NOTES = [_word(one) for one in (b"user_ann", b"gpu_user")]
_SERIAL, _SERIAL_WORDS = b' "correlation": ', 3
_ARGS_AT, _BRACE_AT, _DURATION_AT = len(',\n    "args": {\n'), len("\n  "), len('.000, "dur": ')

_BYTE, _HALF = np.uint64(8), np.uint64(32)
_LOW_BYTE, _LOW_HALF = np.uint64(0xFF), np.uint64(0xFFFFFFFF)
_ZEROS, _TOPS = _word(b"0" * WIDE), _word(b"\x80" * WIDE)
_KEEP = np.array([~((1 << 8 * cleared) - 1) & ((1 << 64) - 1) for cleared in range(WIDE)] + [0], np.uint64)
"""Masks that clear the first n bytes."""
_FILL = ~_KEEP & _ZEROS
_POINT, _POINTS = _LOW_BYTE << _HALF, np.uint64(ord(".")) << _HALF
_NS_MASK = _KEEP[WIDE - _NS_DIGITS]
_TENS = 10 ** np.arange(2 * WIDE, dtype=np.int64)


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
        stamps = page.starts(begin + self._heads.length.take(head))
        line, duration = page.durations(stamps)
        serials = _serials(page, *self._correlations(page, line, end, head))
        columns = _columns(stamps.parts, duration, *serials)
        return Found(page.events, Columns(*columns, head), page.whole(notes))

    def _correlations(self, page: _Page, line: Ints, closing: Ints, head: Ints) -> tuple[Ints, Words]:
        """Places of ` "correlation": ` in the arguments, and the words there: as far from the line's start as the last
        time, if the numbers before it are as wide."""
        if len(self._offsets) < len(self.heads):
            self._offsets = np.append(self._offsets, np.zeros(len(self.heads) - len(self._offsets), np.int64))
        place = line + self._offsets.take(head)
        words = page.around(np.minimum(place, len(page.text) - _SERIAL_WORDS * WIDE), _SERIAL_WORDS)
        missing = np.flatnonzero(words[:, 0] != _CORREL)
        for _ in range(OFFSETS_MAX):
            if not len(missing):
                break
            first = missing[0]
            offset = page.text.index(_SERIAL, line[first], closing[first]) - int(line[first])
            at = np.minimum(line[missing] + offset, len(page.text) - _SERIAL_WORDS * WIDE)
            words[missing] = page.around(at, _SERIAL_WORDS)
            place[missing] = at
            here = words[missing, 0] == _CORREL
            self._offsets[head[missing[here]]] = offset
            missing = missing[~here]
        _check(not len(missing) and (place < closing).all() and (words[:, 1] == _ATION).all())
        return place, words


class _Stamps(NamedTuple):
    """`parts` are the starts' digits, eight a word, the last first; the durations' digits before the point are the
    first `length` of the words `whole`, and their points at `point`."""

    parts: list[Words]
    whole: Words
    length: Ints
    point: Ints


class _Page:
    """The text of a chunk. `opening[i]` and `closing[i]` are the newlines before the braces of event i."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.words: Words = np.ndarray((len(text) - WIDE + 1,), "<u8", text, 0, (1,))
        letters = np.frombuffer(text, np.uint8)
        edges = _edges(letters)
        brace = letters[edges + _BRACE_AT]
        self.opening, self.closing = edges[::2].copy(), edges[1::2].copy()
        self.events = len(self.opening)
        _check(self.events == len(self.closing) > 0)
        _check((brace[::2] == ord("{")).all() and (brace[1::2] == ord("}")).all())

    def around(self, place: Ints, count: int) -> Words:
        """So many words from each place on: together they take no longer to fetch than one."""
        windows = np.ndarray((len(self.text) - count * WIDE + 1,), f"V{count * WIDE}", self.text, 0, (1,))
        words: Words = windows[place].view(np.uint64).reshape(-1, count)
        return words

    def wanted(self) -> tuple[Ints, Ints]:
        """Numbers of the GPU events and calls, and of the annotations."""
        opening, first, second, third, fourth = self.around(self.opening, 5).T
        _check((opening == _OPENING).all())
        named = first != _PHASE
        if named.any():
            # names of threads, and marks: events without a duration
            for number in np.flatnonzero(named).tolist():
                _check(first[number] == _NAME and b'"ph": "X"' not in self._whole(number))
        complete = second == _COMPLETE
        _check(np.count_nonzero(complete) == np.count_nonzero(second & _LOW_BYTE == ord("X")))
        _check(((third & _LOW_HALF == _CATEGORY) | ~complete).all())
        category = (third >> _HALF) | (fourth << _HALF)
        events, notes = _one_of(category, _EVENTS) & complete, _one_of(category, _NOTES) & complete
        return np.flatnonzero(events), np.flatnonzero(notes)

    def starts(self, begin: Ints) -> _Stamps:
        """`begin` are the first digits of the starts."""
        # the stamps of a file have one width but in its first seconds
        width = self.text.index(b".", begin[0]) - int(begin[0])
        _check(0 < width <= _MICROSECONDS_MAX_DIGITS)
        point = begin + width
        *upper, low, name, duration = self.around(point - (2 * WIDE + _LOW_US_DIGITS), 5).T
        _check((low & _POINT == _POINTS).all() and (name == _DUR).all() and (duration & _LOW_BYTE == ord(" ")).all())
        # without the point
        low = ((low & ~_KEEP[_LOW_US_DIGITS]) << _BYTE) | (low & _NS_MASK)
        parts = [_clear(low, 1 + max(0, _LOW_US_DIGITS - width))]
        for number, more in enumerate(reversed(upper)):
            digits = width - _LOW_US_DIGITS - number * WIDE
            if digits > 0:
                parts.append(_clear(more, max(0, WIDE - digits)))
        whole = duration >> _BYTE
        length = _digits(whole)
        _check((length > 0).all() and (length <= _DURATION_MAX_DIGITS).all())
        return _Stamps(parts, whole, length, point + _DURATION_AT + length)

    def durations(self, stamps: _Stamps) -> tuple[Ints, Words]:
        """Where the line of the arguments starts, and the digits of the durations."""
        broken, name, opening = self.around(stamps.point - _LOW_US_DIGITS, 3).T
        _check((broken & _POINT == _POINTS).all() and (name == _ARGS).all() and (opening == _ARGS_OPEN).all())
        before = WIDE - _NS_DIGITS - stamps.length
        whole = (stamps.whole << (before << 3).view(np.uint64)) & ~_NS_MASK
        return stamps.point + 1 + _NS_DIGITS + _ARGS_AT, whole | (broken & _NS_MASK) | _FILL[before]

    def whole(self, numbers: Ints) -> bytes:
        return b"[" + b",".join(self._whole(number) for number in numbers.tolist()) + b"]"

    def _whole(self, number: int) -> bytes:
        return self.text[self.opening[number] : self.closing[number] + _BRACE_AT + 1]


def _serials(page: _Page, place: Ints, words: Words) -> tuple[list[Words], Ints]:
    """The correlations' digits: up to eight in the first word, the rest, of which there are so many, in a second."""
    digits = words[:, 2]
    length = _digits(digits)
    _check((length > 0).all())
    found, more = [_right(digits, length)], np.zeros(len(place), np.int64)
    end = place + len(_SERIAL) + length
    if (length == WIDE).any():
        long = np.flatnonzero(length == WIDE)
        rest = page.around(place[long] + len(_SERIAL) + WIDE, 1)[:, 0]
        more[long] = _digits(rest)
        _check((more < WIDE).all())
        second = np.full(len(place), _ZEROS)
        second[long] = _right(rest, more[long])
        found.append(second)
        end += more
    letters = np.frombuffer(page.text, np.uint8)[end]
    _check(((letters == ord(",")) | (letters == ord("\n"))).all())
    return found, more


def _columns(starts: list[Words], duration: Words, serials: list[Words], more: Ints) -> tuple[Ints, Ints, Ints]:
    """Start and duration in ns, and the correlation."""
    values = _values(np.concatenate([*starts, duration, *serials])).reshape(-1, len(duration))
    start, serial = values[0], values[len(starts) + 1]
    for number, upper in enumerate(values[1 : len(starts)]):
        start = start + upper * 10 ** (_LOW_US_DIGITS + _NS_DIGITS + number * WIDE)
    if len(serials) > 1:
        serial = serial * _TENS.take(more) + values[-1]
    return start, values[len(starts)], serial


def _clear(words: Words, count: int) -> Words:
    """Zeros for the first bytes, which are not of the number."""
    if not count:
        return words
    cleared: Words = (words & _KEEP[count]) | _FILL[count]
    return cleared


def _right(words: Words, length: Ints) -> Words:
    """The number in the first bytes, with zeros before it instead of what follows it."""
    before = WIDE - length
    # a shift by 64 would leave the word as it is
    right: Words = np.where(length > 0, words << ((before & 7) << 3).view(np.uint64), 0) | _FILL[before]
    return right


def _edges(text: NDArray[np.uint8]) -> Ints:
    """Newlines before lines whose third character is a brace, or some rare one."""
    count = len(text) - _BRACE_AT
    found = []
    for low in range(0, count, PAGE_BYTES):
        high = min(low + PAGE_BYTES, count)
        at = np.flatnonzero(text[low + _BRACE_AT : high + _BRACE_AT] >= ord("{"))
        found.append(at[text[low:high][at] == ord("\n")] + low)
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
