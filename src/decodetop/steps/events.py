"""Typed decode of trace events: fast where the text is as Kineto writes it, event by event where it is damaged.

The reader wants four things: GPU work (kernel, gpu_memcpy, gpu_memset), the CUDA or HIP calls that launched it, the
annotations that may be step labels, and the number of events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Union

import msgspec

from decodetop.core.decode import NotDecoded, decode_by
from decodetop.steps.chunks import BOUNDARY, Chunks
from decodetop.steps.heads import CALLS, GPU, Head
from decodetop.steps.layout import Columns, Layout
from decodetop.steps.rescue import Loose, Rescue, id_of, int_of, ns_of, text_of

NOTES = ("user_annotation", "gpu_user_annotation")
WANTED = (*GPU, *CALLS, *NOTES)
SKIPPED = (
    "cpu_op",
    "ac2g",
    "python_function",
    "fwdbwd",
    "overhead",
    "cpu_instant_event",
    "cuda_sync",
    "cuda_event",
    "external_correlation",
    "collective_comm",
    "hardware_counters",
    "Trace",
)
"""Categories of Kineto's ActivityType.h that are passed over; an unknown one is learnt when first met."""

LEARN_MAX = 64
NAMES_MAX = 1024
"""More names of one category than this are decoded one by one."""
SLOW_MAX_BYTES = 1 << 14
"""A chunk that does not decode at full speed is halved down to this."""


class Row(NamedTuple):
    """One wanted event of the slow path; times are exact integer ns, `correlation` is -1 when it has none."""

    name: str
    pid: int | str
    tid: int | str
    start_ns: int
    duration_ns: int
    correlation: int


class Batch(NamedTuple):
    """What one chunk held, `text` with its brackets: `columns` where it is as Kineto writes it, else `typed[category]`
    structs with times in float us, `rows` the slow path's."""

    text: bytes
    events: int
    typed: dict[str, list[Any]]
    rows: dict[str, list[Row]]
    columns: Columns | None = None


class Correlated(msgspec.Struct, gc=False):
    """The one argument needed: a GPU event and its launch carry the same number."""

    correlation: int


class _Arguments(msgspec.Struct, gc=False):
    correlation: msgspec.Raw = msgspec.Raw(b"null")


_NO_EVENTS = b"[]"
_ARGUMENTS = msgspec.json.Decoder(_Arguments)
_WANTED_RAW = {f'"{category}"'.encode(): category for category in WANTED}


