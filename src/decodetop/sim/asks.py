"""What a client asks for: the bodies of /v1/completions, /v1/chat/completions and /generate, checked as SGLang does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from decodetop.core.decode import NotDecoded, decode

Api = Literal["completions", "chat", "generate"]
DEFAULT_TOKENS = 128
CHAT_TEMPLATE_TOKENS = 8
"""A chat prompt is longer than its words by the template's own tokens."""


class Refused(Exception):
    """Answer with `status` and SGLang's error object."""

    def __init__(self, message: str, status: int = 400, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.body = msgspec.json.encode(
            {"object": "error", "message": message, "type": kind, "param": None, "code": status}
        )


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `prompt` = its tokens (ids or words), which is what the prefix cache compares."""

    api: Api
    model: str
    prompt: tuple[int | str, ...]
    max_tokens: int
    stream: bool
    include_usage: bool
    continuous_usage: bool


def parse(api: Api, body: bytes, served_name: str, context_length: int) -> Ask:
    """Raises Refused. An unknown model is served all the same, as SGLang does."""
    try:
        fields = decode(body)
    except NotDecoded as error:
        raise Refused(f"1 validation error: body is not JSON: {error}", kind="Bad Request") from error
    if not isinstance(fields, dict):
        raise Refused("1 validation error: body is not an object", kind="Bad Request")
    sampling = fields.get("sampling_params") or {} if api == "generate" else fields
    if not isinstance(sampling, dict):
        raise Refused("sampling_params must be one object", kind="Bad Request")
    if sampling.get("n", 1) not in (1, None):
        raise Refused("the simulated server answers n = 1 only")
    ask = Ask(
        api=api,
        model=str(fields.get("model") or served_name),
        prompt=_prompt(api, fields),
        max_tokens=_max_tokens(sampling),
        stream=bool(fields.get("stream", False)),
        include_usage=_stream_option(fields, "include_usage"),
        continuous_usage=_stream_option(fields, "continuous_usage_stats"),
    )
    if len(ask.prompt) >= context_length:
        message = f"The input ({len(ask.prompt)} tokens) is longer than the model's context length"
        raise Refused(f"{message} ({context_length} tokens).")
    return ask


def _max_tokens(sampling: dict[str, Any]) -> int:
    for name in ("max_completion_tokens", "max_tokens", "max_new_tokens"):
        value = sampling.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            message = (
                "1 validation error:\n  {'type': 'value_error', 'loc': ('body', '%s'), 'msg': '%s must be positive'}"
            )
            raise Refused(message % (name, name), kind="Bad Request")
        return value
    return DEFAULT_TOKENS


def _stream_option(fields: dict[str, Any], name: str) -> bool:
    options = fields.get("stream_options")
    return isinstance(options, dict) and bool(options.get(name, False))


def _prompt(api: Api, fields: dict[str, Any]) -> tuple[int | str, ...]:
    if api == "chat":
        messages = fields.get("messages")
        if not isinstance(messages, list) or not messages:
            raise Refused("1 validation error: messages must be a list", kind="Bad Request")
        words = [word for message in messages for word in _words(message)]
        return ("<chat>",) * CHAT_TEMPLATE_TOKENS + tuple(words)
    given = fields.get("prompt") if api == "completions" else fields.get("input_ids", fields.get("text"))
    if isinstance(given, str):
        return tuple(given.split()) or ("",)
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], list | str):
        given = given[0]
        return tuple(given.split()) if isinstance(given, str) else _ids(given)
    if isinstance(given, list) and given:
        return _ids(given)
    raise Refused("1 validation error: a prompt is needed: a text or a list of token ids", kind="Bad Request")


def _ids(given: Sequence[Any]) -> tuple[int | str, ...]:
    if not given or not all(isinstance(token, int) for token in given):
        raise Refused("the simulated server takes one prompt a request: a text or token ids")
    return tuple(given)


def _words(message: Any) -> list[str]:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "").split()
