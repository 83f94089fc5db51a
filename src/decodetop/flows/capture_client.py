"""The two requests that change what a server does: start and stop its profiler. Nothing else is ever posted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import httpx
import msgspec

from decodetop.core.clock import Clock
from decodetop.core.outside import plain
from decodetop.core.reach import certificate_hint, is_nobody, root_words
from decodetop.errors import RequestError
from decodetop.server.client import base_url
from decodetop.server.fetch import client, fetch, in_time
from decodetop.server.redact import redact_text

Control = Literal["/start_profile", "/stop_profile"]

TEXT_MAX = 300


class Unreachable(RequestError):
    """No connection: nothing was sent. `nobody` listens there: nothing can be profiling."""

    def __init__(self, message: str, hint: str, *, nobody: bool) -> None:
        super().__init__(message, hint)
        self.nobody = nobody


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
            return await in_time(self._clock, timeout_s, self._send(path, body))
        except TimeoutError:
            message = f"{self.endpoint} did not answer POST {path} within {timeout_s:g} s"
            raise RequestError(message, "is the server stuck? its log says") from None
        except (httpx.ConnectError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            message = f"can't connect to {self.endpoint}: {self._clean(root_words(error))}"
            hint = certificate_hint(error) or "is the server up, and is this its address and port?"
            raise Unreachable(message, hint, nobody=is_nobody(error)) from None
        except (httpx.HTTPError, OSError) as error:  # TLS that breaks later is an OSError too
            message = f"{self.endpoint}: the connection broke at POST {path}: {self._clean(root_words(error))}"
            raise RequestError(message, "did the server die? its log says") from None

    async def _send(self, path: Control, body: Mapping[str, object] | None) -> Reply:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        content = None if body is None else msgspec.json.encode(body)
        url = self._base + path
        async with client(self._base) as http:
            got = await fetch(http, "POST", url, headers, most=4 * TEXT_MAX, content=content, begin_only=True)
        # its code is what counts, whatever the words are
        said = got.body.decode("utf-8", "replace") or (f"(a body {got.trouble})" if got.trouble else "")
        return Reply(code=got.code, text=self._clean(said))

    def _clean(self, text: str) -> str:
        line = plain(redact_text(text, (self._key,) if self._key else ()))
        return line if len(line) <= TEXT_MAX else line[: TEXT_MAX - 1] + "…"
