"""Every framing and fault of a stream as a row: what the server sends, and what a client must make of it.

One table for the tests and for benchmarks/fault_matrix.py, which puts other clients beside ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from support.token_server import DONE, HEAD, TAIL, Break, Step, Wait, chunk, event, reply

TOKENS = 8
STALL_S = 30.0

Api = Literal["completions", "chat"]
Fault = Literal["stream_error", "http", "cut", "timeout", "short_output", "protocol"]


@dataclass(frozen=True)
class Row:
    """`fault` None = it succeeds. `counted`: the tokens the server says; None = it does not say, or they don't count.

    `chunks`: those that carry tokens, where it matters. `words`: a piece of what is said of the fault.
    """

    steps: Sequence[Step]
    fault: Fault | None = None
    counted: int | None = None
    words: str = ""
    api: Api = "completions"
    chunks: int | None = None


TEXT: dict[str, Any] = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny"}
CHAT: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
"""What every OpenAI-like server begins an event with; some clients take nothing for an answer that has no `object`."""


def token(number: int, finish: str | None = None) -> dict[str, Any]:
    return {**TEXT, "choices": [{"index": 0, "text": f" w{number}", "finish_reason": finish}]}


def usage(count: int, head: dict[str, Any] = TEXT) -> dict[str, Any]:
    return {**head, "choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": count, "total_tokens": 4 + count}}


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {**CHAT, "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def spent(count: int) -> dict[str, Any]:
    """Chat's usage."""
    return usage(count, CHAT)


EVENTS = [*(event(token(n, "length" if n == TOKENS else None)) for n in range(1, TOKENS + 1)), event(usage(TOKENS))]
BODY = b"".join(EVENTS)
WHOLE: list[Step] = [HEAD, *(chunk(one) for one in EVENTS), chunk(DONE), TAIL]
CLOSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
ERROR = event({"error": {"message": "CUDA out of memory", "code": 500}})
ROLE = delta(role="assistant", content="")
LAST = delta("length")
SPOKEN = [delta(content=f" w{n}") for n in range(1, TOKENS + 1)]


def streamed(payload: bytes, *cuts: int) -> list[Step]:
    """A whole answer, its body cut into HTTP chunks at `cuts`."""
    edges = [0, *cuts, len(payload)]
    return [HEAD, *(chunk(payload[a:b]) for a, b in pairwise(edges)), TAIL]


def framed(newline: str) -> list[Step]:
    events = [event(token(n, "length" if n == TOKENS else None), newline) for n in range(1, TOKENS + 1)]
    return [HEAD, *(chunk(one) for one in [*events, event(usage(TOKENS), newline)]), TAIL]


def chat(*events: dict[str, Any], done: bool = True) -> list[Step]:
    return [HEAD, *(chunk(event(one)) for one in events), *([chunk(DONE)] if done else []), TAIL]


_TWO_LINES = BODY.replace(b'"choices": [', b'"choices":\ndata: [')
_ACCENTS = BODY.replace(b" w1", " é€𝄞".encode())
_SPLIT = _ACCENTS.index("€".encode()) + 1

FRAMINGS: dict[str, Row] = {
    "well-behaved": Row(WHOLE, counted=8),
    "CRLF framing": Row(framed("\r\n"), counted=8),
    "CR framing": Row(framed("\r"), counted=8),
    "CR and LF of one line end in two packets": Row(
        streamed(BODY.replace(b"\n", b"\r\n"), BODY.index(b"\n") + 1), counted=8),
    "no [DONE]": Row([HEAD, *(chunk(one) for one in EVENTS), TAIL], counted=8),
    "one byte a chunk": Row([HEAD, *(chunk(bytes([byte])) for byte in BODY), TAIL], counted=8),
    "all in one write": Row([HEAD + chunk(BODY + DONE) + TAIL], counted=8),
    "an event in two packets": Row(streamed(BODY, 20), counted=8),
    "a letter in two packets": Row(streamed(_ACCENTS, _SPLIT), counted=8),
    "several data lines": Row(streamed(_TWO_LINES), counted=8),
    "no space after data:": Row(streamed(BODY.replace(b"data: ", b"data:")), counted=8),
    "two spaces after data:": Row(streamed(BODY.replace(b"data: ", b"data:  ")), counted=8),
    "spaces at the end of a line": Row(streamed(BODY.replace(b"}\n", b"} \n")), counted=8),
    "a byte order mark first": Row(streamed(b"\xef\xbb\xbf" + BODY), counted=8),
    "id, retry and unknown fields": Row(
        streamed(BODY.replace(b"data: ", b"id: 7\nretry: 10\nx: y\ndata: ")), counted=8),
    "line separators inside the JSON": Row(
        streamed(BODY.replace(b" w1", " \u2028\u2029\u0085".encode()) + DONE), counted=8),
    "with a length instead of chunks": Row([reply("200 OK", BODY + DONE, "text/event-stream")], counted=8),
    "until the connection closes": Row([CLOSE_HEAD, BODY, Break()], counted=8),
    "pings between tokens": Row([HEAD, *(chunk(b": ping\n\n" + one) for one in EVENTS), TAIL], counted=8),
    "no terminating chunk after [DONE]": Row([HEAD, chunk(BODY + DONE), Break()], counted=8),
    "text/plain as its type": Row([reply("200 OK", BODY + DONE, "text/plain")], counted=8),
    "100 Continue first": Row([b"HTTP/1.1 100 Continue\r\n\r\n", *WHOLE], counted=8),
    "no usage": Row([HEAD, *(chunk(one) for one in EVENTS[:-1]), chunk(DONE), TAIL]),
}  # fmt: skip

