"""The first lines of events: a trace has few, and each comes thousands of times, so they are known by heart.

A line is not cut out and hashed for every event. A few of its words, those in which the known lines differ, say which
line it can only be; then all of it is compared with that one, many events at a time. What is not known is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]
"""Eight bytes of text each, the first in the lowest place."""

GpuCategory = Literal["kernel", "gpu_memcpy", "gpu_memset"]
CallCategory = Literal["cuda_runtime", "cuda_driver"]
GPU: tuple[str, ...] = get_args(GpuCategory)
CALLS: tuple[str, ...] = get_args(CallCategory)

WIDE = 8
OPENING = b'\n  {\n    "ph": "X", "cat": "'
ENDING = b',\n    "ts": '
HEADS_MAX_BYTES = 8 << 20
"""First lines known by heart; a trace has some hundreds of them."""
GUESSED_MAX = 1024
"""Lines that are guessed; what is beyond is looked up one by one."""
LEARN_AFTER, LEARN_AFTER_SHARE = 2000, 8
"""Lines looked up one by one, and that for each one known, before they are learnt, which takes about as long."""
LEVELS_MAX = 12
_PLACES_TRIED = 16
_SLOT_BITS = 16
_SHUFFLES = [0x9E3779B97F4A7C15 * odd & ((1 << 64) - 1) for odd in range(1, 32, 2)]


class Strange(Exception):
    """The text is laid out otherwise."""


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the first line of an event says."""

    ph: Literal["X"]
    cat: GpuCategory | CallCategory
    name: str
    pid: int | str
    tid: int | str


class Heads:
    """`items` are the lines met so far. `length[number]` is the distance from the newline before an event's brace to
    the first digit of its time."""

    def __init__(self) -> None:
        self.items: list[Head] = []
        self.length: Ints = np.empty(0, np.int64)
        self._lines: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._room = HEADS_MAX_BYTES
        self._known = _Known([])
        self._missed = 0

    def find(self, text: bytes, words: Words, begin: Ints, end: Ints) -> Ints:
        """Numbers of the events' lines; `begin` are the newlines before their braces, sorted, `end` is behind them.

        `words[i]` begins with byte i of `text`. Raises Strange, ValueError or MsgspecError where a line is none.
        """
        number, sure = self._known.recognise(text, words, begin, end)
        if not sure.all():
            missed = np.flatnonzero(~sure)
            for at, low, high in zip(missed.tolist(), begin[missed].tolist(), end[missed].tolist(), strict=True):
                number[at] = self._number(text[low : text.index(ENDING, low, high) + len(ENDING)])
            self._learn(len(missed))
        return number

    def _number(self, line: bytes) -> int:
        number = self._numbers.get(line)
        if number is None:
            self._room -= len(line)
            if self._room < 0:
                raise Strange
            head = msgspec.json.decode(line[: -len(ENDING)] + b"}", type=Head)
            number = self._numbers[line] = len(self.items)
            self._lines.append(line)
            self.items.append(head)
        return number

    def _learn(self, missed: int) -> None:
        if len(self._lines) > len(self.length):
            self.length = np.array([len(line) for line in self._lines], np.int64)
        self._missed += missed
        if self._missed > max(LEARN_AFTER, LEARN_AFTER_SHARE * len(self._lines)) and self._known.count < GUESSED_MAX:
            self._missed = 0
            if len(self._lines) > self._known.count:
                self._known = _Known(self._lines[:GUESSED_MAX])


class _Level(NamedTuple):
    """Where each node of the tree looks, and by the word there which node is next."""

    offset: Ints
    salt: Words
    shuffle: np.uint64
    following: Ints


class _Texts(NamedTuple):
    """Of lines of at least `size` bytes and less than twice as many the first `size` bytes; then, from row `last`, the
    last ones."""

    size: int
    last: int
    windows: Words


