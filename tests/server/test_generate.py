"""One token, on demand."""

from __future__ import annotations

import asyncio

from decodetop.server.generate import one_token
from support.clock import ManualClock


async def answered(reply: bytes, key: str | None = None) -> tuple[bytes, object]:
    """What was sent, and what came of it."""
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.extend(await reader.readuntil(b"\r\n\r\n"))
        got.extend(await reader.readuntil(b"}"))
        writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        seen = await one_token(f"http://127.0.0.1:{port}/v1", "tiny", key, ManualClock())
    return bytes(got), seen


async def test_one_token_is_asked_for() -> None:
    sent, seen = await answered(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "planted-key-1")
    assert sent.startswith(b"POST /v1/completions ") and b'"max_tokens":1' in sent and b'"model":"tiny"' in sent
    assert b"Bearer planted-key-1" in sent
    assert seen == (0.0, "")


async def test_a_refusal_is_told_without_the_key() -> None:
    reply = b"HTTP/1.1 500 No\r\nContent-Length: 30\r\n\r\nno kv left for planted-key-1..."
    _, seen = await answered(reply, "planted-key-1")
    assert seen == (None, "it answered 500: no kv left for ***..")


async def test_nobody_there() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    took_ms, error = await one_token(f"http://127.0.0.1:{port}", "tiny", None, ManualClock())
    assert took_ms is None and error == "connection refused"
