"""The only way a server is asked anything: GETs from an allow-list, each with a deadline and a size limit.

A GET is not harmless: SGLang's `/start_profile` starts a profile and `/health` runs a forward pass, TensorRT-LLM's
`/metrics` drains a queue. So what is not listed here is refused before a socket is touched.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import zlib
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from decodetop.core.clock import Clock, Late, within
from decodetop.core.decode import NotDecoded, decode
from decodetop.errors import RequestError
from decodetop.server.reading import Engine, Status
from decodetop.server.redact import redact_text

IDENTIFY: frozenset[str] = frozenset({"/v1/models", "/model_info", "/version", "/props", "/api/version", "/info"})
"""Safe on every engine known: an engine that does not have one answers 404."""

SAFE: Mapping[Engine, frozenset[str]] = {
    "sglang": frozenset(
        {"/v1/models", "/model_info", "/server_info", "/metrics", "/v1/loads", "/get_model_info", "/get_server_info"}
    ),
    "vllm": frozenset({"/v1/models", "/version", "/metrics"}),
    "llamacpp": frozenset({"/v1/models", "/props", "/slots", "/metrics", "/health"}),
    "ollama": frozenset({"/v1/models", "/api/version", "/api/ps"}),
    "tgi": frozenset({"/v1/models", "/info", "/metrics"}),
    "lmdeploy": frozenset({"/v1/models", "/metrics"}),
    "trtllm": frozenset({"/v1/models", "/version", "/prometheus/metrics"}),
    "unknown": IDENTIFY,
}
"""Read in the engines' sources: each is a GET that changes nothing and runs nothing on the GPU."""

BODY_MAX_BYTES = 8 << 20
"""A scrape of SGLang is 90 kB; a longer answer is no answer of these paths."""
REQUEST_S = 2.0


class PathRefused(RequestError):
    """The path is not on the engine's allow-list; nothing was sent."""


class NoAnswer(RequestError):
    """No usable answer. `status` is what that says of the server."""

    def __init__(self, status: Status, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    content_type: str
    body: bytes

    @property
    def ok(self) -> bool:
        return self.code == 200

    @property
    def denied(self) -> bool:
        return self.code in (401, 403)

    def json(self) -> Any:
        """The body decoded; None if it is no JSON."""
        try:
            return decode(self.body)
        except NotDecoded:
            return None

    def object(self) -> dict[str, Any]:
        """The body if it is a JSON object, else an empty one."""
        value = self.json()
        return value if isinstance(value, dict) else {}

    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


class SafeClient:
    """Asks one server. `api_key` is sent to this origin only; it is never stored elsewhere or shown."""

    def __init__(self, endpoint: str, clock: Clock, api_key: str | None = None) -> None:
        self.endpoint = endpoint
        self._base = base_url(endpoint)
        self._clock = clock
        self._key = api_key
        self._http: httpx.AsyncClient | None = None

    @property
    def has_key(self) -> bool:
        return self._key is not None

    async def get(self, engine: Engine, path: str, timeout_s: float = REQUEST_S) -> Answer:
        """Raises PathRefused, or NoAnswer (down, hung, not_a_server)."""
        if path not in SAFE[engine]:
            raise PathRefused(f"GET {path} is not on the list of safe addresses of {engine}")
        try:
            code, content_type, body = await within(self._clock, timeout_s, self._fetch(path))
        except Late as late:
            late.task.cancel()
            await asyncio.wait({late.task})
            if not late.task.cancelled():
                late.task.exception()  # seen: asyncio would print it otherwise
            raise NoAnswer("hung", f"no answer within {timeout_s:g} s to {path}") from None
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError, ValueError) as error:
            raise self._no_answer(path, error) from None
        return Answer(code=code, content_type=content_type, body=body)

    def clean(self, text: str) -> str:
        """One line of at most 200 characters without keys."""
        line = " ".join(redact_text(text, (self._key,) if self._key else ()).split())
        return line if len(line) <= 200 else line[:199] + "…"

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def _fetch(self, path: str) -> tuple[int, str, bytes]:
        if self._http is None:
            # no proxies and no netrc of the environment, no redirects: only the named host is ever asked
            self._http = httpx.AsyncClient(
                trust_env=False, follow_redirects=False, timeout=None, verify=self._base.startswith("https")
            )
        accept = "text/plain" if path.endswith("/metrics") else "application/json"
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        async with self._http.stream("GET", self._base + path, headers=headers) as response:
            parts: list[bytes] = []
            size = 0
            inflate = _inflater(response.headers.get("content-encoding", "identity"), path)
            async for raw in response.aiter_raw():
                part = inflate(raw, BODY_MAX_BYTES + 1 - size)
                size += len(part)
                if size > BODY_MAX_BYTES:
                    limit = BODY_MAX_BYTES >> 20
                    raise NoAnswer("not_a_server", f"its answer to {path} is longer than {limit} MiB")
                parts.append(part)
            return response.status_code, response.headers.get("content-type", ""), b"".join(parts)

    def _no_answer(self, path: str, error: Exception) -> NoAnswer:
        what = self.clean(root_words(error))
        if isinstance(error, httpx.ConnectError):
            if _is_tls(error):
                return NoAnswer("down", f"TLS failed: {what}", "check the scheme and the certificate")
            return NoAnswer("down", what, "is the server running, and is the port right?")
        if isinstance(error, httpx.RemoteProtocolError) and "illegal" in what.lower():
            return NoAnswer("not_a_server", f"does not speak HTTP: {what}", "check the port")
        if isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol)):
            return NoAnswer("down", f"not an address: {what}", "use for example http://127.0.0.1:30000")
        return NoAnswer("down", f"the connection broke at {path}: {what}")


def _inflater(coding: str, path: str) -> Callable[[bytes, int], bytes]:
    """(raw, most) -> at most `most` bytes of content. Some proxies compress although told not to, and a little
    hostile gzip is gigabytes: no more of it is unpacked than is wanted.
    """
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return lambda raw, most: raw
    if coding not in ("gzip", "deflate"):
        raise NoAnswer("not_a_server", f"its answer to {path} is compressed as {coding}", "is there a proxy before it?")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32 if coding == "gzip" else zlib.MAX_WBITS)

    def inflate(raw: bytes, most: int) -> bytes:
        try:
            return unpack.decompress(raw, most)
        except zlib.error as error:
            raise NoAnswer("not_a_server", f"its answer to {path} is damaged {coding}: {error}") from None

    return inflate


def root_words(error: BaseException) -> str:
    """What the system said, below the layers that say less (`All connection attempts failed`)."""
    words = str(error) or type(error).__name__
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, ssl.SSLError):  # its errno is not the system's
            verified = getattr(below, "verify_message", "")
            return str(verified or below.reason or words).lower().replace("_", " ")
        if isinstance(below, BaseExceptionGroup):
            below = below.exceptions[0]
            continue
        if isinstance(below, OSError) and below.errno is not None:
            said = below.strerror if isinstance(below, socket.gaierror) else os.strerror(below.errno)
            return (said or words).lower()
        below = below.__cause__ or below.__context__
    return words


def _is_tls(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


def base_url(endpoint: str) -> str:
    """The server's root: `http://box:8000/v1` means `http://box:8000`."""
    return endpoint.rstrip("/").removesuffix("/v1").rstrip("/")


def host_port(endpoint: str) -> tuple[str, int]:
    """Lower-case host and port (80 or 443 when not given)."""
    parts = urlsplit(endpoint)
    try:
        port = parts.port
    except ValueError:
        port = None
    return (parts.hostname or "").lower(), port or (443 if parts.scheme == "https" else 80)
