"""JSON and TOML from outside (files, servers, children): one decoder with one error, whatever is wrong with the bytes.

msgspec alone raises MsgspecError for a wrong shape, UnicodeDecodeError for some invalid UTF-8 and RecursionError for
nesting without end; the standard library adds ValueError for a number of thousands of digits. Who forgets one of them
falls over the file that has it.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, TypeVar, overload

import msgspec

from decodetop.core.outside import plain

T = TypeVar("T")

WORDS_MAX = 200


class NotDecoded(ValueError):
    """The data is not JSON (TOML), or not of the type asked for: one line of words, which may quote the data."""


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


@overload
def decode_toml(text: str) -> dict[str, Any]: ...
@overload
def decode_toml(text: str, kind: type[T], *, strict: bool = True) -> T: ...
def decode_toml(text: str, kind: Any = dict[str, Any], *, strict: bool = True) -> Any:
    """A file that the operator wrote, as `kind`. Raises NotDecoded and nothing else, in words of TOML."""
    try:
        return msgspec.convert(tomllib.loads(text), kind, strict=strict)
    except msgspec.ValidationError as error:
        raise NotDecoded(_wanted(error)) from error
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        raise NotDecoded("it is nested too deeply" if isinstance(error, RecursionError) else _words(error)) from error


_PLACED = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<where>.*)`)?", re.DOTALL)
_WRONG_TYPE = re.compile(r"Expected `(?P<wanted>[\w |]+)`, got `(?P<got>\w+)`")
_TOML_NAMES = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "a table", "date": "a date", "datetime": "a date", "time": "a time",
}  # fmt: skip


def _wanted(error: msgspec.ValidationError) -> str:
    """msgspec's word on a wrong type, with the field first and in the names of the file's own language."""
    placed = _PLACED.fullmatch(str(error))
    assert placed is not None
    what, where = placed["what"].replace("Object contains unknown field", "unknown field"), placed["where"]
    found = _WRONG_TYPE.fullmatch(what)
    if found is not None:
        wanted = " or ".join(_TOML_NAMES.get(name, name) for name in found["wanted"].split(" | ") if name != "null")
        what = f"expected {wanted}, got {_TOML_NAMES.get(found['got'], found['got'])}"
    # msgspec writes [...] for a table's name that may be any
    where = (where or "").replace("[...]", ".<name>").removeprefix(".")
    return _short(f"{where}: {what}" if where else what)


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "its JSON is nested too deeply"
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    return _short(str(error))


def _short(text: str) -> str:
    words = plain(text)
    return words if len(words) <= WORDS_MAX else words[: WORDS_MAX - 1] + "…"
