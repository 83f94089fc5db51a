"""What one event of a stream means: does it carry tokens and how many, how did the request end, what was counted. Pure.

Tokens are counted by the server and by nothing else: a chunk may hold several tokens (speculation, stream intervals)
or none (the role, the finish reason, the usage). Sources: reference notes on vLLM 0.24/0.33, SGLang 0.5.15/0.5.23,
llama.cpp's server, TensorRT-LLM, TGI, Ollama and LMDeploy, and the recordings under tests/captures.
"""

from __future__ import annotations

from typing import Any

import msgspec

from decodetop.bench.reading import Api
from decodetop.bench.sse import Event
from decodetop.core.decode import NotDecoded, decode, decode_by
from decodetop.core.outside import plain
from decodetop.errors import RequestError

DONE = b"[DONE]"
MESSAGE_MAX = 300
COUNT_MAX = 1_000_000_000
"""No request reads or gives as many tokens: a server that says so, or a negative number, counts wrongly."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says it counted for one request; None = it did not say. `steps` = its decode or verify steps."""

    output: int | None = None
    prompt: int | None = None
    cached: int | None = None
    steps: int | None = None


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """One event understood. `total` = the server's running count of output tokens, where the event has one.

    `token`: it carries output (text, reasoning, a tool call, or an empty text that stands for tokens held back).
    `aside`: it has no place for output (a role or usage alone); what it counts belongs to other events.
    `doubt`: which count it had that can't be; that one is None here.
    """

    token: bool = False
    aside: bool = False
    total: int | None = None
    new: int | None = None
    id: str | None = None
    finish: str | None = None
    counts: Counts | None = None
    error: str | None = None
    done: bool = False
    doubt: str = ""


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Timings(msgspec.Struct, gc=False):
    """llama.cpp's."""

    cache_n: int | None = None
    prompt_n: int | None = None
    predicted_n: int | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class _Delta(msgspec.Struct, gc=False):
    role: Any = None
    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None


class _Choice(msgspec.Struct, gc=False):
    text: Any = None
    delta: _Delta | None = None
    finish_reason: Any = None


class _OpenAi(msgspec.Struct, gc=False):
    id: Any = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: Any = None
    object: Any = None
    message: Any = None


class _Meta(msgspec.Struct, gc=False):
    id: Any = None
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    spec_verify_ct: int | None = None
    finish_reason: Any = None


class _Sglang(msgspec.Struct, gc=False):
    meta_info: _Meta | None = None
    text: Any = None
    error: Any = None
    object: Any = None
    message: Any = None


class _LlamaCpp(msgspec.Struct, gc=False):
    content: Any = None
    tokens: list[int] | None = None
    stop: bool = False
    stop_type: Any = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    timings: _Timings | None = None
    error: Any = None


_OPENAI = msgspec.json.Decoder(_OpenAi)
_SGLANG = msgspec.json.Decoder(_Sglang)
_LLAMACPP = msgspec.json.Decoder(_LlamaCpp)


def hear(api: Api, event: Event) -> Heard | None:
    """One event of `api`'s stream, or None if it says nothing. Raises RequestError if it is not that API's JSON."""
    data = event.data.strip()
    if data == DONE:
        return Heard(done=True)
    if not data:
        return None
    if event.kind == "error":
        return Heard(error=error_message(data))
    try:
        return _believable(_decode(api, data))
    except RequestError:
        if event.kind != "message":
            return None  # a side channel of the server's own
        raise


def _decode(api: Api, data: bytes) -> Heard:
    try:
        if api == "generate":
            return _sglang(decode_by(_SGLANG, data))
        if api == "completion":
            return _llamacpp(decode_by(_LLAMACPP, data))
        return _openai(decode_by(_OPENAI, data))
    except NotDecoded as error:
        repaired = data.decode("utf-8", "replace").encode()
        if repaired != data:
            return _decode(api, repaired)
        message = f"an event of the stream is not {api} JSON: {error}: {_one_line(data)}"
        raise RequestError(message[:MESSAGE_MAX]) from error


def _possible(count: int) -> bool:
    return 0 <= count <= COUNT_MAX


def _believable(heard: Heard) -> Heard:
    """Without the counts that can't be."""
    total, counts = heard.total, heard.counts
    if counts is None and (total is None or _possible(total)):
        return heard
    said = {"total": total, **(msgspec.structs.asdict(counts) if counts is not None else {})}
    wrong = {name: value for name, value in said.items() if value is not None and not _possible(value)}
    if not wrong:
        return heard
    name, value = next(iter(wrong.items()))
    number = f"{value:,}" if abs(value) <= COUNT_MAX else "over a billion" if value > 0 else "under minus a billion"
    kept = None if counts is None else msgspec.structs.replace(counts, **{one: None for one in wrong if one != "total"})
    return msgspec.structs.replace(
        heard,
        total=None if "total" in wrong else total,
        counts=kept,
        doubt=f"the server counted {number} {_COUNTED[name]}",
    )


