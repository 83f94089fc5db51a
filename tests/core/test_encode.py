"""JSON for the outside: what has no bytes in UTF-8 goes out as a question mark."""

from __future__ import annotations

import msgspec

from decodetop.core.encode import encodable, encode


class Named(msgspec.Struct):
    name: str
    by: dict[int, str] = {}


def test_half_of_a_surrogate_pair_has_no_bytes() -> None:
    assert encode(Named("inv\udcff", {1: "\ud800 a"})) == b'{"name":"inv?","by":{"1":"? a"}}'
    assert encodable(["\udcff", 1]) == ["?", 1]


def test_what_has_bytes_is_as_msgspec_writes_it() -> None:
    whole = Named("inv é", {1: "a"})
    assert encode(whole) == msgspec.json.encode(whole)
    value = {"b": 1, "a": [1.5]}
    assert encode(value, "deterministic") == msgspec.json.encode(value, order="deterministic")
    assert encodable(value) is value
