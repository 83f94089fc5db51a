"""Reads a torch.profiler (Kineto) trace, streaming and in bounded memory. Format facts: docs/steps.md."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from decodetop.steps.chunks import Chunks
from decodetop.steps.collect import Collector
from decodetop.steps.events import EventDecoder
from decodetop.steps.inflate import TraceBytes
from decodetop.steps.rows import Trace
from decodetop.steps.spill import Spill

PARTITION_JSON_BYTES = 64 << 20
PARTITIONS_MAX = 256
"""Rows are kept in so many parts that one, of at most 150,000 rows or so, can be joined in memory."""
GZIP_RATIO = 20
"""JSON for a byte of gzip: 13 to 19 in real traces; only sizes the parts."""

_DEVICE = re.compile(rb'"id"\s*:\s*(\d+)\s*,\s*"name"\s*:\s*"([^"]{1,200})"')
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[]*?"rank"\s*:\s*(\d+)')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')


class Progress(msgspec.Struct, frozen=True):
    """Bytes of the file read so far, of the file, and of JSON inflated so far."""

    done_bytes: int
    total_bytes: int
    json_bytes: int


def read_trace(
    path: Path,
    wanted: Callable[[str], bool],
    progress: Callable[[Progress], None] | None = None,
    spill: Spill | None = None,
) -> Trace:
    """Read the whole file; of the annotations those whose name is `wanted`. What `progress` raises ends it.

    Raises TraceError if the file can't be read or is no trace; damage inside it is counted and said in the result.
    """
    with contextlib.closing(TraceBytes(path)) as source, contextlib.ExitStack() as unfinished:
        json_bytes = source.total_bytes * (GZIP_RATIO if source.gzip else 1)
        trace = Trace(path, spill or Spill(), min(PARTITIONS_MAX, 1 + json_bytes // PARTITION_JSON_BYTES))
        unfinished.callback(trace.close)
        chunks = Chunks(source, str(path))
        decoder = EventDecoder(chunks)
        collector = Collector(trace, decoder, wanted)
        for batch in decoder:
            collector.add(batch)
            if progress is not None:
                progress(Progress(source.done_bytes, source.total_bytes, source.json_bytes))
        collector.finish()
        unfinished.pop_all()
    trace.unreadable = decoder.unreadable
    _describe(trace, chunks.header + chunks.footer)
    if source.damage:
        trace.damage.append(source.damage)
    elif decoder.unfinished:
        trace.damage.append("the file ends inside the event list: it was cut short or is still being written")
    if chunks.skipped_bytes:
        trace.damage.append(f"{chunks.skipped_bytes:,} bytes without an event were passed over")
    return trace


def _describe(trace: Trace, text: bytes) -> None:
    """Rank, device names and time base from the keys around the events."""
    if found := _RANK.search(text):
        trace.rank = int(found[1])
    if found := _BASE.search(text):
        trace.base_ns = int(found[1])
    trace.devices = {int(number): name.decode("utf-8", "replace") for number, name in _DEVICE.findall(text)}
    trace.vllm = b'"vllm_version"' in text
