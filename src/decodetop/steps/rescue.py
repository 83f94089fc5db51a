"""Events out of text that is not quite JSON, or not quite as expected: one by one, so that damage stays where it is.

Seen in real traces: NaN and inf (kineto #105), raw newlines (pytorch #113001), unescaped quotes (pytorch #146900),
backslashes (pytorch #98432), invalid UTF-8, numbers as strings, uint64 ids, files cut anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

import msgspec

from decodetop.core.decode import NotDecoded, decode
from decodetop.steps.chunks import BOUNDARY, Chunks

GLUE_MAX = 6
"""A boundary inside a nested object cuts an event; so many pieces are tried together."""
GLUE_BUDGET = 20_000
"""Failed attempts to glue before it is given up for the whole file: garbage must not take hours."""
CARRY_MAX_BYTES = 1 << 20
TIME_MAX_NS = 1 << 62

_NULL = msgspec.Raw(b"null")
_PLAIN = re.compile(r"(-?)(\d{1,17})(?:\.(\d*))?$", re.ASCII)
_NOT_A_NUMBER = re.compile(r"([:\[,]\s*)-?(?:inf(?:inity)?|nan)\b(?=\s*[,}\]])", re.IGNORECASE)
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu])')
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


class Loose(msgspec.Struct, gc=False):
    """Any event, its fields as text: nothing but broken syntax makes this decode fail."""

    ph: msgspec.Raw = _NULL
    cat: msgspec.Raw = _NULL
    name: msgspec.Raw = _NULL
    pid: msgspec.Raw = _NULL
    tid: msgspec.Raw = _NULL
    ts: msgspec.Raw = _NULL
    dur: msgspec.Raw = _NULL
    args: msgspec.Raw = _NULL


_LIST = msgspec.json.Decoder(list[Loose])
_ONE = msgspec.json.Decoder(Loose)
_LAX = json.JSONDecoder(strict=False, parse_float=str, parse_constant=lambda _: None)


class Rescue:
    """`events` of one chunk after the other. What is left of a chunk that may have been cut wrongly is carried on."""

    def __init__(self, chunks: Chunks) -> None:
        self.unreadable = 0
        self.unfinished = False
        self._chunks = chunks
        self._carry = b""
        self._budget = GLUE_BUDGET

    def with_carry(self, text: bytes) -> bytes:
        """The list of events with what was carried over in front."""
        carry, self._carry = self._carry, b""
        return b"[" + carry + b"," + text[1:] if carry else text

    def events(self, text: bytes) -> Iterator[Loose]:
        if not self._chunks.last:
            try:
                yield from _LIST.decode(text)
                return
            except (msgspec.DecodeError, RecursionError):
                pass
        pieces = BOUNDARY.split(text[1:-1])
        pieces[:-1] = [piece + b"}" for piece in pieces[:-1]]
        yield from self._one_by_one(pieces)

    def _one_by_one(self, pieces: list[bytes]) -> Iterator[Loose]:
        at = 0
        while at < len(pieces):
            event, used, rest = self._event(pieces[at : at + GLUE_MAX])
            if event is not None:
                yield event
            elif self._may_go_on(pieces, at):
                self._carry = b",".join(pieces[at:])
                return
            elif pieces[at].strip():
                self.unfinished |= self._chunks.last and at == len(pieces) - 1
                self.unreadable += 1
            at += used
            if rest.startswith("]"):
                self._chunks.end_events(b",".join([rest.encode(), *pieces[at:]]))
                return
        self.unfinished |= self._chunks.last

    def _may_go_on(self, pieces: list[bytes], at: int) -> bool:
        """The event at the end of the chunk may have been cut inside."""
        return (
            not self._chunks.last
            and at + GLUE_MAX > len(pieces)
            and _open(pieces[at])
            and sum(map(len, pieces[at:])) < CARRY_MAX_BYTES
        )

    def _event(self, pieces: list[bytes]) -> tuple[Loose | None, int, str]:
        """The event that starts with the first piece, how many pieces it took, and what follows it in the last."""
        glued = pieces[0]
        for used in range(1, len(pieces) + 1):
            event, rest = _decode(glued)
            if event is not None or rest:
                return event, used, rest
            if used == len(pieces) or self._budget <= 0 or not _open(glued):
                break
            self._budget -= 1
            glued += b"," + pieces[used]
        return None, 1, ""


def _open(text: bytes) -> bool:
    """More braces opened than closed; a rough word, for braces in names count too."""
    return text.count(b"{") > text.count(b"}")


def _decode(text: bytes) -> tuple[Loose | None, str]:
    try:
        return _ONE.decode(text), ""
    except (msgspec.DecodeError, RecursionError):
        return _repaired(text.decode("utf-8", "replace"))


def _repaired(text: str) -> tuple[Loose | None, str]:
    """The event and what follows it. `]` alone (an empty list) gives no event and the rest."""
    text = text.strip().lstrip(",").lstrip()
    if text.startswith("]"):
        return None, text
    for attempt in (text, _mended(text)):
        try:
            value, end = _LAX.raw_decode(attempt)
            rest = attempt[end:].lstrip(" \t\r\n,")
            if isinstance(value, dict) and (not rest or rest.startswith("]")):
                return _ONE.decode(msgspec.json.encode(value)), rest
        except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
            continue
    return None, ""


def _mended(text: str) -> str:
    text = _NOT_A_NUMBER.sub(r"\1null", text)
    return _TRAILING_COMMA.sub(r"\1", _BAD_ESCAPE.sub(r"\\\\", text))


def text_of(raw: msgspec.Raw) -> str | None:
    """A string; None for null and for what is no string. Invalid UTF-8 becomes the replacement character."""
    data = bytes(raw)
    if not data.startswith(b'"'):
        return None
    try:
        return decode(data, str)
    except NotDecoded:
        try:
            return str(json.loads(data.decode("utf-8", "replace"), strict=False))
        except ValueError:
            return None


def id_of(raw: msgspec.Raw) -> int | str:
    """A pid or tid: an int where it is one, also as text."""
    data = bytes(raw).strip(b'"')
    try:
        return int(data)
    except ValueError:
        return text_of(raw) or data.decode("utf-8", "replace")


def int_of(raw: msgspec.Raw) -> int:
    """A correlation as a non-negative 63-bit int; -1 for none."""
    data = bytes(raw).strip(b'"')
    try:
        return int(data) & (TIME_MAX_NS * 2 - 1)
    except ValueError:
        return -1


def ns_of(raw: msgspec.Raw) -> int | None:
    """Microseconds as text, or a string of them, as exact integer ns; None where there is no finite number."""
    text = bytes(raw).decode("ascii", "replace").strip('" ')
    match = _PLAIN.match(text)
    if match:
        sign, whole, fraction = match.groups()
        fraction = fraction or ""
        if len(fraction) <= 3:
            return _bounded(int(whole) * 1000 + int(fraction.ljust(3, "0")), sign)
    try:
        number = Decimal(text)
        if not number.is_finite() or number.adjusted() > 18:
            return None
        return _bounded(round(abs(number) * 1000), "-" if number < 0 else "")
    except (InvalidOperation, ValueError):
        return None


def _bounded(value_ns: int, sign: str) -> int | None:
    if value_ns >= TIME_MAX_NS:
        return None
    return -value_ns if sign else value_ns
