"""JSON for the outside.

Half of a surrogate pair (a file name that is not UTF-8, an escape in a foreign list) has no bytes: msgspec refuses it
with UnicodeEncodeError, and whoever forgets that falls over the name of a folder. It goes out as `?`.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from decodetop.core.decode import decode_lax


def encode(value: Any, order: Literal["deterministic", "sorted"] | None = None) -> bytes:
    """`value` as JSON in one line."""
    try:
        return msgspec.json.encode(value, order=order)
    except UnicodeEncodeError:
        return msgspec.json.encode(encodable(msgspec.to_builtins(value)), order=order)


def encodable(value: Any) -> Any:
    """`value` without halves of surrogate pairs, which JSON may hold and UTF-8 can't; without any, itself."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return decode_lax(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value
