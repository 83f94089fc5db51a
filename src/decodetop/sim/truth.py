"""The truth log: what was really received and sent, and when, so that a client's figures can be judged."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from decodetop.core.decode import decode_by
from decodetop.sim.serving import End, Request


class TruthLine(msgspec.Struct, frozen=True, kw_only=True):
    """One request, written when it ends. Times are CLOCK_MONOTONIC ns; `id` stands in every chunk of its stream."""

    id: str
    api: str
    end: End
    received_ns: int
    sent_ns: tuple[int, ...]
    chunk_tokens: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int


class TruthLog:
    """NDJSON of `TruthLine`, flushed line by line; the box's own visitors are left out."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._encoder = msgspec.json.Encoder()

    def chunk(self, request: Request, tokens: int) -> None:
        """Nothing: lines are written at the end."""

    def ended(self, request: Request) -> None:
        if request.internal or request.end is None:
            return
        line = TruthLine(
            id=request.answer.rid,
            api=request.ask.api,
            end=request.end,
            received_ns=request.received_ns,
            sent_ns=tuple(request.sent_ns),
            chunk_tokens=tuple(request.chunk_tokens),
            prompt_tokens=len(request.ask.prompt),
            cached_tokens=request.cached,
        )
        self._file.write(self._encoder.encode(line) + b"\n")


def read_truth(path: Path) -> list[TruthLine]:
    """The lines of a truth log. Raises OSError, NotDecoded."""
    decoder = msgspec.json.Decoder(TruthLine)
    return [decode_by(decoder, line) for line in path.read_bytes().splitlines()]
