"""The only way a server is asked anything: GETs from an allow-list, each with a deadline and a size limit.

A GET is not harmless: SGLang's `/start_profile` starts a profile and `/health` runs a forward pass, TensorRT-LLM's
`/metrics` drains a queue. So what is not listed here is refused before a socket is touched.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from decodetop.core.clock import Clock
from decodetop.core.decode import NotDecoded, decode
from decodetop.core.reach import certificate_hint, is_tls, root_words
from decodetop.errors import RequestError
from decodetop.server.fetch import BadBody, Fetched, client, fetch, in_time
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
            got = await in_time(self._clock, timeout_s, self._fetch(path))
        except TimeoutError as late:
            raise NoAnswer("hung", f"{late} to {path}") from None
        except BadBody as bad:
            raise NoAnswer("not_a_server", f"its answer to {path} is {bad.message}", bad.hint) from None
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError, ValueError) as error:
            raise self._no_answer(path, error) from None
        return Answer(code=got.code, content_type=got.content_type, body=got.body)

    def clean(self, text: str) -> str:
        """One line of at most 200 characters without keys."""
        line = " ".join(redact_text(text, (self._key,) if self._key else ()).split())
        return line if len(line) <= 200 else line[:199] + "…"

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def _fetch(self, path: str) -> Fetched:
        if self._http is None:
            self._http = client(self._base)
        headers = {"Accept": "text/plain" if path.endswith("/metrics") else "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return await fetch(self._http, "GET", self._base + path, headers, most=BODY_MAX_BYTES)

    def _no_answer(self, path: str, error: Exception) -> NoAnswer:
        what = self.clean(root_words(error))
        if isinstance(error, httpx.ConnectError):
            if is_tls(error):
                hint = certificate_hint(error)
                how = f" ({hint})" if hint else ""
                return NoAnswer("down", f"TLS failed: {what}{how}")
            return NoAnswer("down", what, "is the server running, and is the port right?")
        if isinstance(error, httpx.RemoteProtocolError) and "illegal" in what.lower():
            return NoAnswer("not_a_server", f"does not speak HTTP: {what}", "check the port")
        if isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol)):
            return NoAnswer("down", f"not an address: {what}", "use for example http://127.0.0.1:30000")
        return NoAnswer("down", f"the connection broke at {path}: {what}")


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
