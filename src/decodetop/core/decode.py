"""JSON from outside (files, servers, children): one decoder with one error, whatever is wrong with the bytes.

msgspec alone raises MsgspecError for a wrong shape, UnicodeDecodeError for some invalid UTF-8 and RecursionError for
nesting without end; the standard library adds ValueError for a number of thousands of digits. Who forgets one of them
falls over the file that has it.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar, overload

import msgspec

from decodetop.core.outside import plain

T = TypeVar("T")

WORDS_MAX = 200


class NotDecoded(ValueError):
    """The data is not JSON, or not of the type asked for: one line of words, which may quote the data."""


@overload
def decode(data: bytes | bytearray | memoryview | str | msgspec.Raw) -> Any: ...
@overload
def decode(data: bytes | bytearray | memoryview | str | msgspec.Raw, kind: type[T]) -> T: ...
def decode(data: bytes | bytearray | memoryview | str | msgspec.Raw, kind: Any = Any) -> Any:
    """`data` as `kind`. Raises NotDecoded and nothing else."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotDecoded(_words(error)) from error


def decode_by(decoder: msgspec.json.Decoder[T], data: bytes | str | msgspec.Raw) -> T:
    """As `decode`, by a decoder that is kept where a type is read again and again."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotDecoded(_words(error)) from error


def decode_lax(data: bytes | str) -> Any:
    """As `decode`, as the standard library reads it: NaN and Infinity, a byte order mark, halves of surrogate pairs.

    For lists that other programs write.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotDecoded(_words(error)) from error


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "its JSON is nested too deeply"
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    words = plain(str(error))
    return words if len(words) <= WORDS_MAX else words[: WORDS_MAX - 1] + "…"
