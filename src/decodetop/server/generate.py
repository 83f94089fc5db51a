"""One token asked of a server, on demand only: the one thing here that makes it work."""

from __future__ import annotations

from typing import NamedTuple

import httpx
import msgspec

from decodetop.core.clock import SECOND_NS, Clock
from decodetop.core.outside import plain
from decodetop.core.reach import root_words
from decodetop.server.client import BODY_MAX_BYTES, base_url
from decodetop.server.fetch import BadBody, client, fetch, in_time
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
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    content = msgspec.json.encode({"model": model, "prompt": "1 2 3", "max_tokens": 1, "temperature": 0})
    base = base_url(endpoint)
    began_ns = clock.now_ns()
    try:
        async with client(base) as http:
            asked = fetch(http, "POST", f"{base}/v1/completions", headers, most=BODY_MAX_BYTES, content=content)
            answer = await in_time(clock, GENERATE_S, asked)
    except TimeoutError as late:
        return Generated(None, str(late))
    except BadBody as bad:
        return Generated(None, f"its answer is {bad.message}")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return Generated(None, redact_text(root_words(error), (key,) if key else ()))
    if answer.code != 200:
        said = redact_text(answer.body[:120].decode("utf-8", "replace"), (key,) if key else ())
        return Generated(None, f"it answered {answer.code}: {plain(said)}")
    return Generated((clock.now_ns() - began_ns) / SECOND_NS * 1000)