MEANINGS: dict[str, Row] = {
    "chat: a role chunk, a finish chunk": Row(chat(ROLE, *SPOKEN, LAST, spent(8)), counted=8, api="chat", chunks=8),
    "chat: the role alone carries no token": Row(chat(ROLE, LAST), "protocol", words="token", api="chat"),
    "chat: reasoning_content first": Row(
        chat(ROLE, *(delta(reasoning_content=" r") for _ in range(4)), *SPOKEN[:4], LAST, spent(8)),
        counted=8, api="chat", chunks=8),
    "chat: reasoning first": Row(
        chat(ROLE, *(delta(reasoning=" r") for _ in range(4)), *SPOKEN[:4], LAST, spent(8)),
        counted=8, api="chat", chunks=8),
    "chat: a tool call": Row(
        chat(ROLE, *(delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}]) for _ in range(8)),
             delta("tool_calls"), spent(8)), counted=8, api="chat", chunks=8),
    "chat: empty texts that hold tokens back": Row(
        chat(ROLE, *(delta(content="") for _ in range(4)), *SPOKEN[:4], LAST, spent(8)),
        counted=8, api="chat", chunks=8),
    "chat: usage null until the end": Row(
        chat({**ROLE, "usage": None}, *({**one, "usage": None} for one in SPOKEN), LAST, spent(8)),
        counted=8, api="chat", chunks=8),
    "chat: usage zeroed until the end": Row(
        chat(*({**one, "usage": spent(0)["usage"]} for one in SPOKEN), LAST, spent(8)),
        counted=8, api="chat", chunks=8),
    "chat: four tokens a chunk": Row(chat(ROLE, *SPOKEN[:2], LAST, spent(8)), counted=8, api="chat", chunks=2),
    "chat: no usage, no [DONE]": Row(chat(ROLE, *SPOKEN, LAST, done=False), api="chat", chunks=8),
}  # fmt: skip

FAULTS: dict[str, Row] = {
    "ended early by the model": Row(
        [HEAD, *(chunk(e) for e in EVENTS[:3]), chunk(event(token(4, "stop")) + event(usage(4)) + DONE), TAIL],
        "short_output", 4, "4 of 8 tokens (finish reason: stop)"),
    "an error after a token": Row(
        [HEAD, chunk(EVENTS[0]), chunk(ERROR + DONE), TAIL], "stream_error", None, "CUDA out"),
    "an error at once": Row([HEAD, chunk(ERROR + DONE), TAIL], "stream_error", None, "CUDA out of memory"),
    "an error and no end": Row([HEAD, chunk(ERROR), Wait(STALL_S)], "stream_error", None, "CUDA out of memory"),
    "an error as a text (TGI)": Row(
        [HEAD, chunk(EVENTS[0]), chunk(event({"error": "out of blocks", "error_type": "generation"})), TAIL],
        "stream_error", None, "out of blocks"),
    "an error as an event of its own": Row(
        [HEAD, chunk(EVENTS[0]), chunk(b'event: error\ndata: {"message":"gone"}\n\n'), TAIL],
        "stream_error", None, "gone"),
    "aborted by the engine": Row(
        [HEAD, chunk(EVENTS[0]), chunk(event(token(2, "abort")) + DONE), TAIL], "stream_error", None, "abort"),
    "an empty stream": Row([HEAD, TAIL], "protocol", None, "no event"),
    "only [DONE]": Row([HEAD, chunk(DONE), TAIL], "protocol", None, "without a token"),
    "no finish reason": Row([HEAD, chunk(EVENTS[0]), chunk(EVENTS[1]), TAIL], "cut", None, "after 2 chunks"),
    "closed in the middle": Row([HEAD, chunk(EVENTS[0]), Break()], "cut", None, "after 1 chunks"),
    "reset in the middle": Row([HEAD, chunk(EVENTS[0]), Wait(0.05), Break(reset=True)], "cut", None, ""),
    "closed before an answer": Row([Break()], "cut", None, "without an answer"),
    "stalled before a token": Row([HEAD, Wait(STALL_S)], "timeout", None, "no chunks had come"),
    "stalled after a token": Row([HEAD, chunk(EVENTS[0]), Wait(STALL_S)], "timeout", None, "1 chunks had come"),
    "no answer at all": Row([Wait(STALL_S)], "timeout", None, "no chunks"),
    "broken JSON": Row([HEAD, chunk(b'data: {"choices": [{\n\n'), TAIL], "protocol", None, "JSON"),
    "400": Row([reply("400 Bad Request", b'{"object":"error","message":"too long"}')], "http", None, "400: too long"),
    "429": Row([reply("429 Too Many Requests", b'{"error":{"message":"slow down"}}')], "http", None, "429: slow down"),
    "500 with a page": Row([reply("500 Oops", b"<h1>bad</h1>", "text/html")], "http", None, "500: <h1>bad</h1>"),
    "503 without a word": Row([reply("503 Unavailable", b"")], "http", None, "503: no word why"),
    "302": Row([reply("302 Found", b"", extra="location: /login\r\n")], "http", None, "302: to /login"),
    "a page": Row([reply("200 OK", b"<html>hello</html>", "text/html")], "protocol", None, "text/html, not an event"),
    "not HTTP": Row([b"SSH-2.0-OpenSSH_9.6\r\n\r\n"], "protocol", None, "not HTTP/1.1"),
}  # fmt: skip

ROWS: dict[str, Row] = FRAMINGS | MEANINGS | FAULTS
