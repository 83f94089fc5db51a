"""A raw HTTP server on loopback whose answers are scripts: bytes, waits and breaks, with its own send stamps."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Seen:
    """One request as the server got it, and when it sent what (ns of CLOCK_MONOTONIC)."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    connection: int
    received_ns: int
    sent: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def asked(self) -> int:
        """Output tokens asked for, in whichever way."""
        sampling = self.body.get("sampling_params", {})
        return int(self.body.get("max_tokens") or self.body.get("n_predict") or sampling.get("max_new_tokens"))


@dataclass(frozen=True)
class Wait:
    """Nothing until `seconds` after the request came."""

    seconds: float


@dataclass(frozen=True)
class Break:
    """The connection ends here: by FIN, or by RST."""

    reset: bool = False


Step = bytes | Wait | Break
Script = Callable[[Seen], Iterable[Step]]


class TokenServer:
    """`async with TokenServer(script) as server:` then `server.url`; `server.seen` grows with every request."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.tls = tls
        self.seen: list[Seen] = []
        self.connections = 0
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> TokenServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512, ssl=self.tls)
        self.url = f"http{'s' if self.tls else ''}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def posts(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == "POST"]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._answer(reader, writer, number):
                    pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = first.split(" ")
        body = json.loads(raw) if raw else None
        seen = Seen(method, path, headers, body, number, time.perf_counter_ns())
        self.seen.append(seen)
        for step in self.script(seen):
            if isinstance(step, Wait):
                late_s = (time.perf_counter_ns() - seen.received_ns) / 1e9
                await asyncio.sleep(step.seconds - late_s)
            elif isinstance(step, Break):
                if step.reset:
                    writer.transport.abort()
                return False
            else:
                seen.sent.append((time.perf_counter_ns(), step))
                writer.write(step)
        return "connection: close" not in str(seen.sent[0][1] if seen.sent else "").lower()


def reply(status: str, body: bytes, kind: str = "application/json", extra: str = "") -> bytes:
    """A whole answer with a length."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
TAIL = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"
MODELS = reply("200 OK", b'{"object":"list","data":[{"id":"tiny","object":"model"}]}')
NOT_FOUND = reply("404 Not Found", b'{"detail":"Not Found"}')


def chunk(payload: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(payload), payload) if payload else b""


def event(data: object, newline: str = "\n") -> bytes:
    """One server-sent event of one data line."""
    return f"data: {json.dumps(data)}{newline}{newline}".encode()


def timed(payloads: Sequence[bytes], ttft_s: float = 0.0, itl_s: float = 0.0) -> list[Step]:
    """Chunks at ttft, ttft + itl, ... after the request."""
    steps: list[Step] = []
    for number, payload in enumerate(payloads):
        if ttft_s or itl_s:
            steps.append(Wait(ttft_s + number * itl_s))
        steps.append(chunk(payload))
    return steps


def completions(seen: Seen, *, ttft_s: float = 0.0, itl_s: float = 0.0, continuous: bool = True) -> list[Step]:
    """A well-behaved /v1/completions stream of as many tokens as asked, one a chunk, with usage."""
    if seen.path.endswith("/v1/models"):
        return [MODELS]
    if seen.method != "POST":
        return [NOT_FOUND]
    asked = seen.asked
    prompt = len(seen.body["prompt"]) if isinstance(seen.body.get("prompt"), list) else 11

    def usage(count: int) -> dict[str, int]:
        return {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}

    payloads = []
    for number in range(1, asked + 1):
        one: dict[str, Any] = {"id": f"{seen.connection}-{number}", "object": "text_completion"}
        one["choices"] = [{"index": 0, "text": f" w{number}", "finish_reason": "length" if number == asked else None}]
        if continuous:
            one["usage"] = usage(number)
        payloads.append(event(one))
    last = chunk(event({"choices": [], "usage": usage(asked)}) + DONE)
    return [HEAD, *timed(payloads, ttft_s, itl_s), last, TAIL]
