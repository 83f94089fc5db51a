"""TLS that fails under a load: a line for each, and no key to whom is not believed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from decodetop.bench.launch import LoadFailed, run_load
from support.certificates import certificate, serving
from support.loads import Heard, plan_for
from support.token_server import HEAD, MODELS, TokenServer, chunk, completions, event

KEY = "sk-very-secret-key-0123456789"


async def said(url: str) -> str:
    with pytest.raises(LoadFailed) as caught:
        await run_load(plan_for(url), KEY, Heard(), asyncio.Event())
    words = str(caught.value)
    assert words.isprintable() and KEY not in words and "_ssl.c" not in words
    return words


@pytest.mark.parametrize(
    ("made", "believed", "words", "hint"),
    [
        ({}, False, "self-signed certificate", "SSL_CERT_FILE"),
        ({"days": -1}, True, "certificate has expired", "renew it"),
        ({"host": "elsewhere.example"}, True, "IP address mismatch", "the name it was made for"),
    ],
)
async def test_a_certificate_that_is_not_to_be_believed(
    made: dict[str, object], believed: bool, words: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert = certificate(tmp_path, **made)  # type: ignore[arg-type]
    if believed:
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    async with TokenServer(completions, serving(cert)) as server:
        line = await said(server.url)
        assert words in line and hint in line and server.seen == []


async def test_http_and_https_taken_for_each_other(tmp_path: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as plain:
        line = await said(f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}")
        assert "does not speak TLS" in line and "http or https" in line
    async with TokenServer(completions, serving(certificate(tmp_path))) as secret:
        result = await run_load(plan_for(secret.url.replace("https:", "http:")), None, Heard(), asyncio.Event())
    assert {(record.fault, record.message) for record in result.records} == {
        ("cut", "the connection ended without an answer")
    }


@asynccontextmanager
async def breaking(cert: Path) -> AsyncIterator[str]:
    """Lists its model, streams a token, then sends what is no record of TLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if head.startswith(b"GET"):
                    writer.write(MODELS)
                    continue
                writer.write(HEAD + chunk(event({"choices": [{"text": "a", "finish_reason": None}]})))
                await writer.drain()
                os.write(writer.transport.get_extra_info("socket").fileno(), b"\x17\x03\x03\x00\x10" + bytes(16))
                await reader.read()
                return
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=serving(cert))
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_tls_that_breaks_in_the_middle_of_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cert = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    async with breaking(cert) as url:
        result = await run_load(plan_for(url, warmup_requests=0), KEY, Heard(), asyncio.Event())
    assert {record.fault for record in result.records} == {"cut"}
    for record in result.records:
        assert record.message.isprintable() and "_ssl.c" not in record.message
