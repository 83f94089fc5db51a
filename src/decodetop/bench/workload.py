"""Which request is sent when, and with what: synthetic or real prompts; in a loop, at a rate, or as recorded."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import count, islice, pairwise, takewhile
from pathlib import Path
from typing import Any

import msgspec

from decodetop.bench.plan import TOKENS_MAX
from decodetop.bench.prompts import Prompts
from decodetop.bench.reading import Plan
from decodetop.bench.request import Dialect
from decodetop.core.decode import NotDecoded, decode
from decodetop.core.regular import read_regular
from decodetop.errors import DataError

FILE_MAX_BYTES = 1 << 30
MADE_MAX = 64
"""Lengths of made-up prompts whose common part is kept: a trace may name thousands."""


class Line(msgspec.Struct, frozen=True):
    """One request of a JSONL file: `prompt` or `messages` or the length of a made-up one, and if it likes its output
    length and its time.

    `t_s` is when it is due, in seconds from the first; all lines have it or none.
    """

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    output_tokens: int | None = None
    t_s: float | None = None
    input_tokens: int | None = None


class _Traced(msgspec.Struct, frozen=True):
    """A line of the public traces of request arrivals (Mooncake's form): ms, and lengths in tokens."""

    timestamp: float
    input_length: int
    output_length: int


class Workload:
    """The prompts and times of one plan. Index -1 and below are warm-up, always synthetic."""

    def __init__(self, plan: Plan, dialect: Dialect, lines: Sequence[Line] = ()) -> None:
        self._plan = plan
        self._dialect = dialect
        self._lines = lines
        self._made: dict[int, Prompts] = {}

    def prompt(self, index: int, dialect: Dialect) -> tuple[bytes, Dialect]:
        """Request `index`'s prompt as JSON text, and the dialect it is to be sent in (real prompts are text)."""
        if self._lines and index >= 0:
            line = self._lines[index % len(self._lines)]
            if line.input_tokens is not None:
                return self._synthetic(index, dialect, line.input_tokens), dialect
            real = line.messages if line.messages is not None else line.prompt
            return msgspec.json.encode(real), msgspec.structs.replace(dialect, token_ids=False)
        return self._synthetic(index, dialect, self._plan.input_tokens), dialect

    def _synthetic(self, index: int, dialect: Dialect, tokens: int) -> bytes:
        words = self._dialect.words
        length = tokens if words is None else round(tokens * words / self._plan.input_tokens)
        prompts = self._made.get(length)
        if prompts is None:
            if len(self._made) > MADE_MAX:
                self._made.clear()
            prompts = self._made[length] = Prompts(self._plan.seed, length, self._plan.shared_prefix_tokens)
        return prompts.ids(index) if dialect.token_ids else prompts.words(index)

    def output_tokens(self, index: int) -> int:
        """The length asked of measured request `index`."""
        own = self._lines[index % len(self._lines)].output_tokens if self._lines else None
        return self._plan.output_tokens if own is None else own

    def arrivals_ns(self, requests: int) -> list[int] | None:
        """When requests 0 to `requests` - 1 are due, ns from the start, as far as the plan's time goes.

        None = each when a stream is free.
        """
        if self._plan.request_rate_s is not None:
            times = poisson_s(self._plan.seed, self._plan.request_rate_s)
        elif self._lines and self._lines[0].t_s is not None:
            times = replayed_s(self._lines)
        else:
            return None
        until_s = self._plan.duration_s if self._plan.duration_s is not None else math.inf
        return [round(at_s * 1e9) for at_s in takewhile(lambda at_s: at_s < until_s, islice(times, requests))]


def poisson_s(seed: int, rate_s: float) -> Iterator[float]:
    """Due times at `rate_s` requests a second, fixed ahead so that a slow server can't thin them out."""
    source = random.Random(f"{seed}:arrivals")
    at_s = 0.0
    while True:
        yield at_s
        at_s += source.expovariate(rate_s)


def replayed_s(lines: Sequence[Line]) -> Iterator[float]:
    """The file's times from its first; repeated after its last when there are fewer lines than requests."""
    times = [(line.t_s or 0.0) - (lines[0].t_s or 0.0) for line in lines]
    span_s = times[-1] + times[-1] / max(1, len(times) - 1)
    return (turn * span_s + at_s for turn in count() for at_s in times)


def read_lines(path: Path, api: str) -> tuple[Line, ...]:
    """Raises DataError naming the line that is wrong, or that `api` can't take."""
    try:
        raw = read_regular(path, FILE_MAX_BYTES)
    except OSError as error:
        raise DataError(f"can't read {path}: {error.strerror}", "check the path given to --prompts") from error
    found = [_line(text, f"{path}:{number}", api) for number, text in enumerate(raw.splitlines(), 1) if text.strip()]
    if not found:
        raise DataError(f"{path} holds no prompt", _FORM)
    timed = [line.t_s is not None for line in found]
    if any(timed) and not all(timed):
        raise DataError(f"{path}: some lines have t_s and some have none", "give all of them their time, or none")
    if all(timed) and any((b.t_s or 0) < (a.t_s or 0) for a, b in pairwise(found)):
        raise DataError(f"{path}: t_s goes back in time", "sort the lines by t_s")
    return tuple(found)


_FORM = 'one JSON object a line: "prompt" or "messages" or "input_tokens"; "output_tokens" and "t_s" if you like'


def _decoded(text: bytes) -> Line:
    """Raises NotDecoded."""
    if b'"timestamp"' in text and b'"input_length"' in text:
        traced = decode(text, _Traced)
        return Line(t_s=traced.timestamp / 1e3, input_tokens=traced.input_length, output_tokens=traced.output_length)
    return decode(text, Line)


def _line(text: bytes, where: str, api: str) -> Line:
    try:
        line = _decoded(text)
    except NotDecoded as error:
        raise DataError(f"{where}: {error}", _FORM) from error
    if sum(part is not None for part in (line.prompt, line.messages, line.input_tokens)) != 1:
        raise DataError(f"{where}: a line has either prompt or messages or input_tokens", _FORM)
    if line.input_tokens is not None and not 1 <= line.input_tokens <= TOKENS_MAX:
        raise DataError(f"{where}: input_tokens {line.input_tokens} is not between 1 and {TOKENS_MAX:,}", _FORM)
    if line.messages is not None and api != "chat":
        raise DataError(f"{where}: messages need the chat API, not {api}", "add --api chat")
    if line.output_tokens is not None and line.output_tokens < 1:
        raise DataError(f"{where}: output_tokens {line.output_tokens} is not above 0", _FORM)
    return line
