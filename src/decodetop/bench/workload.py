"""Which request is sent when, and with what: synthetic or real prompts; in a loop, at a rate, or as recorded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from decodetop.bench.prompts import Prompts
from decodetop.bench.reading import Plan
from decodetop.bench.request import Dialect
from decodetop.core.regular import read_regular
from decodetop.errors import DataError

FILE_MAX_BYTES = 1 << 30


class Line(msgspec.Struct, frozen=True):
    """One request of a JSONL file: `prompt` or `messages`, and if it likes its output length and its time.

    `t_s` is when it is due, in seconds from the first; all lines have it or none.
    """

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    output_tokens: int | None = None
    t_s: float | None = None


class Workload:
    """The prompts and times of one plan. Index -1 and below are warm-up, always synthetic."""

    def __init__(self, plan: Plan, dialect: Dialect, lines: Sequence[Line] = ()) -> None:
        self._plan = plan
        self._dialect = dialect
        self._lines = lines
        self._synthetic = Prompts(plan.seed, dialect.words or plan.input_tokens, plan.shared_prefix_tokens)

    def prompt(self, index: int, dialect: Dialect) -> tuple[bytes, Dialect]:
        """Request `index`'s prompt as JSON text, and the dialect it is to be sent in (real prompts are text)."""
        if self._lines and index >= 0:
            line = self._lines[index % len(self._lines)]
            real = line.messages if line.messages is not None else line.prompt
            return msgspec.json.encode(real), msgspec.structs.replace(dialect, token_ids=False)
        if dialect.token_ids:
            return self._synthetic.ids(index), dialect
        return self._synthetic.words(index), dialect

    def output_tokens(self, index: int) -> int:
        """The length asked of measured request `index`."""
        own = self._lines[index % len(self._lines)].output_tokens if self._lines else None
        return self._plan.output_tokens if own is None else own

    def arrivals_ns(self, count: int) -> list[int] | None:
        """When requests 0 to `count` - 1 are due, ns from the start; None = each when a stream is free."""
        if self._plan.request_rate_s is not None:
            return poisson_ns(self._plan.seed, self._plan.request_rate_s, count)
        if self._lines and self._lines[0].t_s is not None:
            return replayed_ns(self._lines, count)
        return None


def poisson_ns(seed: int, rate_s: float, count: int) -> list[int]:
    """`count` due times in ns at `rate_s` requests a second, fixed ahead so that a slow server can't thin them out."""
    source = random.Random(f"{seed}:arrivals")
    at_s, found = 0.0, []
    for _ in range(count):
        found.append(round(at_s * 1e9))
        at_s += source.expovariate(rate_s)
    return found


def replayed_ns(lines: Sequence[Line], count: int) -> list[int]:
    """The file's times from its first; repeated after its last when there are fewer lines than requests."""
    times = [line.t_s or 0.0 for line in lines]
    span_s = times[-1] - times[0] + (times[-1] - times[0]) / max(1, len(times) - 1)
    turns = (divmod(index, len(lines)) for index in range(count))
    return [round((times[place] - times[0] + turn * span_s) * 1e9) for turn, place in turns]


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


_FORM = 'one JSON object a line: {"prompt": "..."} or {"messages": [...]}, with "output_tokens" and "t_s" if you like'


def _line(text: bytes, where: str, api: str) -> Line:
    try:
        line = msgspec.json.decode(text, type=Line)
    except msgspec.MsgspecError as error:
        raise DataError(f"{where}: {error}", _FORM) from error
    if (line.prompt is None) == (line.messages is None):
        raise DataError(f"{where}: a line has either prompt or messages", _FORM)
    if line.messages is not None and api != "chat":
        raise DataError(f"{where}: messages need the chat API, not {api}", "add --api chat")
    if line.output_tokens is not None and line.output_tokens < 1:
        raise DataError(f"{where}: output_tokens {line.output_tokens} is not above 0", _FORM)
    return line