class EventDecoder:
    """Decodes chunks in order. `unreadable` counts events given up; `unfinished` says the text ends inside one.

    A trace holds few distinct names and many events, so the names met are made part of the types: msgspec then hands
    out the one string it has, and neither makes nor hashes a new one for every event.
    """

    def __init__(self, chunks: Chunks) -> None:
        self.exact_only = False
        self._chunks = chunks
        self._rescue = Rescue(chunks)
        self._layout = Layout()
        self._skipped: list[str] = list(SKIPPED)
        self._names: dict[str, dict[str, None]] = {category: {} for category in WANTED}
        self._build()

    @property
    def unreadable(self) -> int:
        return self._rescue.unreadable

    @property
    def unfinished(self) -> bool:
        return self._rescue.unfinished

    @property
    def heads(self) -> list[Head]:
        """What `columns` refer to."""
        return self._layout.heads

    def __iter__(self) -> Iterator[Batch]:
        for text in self._chunks:
            yield from self._batches(text, self._chunks.last)

    def _by_columns(self, text: bytes) -> Batch | None:
        """None where the text is laid out otherwise, or the list may end in it."""
        found = None if self._chunks.last else self._layout.read(text)
        if found is None:
            return None
        if found.notes == _NO_EVENTS:
            return Batch(text, found.events, {}, {}, found.columns)
        noted = self._typed(found.notes) or self.slow(found.notes)
        return Batch(text, found.events, noted.typed, noted.rows, found.columns)

    def _batches(self, text: bytes, final: bool, most: int | None = None) -> Iterator[Batch]:
        """At full speed but for the few events around one that is not as Kineto writes it.

        What one half leaves over is carried into the other; where that makes it longer than `most`, halving leads
        nowhere. `final` text holds the end of the list; where all of it is events, there is none.
        """
        text = self._rescue.with_carry(text)
        batch = self._by_columns(text) or self._typed(text)
        middle = None
        if batch is None and not self.exact_only and SLOW_MAX_BYTES < len(text) <= (most or len(text)):
            middle = BOUNDARY.search(text, len(text) // 2)
        if batch is not None and final:
            self._rescue.unfinished = True
        if middle is None:
            yield batch or self.slow(text)
            return
        most = len(text) * 3 // 4
        yield from self._batches(text[: middle.start() + 1] + b"]", False, most)
        yield from self._batches(b"[" + text[middle.end() :], final, most)

    def slow(self, text: bytes) -> Batch:
        """A chunk with exact times and any kind of value; damaged events are repaired or left out."""
        rows: dict[str, list[Row]] = {category: [] for category in WANTED}
        events = 0
        for event in self._rescue.events(text):
            events += 1
            category = _WANTED_RAW.get(bytes(event.cat))
            if category is None:
                self._learn(event.cat)
                continue
            row = _row(event)
            if row is not None:
                rows[category].append(row)
        return Batch(text, events, {}, rows)

    def _build(self) -> None:
        """Two decoders: one for the names known so far, one for any name."""
        skipped = [_struct(category, []) for category in self._skipped]
        self._put: dict[type, str | None] = dict.fromkeys(skipped)
        self._closed, self._open = (self._decoder(known, skipped) for known in (True, False))

    def _decoder(self, known: bool, skipped: list[type[msgspec.Struct]]) -> msgspec.json.Decoder[list[Any]]:
        types = []
        for category in WANTED:
            names = tuple(self._names[category])
            name: Any = Literal[names] if known and 0 < len(names) <= NAMES_MAX else str
            types.append(_struct(category, _fields(category, name)))
            self._put[types[-1]] = category
        union: Any = Union[(*types, *skipped)]
        return msgspec.json.Decoder(list[union])

    def _typed(self, text: bytes) -> Batch | None:
        """None where the text is not quite as Kineto writes it."""
        if self.exact_only:
            return None
        try:
            events = self._closed.decode(text)
        except (msgspec.DecodeError, RecursionError):
            try:
                events = self._open.decode(text)
            except (msgspec.DecodeError, RecursionError):
                return None
            batch = self._batch(text, events)
            self._learn_names(batch)
            return batch
        return self._batch(text, events)

    def _batch(self, text: bytes, events: list[Any]) -> Batch:
        typed: dict[str, list[Any]] = {category: [] for category in WANTED}
        put = {kind: typed[category].append if category else _ignore for kind, category in self._put.items()}
        for event in events:
            put[type(event)](event)
        return Batch(text, len(events), typed, {})

    def _learn_names(self, batch: Batch) -> None:
        before = sum(map(len, self._names.values()))
        for category, found in batch.typed.items():
            if len(self._names[category]) <= NAMES_MAX:
                self._names[category].update(dict.fromkeys(event.name for event in found))
        if sum(map(len, self._names.values())) > before:
            self._build()

    def _learn(self, raw: msgspec.Raw) -> None:
        """Pass over this category at full speed from now on."""
        category = text_of(raw)
        if category and category not in self._skipped and len(self._skipped) < len(SKIPPED) + LEARN_MAX:
            self._skipped.append(category)
            self._build()


def _ignore(event: object) -> None:
    pass


def _fields(category: str, name: Any) -> list[tuple[str, Any]]:
    times = [("name", name), ("pid", int | str), ("tid", int | str), ("ts", float), ("dur", float)]
    return times if category in NOTES else [*times, ("args", Correlated)]


def _struct(category: str, fields: list[tuple[str, Any]]) -> type[msgspec.Struct]:
    return msgspec.defstruct("Event", fields, tag=category, tag_field="cat", gc=False)


def _row(event: Loose) -> Row | None:
    """None unless it is a complete event with a name and times."""
    start_ns, duration_ns, name = ns_of(event.ts), ns_of(event.dur), text_of(event.name)
    if bytes(event.ph) != b'"X"' or start_ns is None or duration_ns is None or name is None:
        return None
    try:
        correlation = decode_by(_ARGUMENTS, event.args).correlation
    except NotDecoded:
        correlation = msgspec.Raw(b"null")
    return Row(name, id_of(event.pid), id_of(event.tid), start_ns, duration_ns, int_of(correlation))
