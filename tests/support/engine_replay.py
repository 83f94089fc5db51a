"""Raw HTTP on loopback that plays an engine from its recording, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CAPTURES = Path(__file__).parents[1] / "captures"


@dataclass(frozen=True)
class Reply:
    """One answer. `hang` = never answered; `cut` = the connection is reset in the middle of the body; `raw` = bytes
    sent as they are, which may be no HTTP."""

    code: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    hang: bool = False
    cut: bool = False
    raw: bytes | None = None
    location: str | None = None
    encoding: str | None = None


Answers = Mapping[str, Reply]
NOT_FOUND = Reply(404, b'{"detail":"Not Found"}')


def recorded(folder: str, state: str | None = None) -> dict[str, Reply]:
    """The recorded endpoints of a capture, with the scrape of `state` (idle, loaded, after)."""
    endpoints = json.loads(read(folder, "endpoints.json"))
    answers = {
        path: Reply(one["status"], one["body"].encode(), one["content_type"] or "text/plain")
        for path, one in endpoints.items()
    }
    if state is not None:
        answers["/metrics"] = scrape(folder, state)
    return answers


def scrape(folder: str, state: str) -> Reply:
    return Reply(200, read(folder, f"metrics_{state}.txt"), "text/plain; version=0.0.4; charset=utf-8")


def read(folder: str, name: str) -> bytes:
    return gzip.decompress((CAPTURES / folder / f"{name}.gz").read_bytes())


class EngineReplay:
    """`async with EngineReplay(answers) as server`; `answers` may be replaced while it runs."""

    def __init__(self, answers: Answers, port: int = 0) -> None:
        self.answers = answers
        self.port = port
        self.may_post: frozenset[str] = frozenset()
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> EngineReplay:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # cancelled = the server ends; a handler that says so only prints it on Python 3.11
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._answer(reader, writer):
                    pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        request, *lines = head.split("\r\n")
        method, path, _ = request.split(" ")
        self.paths.append(path)
        self.headers.append({name.lower(): value for name, _, value in (line.partition(": ") for line in lines)})
        assert method == "GET" or path in self.may_post
        if method == "POST":
            await reader.readexactly(int(self.headers[-1]["content-length"]))
        reply = self.answers.get(path, NOT_FOUND)
        if reply.hang:
            await asyncio.Event().wait()
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
            return False
        more = f"Location: {reply.location}\r\n" if reply.location else ""
        more += f"Content-Encoding: {reply.encoding}\r\n" if reply.encoding else ""
        writer.write(
            f"HTTP/1.1 {reply.code} X\r\nContent-Type: {reply.content_type}\r\n{more}"
            f"Content-Length: {len(reply.body)}\r\n\r\n".encode()
        )
        if reply.cut:
            writer.write(reply.body[: len(reply.body) // 2])
            await writer.drain()
            writer.transport.abort()
            return False
        writer.write(reply.body)
        await writer.drain()
        return True


@contextlib.contextmanager
def in_thread(answers: Answers) -> Iterator[EngineReplay]:
    """The same on a thread of its own, for what runs its own loop."""
    server = EngineReplay(answers)
    ready = threading.Event()
    stop: list[Callable[[], None]] = []

    async def main() -> None:
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with server:
            stop.append(lambda: loop.call_soon_threadsafe(done.set))
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        stop[0]()
        thread.join()
