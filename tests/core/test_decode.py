"""Whatever bytes come from outside: the value, or one error with words."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop.core.decode import WORDS_MAX, NotDecoded, decode, decode_by, decode_lax, decode_toml


class Shape(msgspec.Struct):
    number: int
    words: dict[str, Any] = {}
    sizes: dict[str, dict[str, tuple[int, ...]]] = {}


BAD: dict[str, bytes | str] = {
    "nothing": b"",
    "no JSON": b"\x00\xff",
    "cut off": b'{"number": 1',
    "nested without end": b"[" * 100_000,
    "nested without end in a field": b'{"number": 1, "words": {"a": ' + b"[" * 100_000,
    "invalid UTF-8 in a text": b'{"number": 1, "words": {"a": "\xff"}}',
    "invalid UTF-8 in a key": b'{"number": 1, "words": {"\xff": 1}}',
    "a number of thousands of digits": b'{"number": ' + b"1" * 9000 + b"}",
    "half of a surrogate pair": '{"number": 1, "words": {"\ud800": 1}}',
    "another shape": b"[1, 2]",
    "escape sequences": b'{"number": "\\u001b[31m' + b"x" * 500 + b'"}',
}


@pytest.mark.parametrize("name", BAD)
def test_one_error_whatever_is_wrong(name: str) -> None:
    for read in (lambda: decode(BAD[name], Shape), lambda: decode_by(msgspec.json.Decoder(Shape), BAD[name])):
        with pytest.raises(NotDecoded) as error:
            read()
        words = str(error.value)
        assert words and len(words) <= WORDS_MAX and words.isprintable()


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_nothing_else_is_raised(data: bytes | str) -> None:
    for read in (lambda: decode(data), lambda: decode_lax(data)):
        try:
            read()
        except NotDecoded:
            continue


@given(st.dictionaries(st.text(), st.integers(-(2**60), 2**60) | st.text() | st.none()))
def test_json_is_read(value: dict[str, Any]) -> None:
    text = json.dumps(value)
    assert decode(text) == decode_lax(text) == value


def test_the_lax_one_takes_what_other_programs_write() -> None:
    assert decode_lax('{"a": Infinity}') == {"a": float("inf")}
    with pytest.raises(NotDecoded, match="line 2, column 1"):
        decode_lax("{\n")
    with pytest.raises(NotDecoded, match="nested too deeply"):
        decode_lax("[" * 100_000)
    with pytest.raises(NotDecoded):
        decode_lax("1" * 9000)


BAD_TOML = {
    "nested without end": ("x = " + "[" * 100_000, "nested too deeply"),
    "a number of thousands of digits": (f"number = {'1' * 9000}", "integer"),
    "another type": ("number = 'x'", "number: expected a whole number, got text"),
    "another type within": ("number = 1\nwords = [1]", "words: expected a table, got a list"),
    "another type in a table of any name": (
        "number = 1\n[sizes.mine]\nstreams = 1",
        "sizes.<name>.<name>: expected a list",
    ),
    "escape sequences": ('number = 1\n"\\u001b[31m" = 1\n"\\u001b[31m" = 2', "overwrite"),
    "no TOML": ("a =", "Invalid value"),
}


@pytest.mark.parametrize("name", BAD_TOML)
def test_toml_has_the_same_error_in_words_of_its_own(name: str) -> None:
    text, words = BAD_TOML[name]
    with pytest.raises(NotDecoded, match=words) as error:
        decode_toml(text, Shape)
    assert str(error.value).isprintable() and len(str(error.value)) <= WORDS_MAX
    assert decode_toml("number = 1", Shape) == Shape(1) and decode_toml("a = 1") == {"a": 1}
