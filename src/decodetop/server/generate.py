"""One token asked of a server, on demand only: the one thing here that makes it work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import httpx

from decodetop.core.clock import SECOND_NS, Clock
from decodetop.server.client import base_url, root_words
from decodetop.server.reading import Generation, Server
from decodetop.server.redact import redact_text

GENERATE_S = 30.0


class Generated(NamedTuple):
    """`took_ms` when it worked, else `error`."""

    took_ms: float | None
    error: str = ""


async def generation(server: Server, key: str | None, clock: Clock) -> Generation:
    """What came of asking this server for one token, now."""
    seen = await one_token(server.endpoint, server.served_name or server.model or "", key, clock)
    error = None if seen.took_ms is not None else seen.error or "it did not answer"
    return Generation(t_ns=clock.now_ns(), took_ms=seen.took_ms, error=error)


async def one_token(endpoint: str, model: str, key: str | None, clock: Clock) -> Generated:
    """POST /v1/completions with one token; never raises for what the server does."""
    headers: Mapping[str, str] = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"model": model, "prompt": "1 2 3", "max_tokens": 1, "temperature": 0}
    began_ns = clock.now_ns()
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=GENERATE_S, headers=headers) as http:
            answer = await http.post(f"{base_url(endpoint)}/v1/completions", json=body)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return Generated(None, redact_text(root_words(error), (key,) if key else ()))
    if answer.status_code != 200:
        said = redact_text(answer.text[:120], (key,) if key else ())
        return Generated(None, f"it answered {answer.status_code}: {' '.join(said.split())}")
    return Generated((clock.now_ns() - began_ns) / SECOND_NS * 1000)
