"""One request of the monitor's and what came of it, whatever the server means by it: nothing is followed, nothing is
read or unpacked without end. The load has a client of its own (see bench.http).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeVar

import httpx
import msgspec

from decodetop.core.clock import Clock, Late, within
from decodetop.core.reach import trust
from decodetop.errors import RequestError

T = TypeVar("T")


class BadBody(RequestError):
    """The answer came, and its body is none that can be read."""


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """`body` is unpacked. `trouble` = what was wrong with it, where only its begin was wanted."""

    code: int
    content_type: str = ""
    body: bytes = b""
    trouble: str = ""


def client(base: str) -> httpx.AsyncClient:
    """No proxies and no netrc of the environment, no redirects: only the named host is ever asked. The deadline is of
    `in_time`: one for each read would let a slow answer go on without end."""
    verify = trust() if base.lower().startswith("https") else False
    return httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=None, verify=verify)


async def in_time(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """Raises TimeoutError after `seconds` of `clock`; the work is over then."""
    try:
        return await within(clock, seconds, work)
    except Late as late:
        late.task.cancel()
        await asyncio.wait({late.task})
        if not late.task.cancelled():
            late.task.exception()  # seen: asyncio would print it otherwise
        raise TimeoutError(f"no answer within {seconds:g} s") from None


async def fetch(
    http: httpx.AsyncClient,
    method: Literal["GET", "POST"],
    url: str,
    headers: Mapping[str, str],
    *,
    most: int,
    content: bytes | None = None,
    begin_only: bool = False,
) -> Fetched:
    """The answer of at most `most` bytes. Raises BadBody for a longer or damaged one, or, with `begin_only`, gives its
    begin; and what httpx raises.
    """
    headers = {**headers, "Accept-Encoding": "identity"}
    async with http.stream(method, url, headers=headers, content=content) as response:
        kind = response.headers.get("content-type", "")
        body, trouble = bytearray(), ""
        try:
            await _read(response, body, most)
        except BadBody as bad:
            if not begin_only:
                raise
            trouble = bad.message
        return Fetched(code=response.status_code, content_type=kind, body=bytes(body[:most]), trouble=trouble)


async def _read(response: httpx.Response, body: bytearray, most: int) -> None:
    inflate = _Inflater(response.headers.get("content-encoding", "identity"))
    async for raw in response.aiter_raw():
        body += inflate.take(raw, most + 1 - len(body))
        if len(body) > most:
            raise BadBody(f"longer than {most >> 20} MiB" if most >> 20 else f"longer than {most:,} bytes")
    inflate.end()


class _Inflater:
    """Some proxies compress although told not to, and a little hostile gzip is gigabytes: no more is unpacked than is
    wanted."""

    def __init__(self, coding: str) -> None:
        """Raises BadBody for a coding that is not read."""
        self._coding = coding.strip().lower()
        self._unpack: Callable[[bytes, int], bytes] | None = None
        self._ended: Callable[[], bool] = lambda: True
        if self._coding in ("gzip", "deflate"):
            made = zlib.decompressobj(zlib.MAX_WBITS | 32 if self._coding == "gzip" else zlib.MAX_WBITS)
            self._unpack, self._ended = made.decompress, lambda: made.eof
        elif self._coding not in ("", "identity"):
            raise BadBody(f"compressed as {self._coding[:40]}", "is there a proxy before it?")

    def take(self, raw: bytes, most: int) -> bytes:
        """At most `most` bytes of content; what is left over is lost, for nobody wants more."""
        if self._unpack is None:
            return raw
        try:
            return self._unpack(raw, most)
        except zlib.error as error:
            raise BadBody(f"damaged {self._coding}: {error}") from None

    def end(self) -> None:
        """Raises BadBody where there should have been more."""
        if not self._ended():
            raise BadBody(f"damaged {self._coding}: it ends early")