_COUNTED = {
    "total": "output tokens",
    "output": "output tokens",
    "prompt": "prompt tokens",
    "cached": "cached prompt tokens",
    "steps": "decode steps",
}


def _openai(event: _OpenAi) -> Heard:
    if event.error is not None or event.object == "error":
        return Heard(error=_words(event.error if event.error is not None else event.message))
    usage = event.usage
    total = usage.completion_tokens if usage is not None else None
    if not event.choices:
        return Heard(aside=True, total=total, id=event.id, counts=_usage_counts(usage, event.timings))
    choice = event.choices[0]
    finish = _finish(choice.finish_reason)
    error = _words(finish) if finish in ("abort", "error") else None
    counts = _usage_counts(usage, event.timings) if finish is not None or event.timings is not None else None
    token = _carries(choice, finish)
    aside = not token and finish is None
    return Heard(token=token, aside=aside, total=total, id=event.id, finish=finish, counts=counts, error=error)


def _carries(choice: _Choice, finish: str | None) -> bool:
    """Whether a chunk stands for output. An empty text does (tokens held back) unless it has a role or ends."""
    delta = choice.delta
    if delta is None:
        return bool(choice.text) or (choice.text == "" and finish is None)
    said = (
        delta.content,
        delta.reasoning,
        delta.reasoning_content,
        delta.tool_calls,
        delta.function_call,
        delta.refusal,
    )
    if any(said):
        return True
    return finish is None and delta.role is None and any(part == "" for part in said)


def _usage_counts(usage: _Usage | None, timings: _Timings | None) -> Counts | None:
    if usage is None:
        return _timing_counts(timings)
    details = usage.prompt_tokens_details
    cached = details.cached_tokens if details is not None else None
    native = _timing_counts(timings)
    return Counts(
        output=usage.completion_tokens,
        prompt=usage.prompt_tokens,
        cached=cached if cached is not None or native is None else native.cached,
        steps=native.steps if native is not None else None,
    )


def _timing_counts(timings: _Timings | None) -> Counts | None:
    """llama.cpp: every step gives one token of its own besides the accepted drafts."""
    if timings is None or timings.predicted_n is None:
        return None
    steps = (
        timings.predicted_n - timings.draft_n_accepted
        if timings.draft_n and timings.draft_n_accepted is not None
        else None
    )
    prompt = None if timings.prompt_n is None else timings.prompt_n + (timings.cache_n or 0)
    return Counts(output=timings.predicted_n, prompt=prompt, cached=timings.cache_n, steps=steps)


def _sglang(event: _Sglang) -> Heard:
    if event.error is not None or event.object == "error":
        return Heard(error=_words(event.error if event.error is not None else event.message))
    meta = event.meta_info
    if meta is None:
        return Heard(token=bool(event.text))
    reason = meta.finish_reason
    finish = _finish(reason)
    error = None
    if isinstance(reason, dict) and (finish == "abort" or str(reason.get("matched", "")).startswith("NaN")):
        error = _words(reason.get("message") or reason.get("matched") or finish)
    total = meta.completion_tokens
    counts = None
    if finish is not None:
        steps = meta.spec_verify_ct or None
        counts = Counts(output=total, prompt=meta.prompt_tokens, cached=meta.cached_tokens, steps=steps)
    token = bool(event.text) and (total is None or not _possible(total))
    return Heard(token=token, total=total, id=meta.id, finish=finish, counts=counts, error=error)


def _llamacpp(event: _LlamaCpp) -> Heard:
    if event.error is not None:
        return Heard(error=_words(event.error))
    if not event.stop:
        new = len(event.tokens) if event.tokens else None
        return Heard(token=event.content is not None, new=new, total=event.tokens_predicted or None)
    timed = _timing_counts(event.timings)
    counts = Counts(
        output=event.tokens_predicted,
        prompt=event.tokens_evaluated,
        cached=timed.cached if timed is not None else None,
        steps=timed.steps if timed is not None else None,
    )
    return Heard(
        token=bool(event.content),
        finish=_finish(event.stop_type) or "stop",
        total=event.tokens_predicted,
        counts=counts,
    )


def _finish(reason: Any) -> str | None:
    if isinstance(reason, dict):
        reason = reason.get("type")
    return None if reason is None else str(reason)


def error_message(body: bytes) -> str:
    """The server's own words in an error body of any of the shapes seen, one line."""
    try:
        parsed = decode(body)
    except NotDecoded:
        return _one_line(body)
    if isinstance(parsed, dict):
        for key in ("error", "message", "detail"):
            if parsed.get(key):
                return _words(parsed[key])
    return _words(parsed)


def _words(value: Any) -> str:
    if isinstance(value, dict):
        inner = value.get("message") or value.get("error")
        value = inner if inner else msgspec.json.encode(value).decode()
    elif isinstance(value, list):
        value = "; ".join(_words(part.get("msg", part) if isinstance(part, dict) else part) for part in value)
    return plain(str(value))[:MESSAGE_MAX]


def _one_line(data: bytes) -> str:
    return plain(data[:MESSAGE_MAX].decode("utf-8", "replace"))