class _Known:
    """Lines numbered as given."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.count = len(lines)
        if not lines:
            return
        self._leaf, self._levels = _tree(lines)
        self._reach = max((int(level.offset.max()) for level in self._levels), default=0)
        self._length = np.array([len(line) for line in lines], np.int64)
        self._size = 1 << np.log2(self._length).astype(np.int64)
        self._row = np.zeros(self.count, np.int64)
        self._texts: list[_Texts] = []
        for size in np.unique(self._size).tolist():
            mine = np.flatnonzero(self._size == size)
            self._row[mine] = np.arange(len(mine))
            chosen = [lines[number] for number in mine.tolist()]
            ends = [line[:size] for line in chosen] + [line[-size:] for line in chosen]
            windows = np.frombuffer(b"".join(ends), np.uint64).reshape(-1, size // WIDE)
            self._texts.append(_Texts(size, len(mine), windows))

    def recognise(self, text: bytes, words: Words, begin: Ints, end: Ints) -> tuple[Ints, Bools]:
        """Number of the line at each place, and whether it is that one."""
        if not self.count:
            return np.zeros(len(begin), np.int64), np.zeros(len(begin), bool)
        number = self._guess(words, begin)
        length, size, row = self._length.take(number), self._size.take(number), self._row.take(number)
        sure = begin + length <= end
        fits = sure.all()
        for one in self._texts:
            mine = np.flatnonzero(size == one.size) if fits else np.flatnonzero((size == one.size) & sure)
            if not len(mine):
                continue
            at = begin.take(mine)
            # compared by their two ends, which meet
            windows = np.ndarray((len(text) - one.size + 1,), f"V{one.size}", text, 0, (1,))
            found = windows[np.concatenate([at, at + (length.take(mine) - one.size)])]
            rows = row.take(mine)
            known = one.windows.take(np.concatenate([rows, rows + one.last]), axis=0)
            same = found.view(np.uint64).reshape(known.shape) == known
            if not same.all():
                sure[mine] = same.all(axis=1).reshape(2, -1).all(axis=0)
        return number, sure

    def _guess(self, words: Words, begin: Ints) -> Ints:
        if int(begin[-1]) + self._reach >= len(words):
            begin = np.minimum(begin, len(words) - 1 - self._reach)
        node: Any = 0
        for level in self._levels:
            word = words[begin + level.offset[node]]
            slot = ((word ^ level.salt[node]) * level.shuffle) >> np.uint64(64 - _SLOT_BITS)
            node = level.following.take(slot.view(np.int64))
        return self._leaf.take(node) if self._levels else np.zeros(len(begin), np.int64)


def _tree(lines: Sequence[bytes]) -> tuple[Ints, list[_Level]]:
    """Line of each node of the last level, and the levels. No line begins another, for each ends with ENDING."""
    nodes = [list(range(len(lines)))]
    levels: list[_Level] = []
    while any(len(node) > 1 for node in nodes) and len(levels) < LEVELS_MAX:
        offsets = [_telling([lines[number] for number in node]) for node in nodes]
        following: list[list[int]] = []
        keys: dict[tuple[int, int], int] = {}
        for place, (node, offset) in enumerate(zip(nodes, offsets, strict=True)):
            for number in node:
                word = int.from_bytes(lines[number][offset : offset + WIDE], "little")
                if (place, word) not in keys:
                    keys[place, word] = len(following)
                    following.append([])
                following[keys[place, word]].append(number)
        levels.append(_level(offsets, keys))
        nodes = following
    return np.array([node[0] for node in nodes], np.int64), levels


def _telling(lines: Sequence[bytes]) -> int:
    """The offset of a word that tells most of the lines apart; the word lies in each of them."""
    shortest = min(map(len, lines))
    lines = sorted(lines)
    differ = set()
    for one, other in pairwise(lines):
        same = min(len(one), len(other))
        first = np.frombuffer(one, np.uint8, same) != np.frombuffer(other, np.uint8, same)
        differ.add(min(int(first.argmax()), shortest - WIDE))
    places = sorted(differ)[:: -(-len(differ) // _PLACES_TRIED) or 1]
    return max(places, key=lambda place: len({line[place : place + WIDE] for line in lines}), default=0)


def _level(offsets: list[int], keys: dict[tuple[int, int], int]) -> _Level:
    """Slots by a product's upper bits. A word that finds its slot taken leads astray, and the line is looked up."""
    salt = np.arange(len(offsets), dtype=np.uint64) * np.uint64(_SHUFFLES[1])
    node, word = (np.array(column, np.uint64) for column in zip(*keys, strict=True))
    mixed = word ^ salt[node.view(np.int64)]
    tried = [(mixed * np.uint64(one)) >> np.uint64(64 - _SLOT_BITS) for one in _SHUFFLES]
    best = max(range(len(tried)), key=lambda one: len(np.unique(tried[one])))
    following = np.zeros(1 << _SLOT_BITS, np.int64)
    following[tried[best].view(np.int64)] = list(keys.values())
    return _Level(np.array(offsets, np.int64), salt, np.uint64(_SHUFFLES[best]), following)
