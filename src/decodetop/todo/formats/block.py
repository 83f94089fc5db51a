"""What every format reads into, and writes from. Pure."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from decodetop.todo.document import Item


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A list as read. Items have `content` and `status`, perhaps an `id`; `depths` are their levels of nesting.

    `remarks` says what was not read, in words. `passed` are lines of prose between the items: normal in a plan that is
    followed, and to be told to who imports it.
    """

    format: str
    items: tuple[Item, ...] = ()
    depths: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()


def encoded(value: str, safe: str = "") -> str:
    """Percent-encoded, for what a line has no sign for; half of a surrogate pair, which has no bytes, is `?`."""
    return quote(value, safe=safe, errors="replace")
