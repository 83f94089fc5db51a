"""The bytes of a streamed answer as SGLang 0.5.15 sends them: one `data:` event per HTTP chunk, one token per event."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from decodetop.sim.asks import Ask
from decodetop.sim.model import noise

VOCABULARY = 151_936
LOOP = 64
"""A request's tokens repeat after this many, so that their texts and chunks are made once."""
HEADERS = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\nvary: Origin\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"
DONE = b"e\r\ndata: [DONE]\n\n\r\n"


def framed(event: bytes) -> bytes:
    """One event as one HTTP chunk."""
    return b"%x\r\ndata: %s\n\n\r\n" % (len(event) + 8, event)


@lru_cache(maxsize=1024)
def token_ids(seed: int, number: int) -> tuple[int, ...]:
    """The `LOOP` token ids that request `number` repeats; as in the recordings the text is the id in hex."""
    return tuple(int((noise(seed, number, at) + 1) / 2 * (VOCABULARY - 4096)) + 4095 for at in range(LOOP))


class Answer:
    """Makes the chunks of one request. `text(k)` is the k-th token's text, counted from 0."""

    def __init__(self, ask: Ask, rid: str, created: int, ids: tuple[int, ...], cached_tokens: int = 0) -> None:
        self.ask = ask
        self.rid = rid
        self.cached_tokens = cached_tokens
        self.timings: dict[str, float] = {}
        """What the native API says in its last chunk: seconds and tokens a second."""
        self._ids = ids
        self._texts = [b" w%x" % token for token in ids]
        model = msgspec.json.encode(ask.model)
        kind = b"chat.completion.chunk" if ask.api == "chat" else b"text_completion"
        self._head = b'{"id":"%s","object":"%s","created":%d,"model":%s,' % (rid.encode(), kind, created, model)
        self._usage = ask.continuous_usage
        self._same: dict[bytes, bytes] = {}

    def opening(self) -> bytes:
        """What goes before the first token: the headers (SGLang holds them till then), and in a chat the role."""
        if self.ask.api == "generate":
            return b""  # sent on arrival
        if self.ask.api == "completions":
            return HEADERS
        role = b'"choices":[{"index":0,"delta":{"reasoning_content":null,"role":"assistant","content":""},'
        return HEADERS + framed(self._head + role + b'"logprobs":null,"finish_reason":null,"matched_stop":null}]}')

    def tokens(self, first: int, count: int, *, last: bool) -> bytes:
        """The chunk of tokens `first` .. `first + count - 1`; `last` = generation ends with them."""
        text = self._text(first, count)
        if self.ask.api == "generate":
            return self._native(first + count, last=last)
        finished = last and self.ask.api == "completions"
        if not self._usage and not finished:
            chunk = self._same.get(text)
            if chunk is None:
                chunk = self._same[text] = self._event(text, b"null", b"null")
            return chunk
        usage = self._usage_of(first + count, detailed=True) if self._usage else b"null"
        return self._event(text, b'"length"' if finished else b"null", usage)

    def closing(self, completion_tokens: int) -> bytes:
        """After the last token: finish (chat), usage if asked for, `[DONE]`, the end of the body."""
        out = b""
        if self.ask.api == "chat":
            finish = b'"choices":[{"index":0,"delta":{"reasoning_content":null},"logprobs":null,'
            out += framed(self._head + finish + b'"finish_reason":"length","matched_stop":null}]}')
        if self.ask.include_usage and self.ask.api != "generate":
            usage = self._usage_of(completion_tokens, detailed=self.ask.api == "chat")
            out += framed(self._head + b'"choices":[],"usage":%s}' % usage)
        return out + DONE + END

    def failure(self, message: str) -> bytes:
        """An error in the middle of the stream, and its end."""
        inner = {"object": "error", "message": message, "type": "InternalServerError", "param": None, "code": 500}
        return framed(msgspec.json.encode({"error": inner})) + DONE + END

    def whole(self, completion_tokens: int) -> bytes:
        """The JSON of an answer that is not streamed."""
        text = self._text(0, completion_tokens).decode()
        if self.ask.api == "generate":
            return self._native_event(completion_tokens, last=True)
        choice: dict[str, object] = {"index": 0, "logprobs": None, "finish_reason": "length", "matched_stop": None}
        if self.ask.api == "chat":
            choice["message"] = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
        else:
            choice["text"] = text
        head = self._head.replace(b".chunk", b"")
        return head + b'"choices":[%s],"usage":%s}' % (msgspec.json.encode(choice), self._usage_of(completion_tokens))

    def _text(self, first: int, count: int) -> bytes:
        if count == 1:
            return self._texts[first % LOOP]
        return b"".join(self._texts[at % LOOP] for at in range(first, first + count))

    def _event(self, text: bytes, finish: bytes, usage: bytes) -> bytes:
        tail = b'"logprobs":null,"finish_reason":%s,"matched_stop":null}]' % finish
        if self.ask.api == "chat":
            delta = b'"choices":[{"index":0,"delta":{"reasoning_content":null,"content":"%s"},' % text
            usage = b',"usage":' + usage if self._usage else b""
            return framed(self._head + delta + tail + usage + b"}")
        usage = b',"usage":' + usage if self._usage or self.ask.include_usage else b',"usage":null'
        return framed(self._head + b'"choices":[{"index":0,"text":"%s",' % text + tail + usage + b"}")

    def _usage_of(self, completion_tokens: int, *, detailed: bool = False) -> bytes:
        prompt = len(self.ask.prompt)
        details = b'"prompt_tokens_details":null,' if detailed else b""
        head = b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,'
        return head % (prompt, prompt + completion_tokens, completion_tokens) + details + b'"reasoning_tokens":0}'

    def _native(self, completion_tokens: int, *, last: bool) -> bytes:
        return framed(self._native_event(completion_tokens, last=last))

    def _native_event(self, completion_tokens: int, *, last: bool) -> bytes:
        finish = {"type": "length", "length": completion_tokens} if last else None
        ids = [self._ids[at % LOOP] for at in range(completion_tokens)]
        meta: dict[str, Any] = {
            "id": self.rid,
            "finish_reason": finish,
            "prompt_tokens": len(self.ask.prompt),
            "weight_version": "default",
            "num_retractions": 0,
            "queue_time": 0.0,
            "reasoning_tokens": 0,
            "completion_tokens": completion_tokens,
            "cached_tokens": self.cached_tokens,
            "cached_tokens_details": {"device": self.cached_tokens, "host": 0},
            "dp_rank": None,
        }
        if last:
            meta.update(self.timings)
        text = self._text(0, completion_tokens).decode()
        return msgspec.json.encode({"text": text, "output_ids": ids, "meta_info": meta})
