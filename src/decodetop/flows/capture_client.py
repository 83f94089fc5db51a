"""The two requests that change what a server does: start and stop its profiler. Nothing else is ever posted."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Literal

import httpx
import msgspec

from decodetop.core.clock import Clock, Late, within
from decodetop.core.outside import plain
from decodetop.errors import RequestError
from decodetop.server.client import base_url, root_words
from decodetop.server.redact import redact_text

Control = Literal["/start_profile", "/stop_profile"]

TEXT_MAX = 300


class Unreachable(RequestError):
    """Nobody listens at the address: nothing was sent, and nothing can be profiling there."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is the body in one line, without keys."""

    code: int
    text: str


class ProfileClient:
    """Talks to one server. `key` is sent to this origin only and shown nowhere."""

    def __init__(self, endpoint: str, clock: Clock, key: str | None) -> None:
        self.endpoint = endpoint
        self._base = base_url(endpoint)
        self._clock = clock
        self._key = key

    @property
    def has_key(self) -> bool:
        return self._key is not None

    async def post(self, path: Control, body: Mapping[str, object] | None, timeout_s: float) -> Reply:
        """Raises Unreachable, or RequestError when an answer does not come."""
        try:
            return await within(self._clock, timeout_s, self._send(path, body))
        except Late as late:
            late.task.cancel()
            await asyncio.wait({late.task})
            if not late.task.cancelled():
                late.task.exception()  # seen: asyncio would print it otherwise
            message = f"{self.endpoint} did not answer POST {path} within {timeout_s:g} s"
            raise RequestError(message, "is the server stuck? its log says") from None
        except (httpx.ConnectError, httpx.InvalidURL, httpx.UnsupportedProtocol, ssl.SSLError) as error:
            message = f"can't connect to {self.endpoint}: {self._clean(root_words(error))}"
            raise Unreachable(message, "is the server up, and is this its address and port?") from None
        except (httpx.HTTPError, OSError) as error:
            message = f"{self.endpoint}: the connection broke at POST {path}: {self._clean(root_words(error))}"
            raise RequestError(message, "did the server die? its log says") from None

    async def _send(self, path: Control, body: Mapping[str, object] | None) -> Reply:
        headers = {"Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = msgspec.json.encode(body)
        # no proxies and no netrc of the environment, no redirects: only the named host is ever asked
        async with (
            httpx.AsyncClient(
                trust_env=False, follow_redirects=False, timeout=None, verify=self._base.startswith("https")
            ) as http,
            http.stream("POST", self._base + path, headers=headers, content=content) as response,
        ):
            text = b""
            async for part in response.aiter_bytes():
                text += part
                if len(text) > 4 * TEXT_MAX:
                    break
            return Reply(code=response.status_code, text=self._clean(text.decode("utf-8", "replace")))

    def _clean(self, text: str) -> str:
        line = plain(redact_text(text, (self._key,) if self._key else ()))
        return line if len(line) <= TEXT_MAX else line[: TEXT_MAX - 1] + "…"
