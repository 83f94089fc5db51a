"""What is asked of a server: path and JSON body per API, and which extras it is asked for. Pure."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from decodetop.bench.reading import Api, Plan
from decodetop.errors import UsageError

PATHS: dict[Api, str] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "generate": "/generate",
    "completion": "/completion",
}


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """The extras a server takes; found out before the load. `words` = words a prompt needs to have the asked length.

    `min_tokens` is asked for only where `ignore_eos` did not do: SGLang runs a penalty over the logits in every step
    for it, which would slow what is being measured.
    """

    usage: bool = True
    continuous: bool = True
    token_ids: bool = True
    ignore_eos: bool = True
    min_tokens: bool = False
    words: int | None = None


def first_dialect(plan: Plan) -> Dialect:
    """Everything that `plan` can use."""
    return Dialect(token_ids=plan.api != "chat", ignore_eos=plan.ignore_eos)


def simpler(api: Api, dialect: Dialect) -> Dialect | None:
    """The next thing to try after a server refused `dialect` with 400 or 422; None when there is nothing left."""
    openai = api in ("completions", "chat")
    if openai and dialect.continuous:
        return msgspec.structs.replace(dialect, continuous=False)
    if openai and dialect.usage:
        return msgspec.structs.replace(dialect, usage=False)
    if dialect.token_ids:
        return msgspec.structs.replace(dialect, token_ids=False, usage=True, continuous=True)
    if dialect.ignore_eos:
        return msgspec.structs.replace(dialect, ignore_eos=False, usage=True, continuous=True)
    return None


def body(plan: Plan, model: str | None, dialect: Dialect, prompt: bytes, output_tokens: int | None = None) -> bytes:
    """The JSON body. `prompt` is JSON text: an array of ids where `dialect.token_ids`, else a string (chat: or an array
    of messages).
    """
    text = msgspec.Raw(prompt)
    length = plan.output_tokens if output_tokens is None else output_tokens
    fields: dict[str, Any]
    if plan.api == "generate":
        fields = {"input_ids" if dialect.token_ids else "text": text, "stream": True}
        fields["sampling_params"] = {"max_new_tokens": length, "temperature": plan.temperature}
        fields["sampling_params"] |= _ending(dialect, length, "min_new_tokens")
    elif plan.api == "completion":
        fields = {"prompt": text, "n_predict": length, "temperature": plan.temperature, "stream": True}
        fields |= {"cache_prompt": plan.shared_prefix_tokens > 0, "return_tokens": True} | _ending(dialect, length, "")
    else:
        fields = {"model": model} if model is not None else {}
        messages = text if prompt.startswith(b"[") else [{"role": "user", "content": text}]
        fields |= {"prompt": text} if plan.api == "completions" else {"messages": messages}
        fields |= {"max_tokens": length, "temperature": plan.temperature, "stream": True}
        fields |= _ending(dialect, length, "min_tokens")
        if dialect.usage:
            fields["stream_options"] = {"include_usage": True}
            if dialect.continuous:
                fields["stream_options"]["continuous_usage_stats"] = True
    return msgspec.json.encode(fields)


def _ending(dialect: Dialect, length: int, minimum: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"ignore_eos": True} if dialect.ignore_eos else {}
    if dialect.min_tokens and minimum:
        fields[minimum] = length
    return fields


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where an endpoint is. `prefix` is what stands before /v1 in its paths."""

    host: str
    port: int
    tls: bool
    prefix: str = ""

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def address(endpoint: str) -> Address:
    """Raises UsageError if `endpoint` is no http(s) URL."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"endpoint {endpoint!r}: {error}", "use for example http://127.0.0.1:30000") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise UsageError(f"endpoint {endpoint!r} is not a server's address", "use for example http://127.0.0.1:30000")
    tls = parts.scheme == "https"
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    return Address(host=parts.hostname, port=port or (443 if tls else 80), tls=tls, prefix=prefix)


def head(where: Address, method: str, path: str, length: int, key: str | None) -> bytes:
    """The request line and headers. No compression: an encoder on the way would hold tokens back."""
    from decodetop import __version__

    lines = [
        f"{method} {where.prefix}{path} HTTP/1.1",
        f"Host: {where.authority}",
        f"User-Agent: decodetop/{__version__}",
        "Accept: text/event-stream, application/json",
        "Accept-Encoding: identity",
        "Connection: keep-alive",
    ]
    if length:
        lines += ["Content-Type: application/json", f"Content-Length: {length}"]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join([*lines, "", ""]).encode()
