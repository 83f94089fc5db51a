"""What the benchmark and its load process say to each other: NDJSON on the child's stdin and stdout. Pure.

Down: one Job, then `go` when the measured part may begin. Up: Ready after warm-up, Tick while it runs, then Result or
Fatal. The key for the server goes by the environment variable DECODETOP_API_KEY of the child and stands in no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from decodetop.bench.reading import Api, ErrorKind, Plan
from decodetop.bench.request import Dialect
from decodetop.core.decode import decode, decode_by

GO = b"go\n"
Phase = Literal["starting", "warmup", "measuring", "draining", "stopping"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One process's share of a plan: requests `first_index`, `first_index + stride`, ... `plan.requests` of them.

    `attended`: someone holds stdin, says `go`, and its end means stop at once. `journal`: a file already open under
    that number, which every record is appended to as it is made, so that a killed process loses nothing finished.
    """

    plan: Plan
    first_index: int = 0
    stride: int = 1
    attended: bool = True
    parent: int | None = None
    journal: int | None = None
    dialect: Dialect | None = None
    model: str | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One measured request. Stamps are ns of CLOCK_MONOTONIC; None = it never came to that.

    `chunks_ns` are the stamps of the chunks that carried tokens, counted from `write_ns`; `chunk_tokens` the tokens of
    each, None where the stream did not say for every one. `id` is the server's name of the request. `doubt` = the count
    of the server's that can't be and is None here, in words.
    """

    index: int
    id: str | None = None
    due_ns: int
    write_ns: int | None = None
    end_ns: int | None = None
    connect_ns: int | None = None
    chunks_ns: list[int] = []
    chunk_tokens: list[int] | None = None
    asked_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    steps: int | None = None
    finish: str | None = None
    fault: ErrorKind | None = None
    message: str = ""
    doubt: str = ""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    pass


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    """Warm-up is over. `trouble` = what the last failed request of it said."""

    dialect: Dialect
    model: str | None
    prompt_tokens: int | None = None
    trouble: str | None = None


class Tick(Message, frozen=True, kw_only=True, tag="tick"):
    """So far, of this process. Sums and counts, so that several processes add up. Gaps are between chunks."""

    phase: Phase
    elapsed_s: float = 0.0
    done: int = 0
    failed: int = 0
    chunks: int = 0
    tokens: int = 0
    counted_chunks: int = 0
    gaps: int = 0
    gap_sum_ns: int = 0
    first_tokens: int = 0
    ttft_sum_ns: int = 0
    loop_lag_ms_p99: float | None = None


class Result(Message, frozen=True, kw_only=True, tag="result"):
    """`partial` = told to stop. `unfinished` requests were under way then and are in no record.

    `records` = those that are not in the journal. `lost` = how a load process ended before its work was done.
    `unsteady` = the share by which the pace still changed at the end of a warm-up that never got steady.
    """

    records: list[Record]
    source: Literal["usage", "native", "unknown"]
    partial: bool
    unfinished: int
    cpu_percent: float | None
    loop_lag_ms_p99: float | None
    lost: str | None = None
    unsteady: float | None = None


class Fatal(Message, frozen=True, kw_only=True, tag="fatal"):
    """Nothing could be measured. `kind` is the fault of the one request tried, if there was one."""

    message: str
    hint: str = ""
    kind: ErrorKind | None = None


Up = Ready | Tick | Result | Fatal

encode = msgspec.json.Encoder().encode
_UP: msgspec.json.Decoder[Up] = msgspec.json.Decoder(Up)
_RECORD = msgspec.json.Decoder(Record)


def decode_up(line: bytes) -> Up:
    """Raises NotDecoded."""
    return decode_by(_UP, line)


def decode_job(line: bytes) -> Job:
    """Raises NotDecoded."""
    return decode(line, Job)


def journalled(data: bytes) -> list[Record]:
    """A journal's records; what a killed process had half written is left out."""
    return [decode_by(_RECORD, line) for line in data.split(b"\n")[:-1]]


def source_of(api: Api, records: Sequence[Record]) -> Literal["usage", "native", "unknown"]:
    """Who counted the tokens of these."""
    if not any(record.output_tokens is not None for record in records):
        return "unknown"
    return "native" if api in ("generate", "completion") else "usage"
