"""Answers made to eat memory or time, and TLS that fails: of every request of the monitor's, one clear line."""

from __future__ import annotations

import asyncio
import gzip
import os
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from decodetop.core.clock import SystemClock
from decodetop.errors import RequestError
from decodetop.flows.capture_client import ProfileClient, Reply, Unreachable
from decodetop.flows.capture_profile import stop
from decodetop.server.client import BODY_MAX_BYTES, NoAnswer, SafeClient
from decodetop.server.generate import one_token
from support.certificates import certificate, serving
from support.clock import ManualClock
from support.token_server import Break, Seen, Step, TokenServer, reply

KEY = "sk-hostile-key-0123456789"
MEMORY_MAX = 5 * BODY_MAX_BYTES

Ask = Callable[[str], Awaitable[str]]
"""Asks the server at this address and gives what was said."""


async def look(url: str) -> str:
    client = SafeClient(url, SystemClock(), KEY)
    try:
        answer = await client.get("vllm", "/metrics", 30.0)
    except NoAnswer as no:
        return f"{no.status}: {no.message}"
    finally:
        await client.close()
    return f"answered {answer.code}"


async def generate(url: str) -> str:
    return (await one_token(url, "tiny", KEY, SystemClock())).error


async def profile(url: str) -> str:
    try:
        answer = await ProfileClient(url, SystemClock(), KEY).post("/start_profile", {"num_steps": 5}, 30.0)
    except RequestError as error:
        return str(error)
    return f"{answer.code}: {answer.text}"


ASKS = {"look": look, "generate": generate, "profile": profile}


@cache
def packed(times: int) -> bytes:
    """A gigabyte of zeros as gzip, as gzip of gzip..."""
    pack = zlib.compressobj(9, wbits=31)
    data = b"".join(pack.compress(bytes(1 << 20)) for _ in range(1024)) + pack.flush()
    for _ in range(times - 1):
        data = gzip.compress(data, 9)
    return data


@pytest.mark.parametrize("coding", ["gzip", "deflate", "gzip, gzip", "gzip, gzip, gzip", "br", "zstd"])
@pytest.mark.parametrize("name", ASKS)
async def test_an_answer_that_unpacks_to_a_gigabyte_takes_no_memory(name: str, coding: str) -> None:
    body = packed(coding.count("gzip") or 1)
    packing = f"content-encoding: {coding}\r\n"
    async with TokenServer(lambda seen: [reply("200 OK", body, "text/plain", packing)]) as server:
        tracemalloc.start()
        try:
            said = await ASKS[name](server.url)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < MEMORY_MAX and said.isprintable() and len(said) < 300


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n")
    try:
        while True:
            writer.write(b"x" * (1 << 16))
            await writer.drain()
    except ConnectionError:
        writer.close()


@pytest.mark.parametrize(
    ("name", "words"),
    [("look", "is longer than 8 MiB"), ("generate", "its answer is longer than 8 MiB"), ("profile", "200: xxx")],
)
async def test_an_answer_without_end_is_left(name: str, words: str) -> None:
    async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
        said = await ASKS[name](f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert words in said


async def test_a_token_that_dribbles_in_has_one_deadline() -> None:
    """One for each read would never pass while a byte comes now and then."""
    clock = ManualClock()
    asked = asyncio.Event()

    async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{")
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(dribble, "127.0.0.1", 0) as server:
        work = asyncio.ensure_future(
            one_token(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "m", None, clock)
        )
        await asked.wait()
        await clock.advance(29.0)
        assert not work.done()
        await clock.advance(2.0)
        assert (await work) == (None, "no answer within 30 s")


async def test_half_a_packed_answer_is_not_a_whole_one() -> None:
    half = gzip.compress(b"vllm:num_requests_running 3\n" * 5000)[:-20]
    async with TokenServer(lambda seen: [reply("200 OK", half, "text/plain", "content-encoding: gzip\r\n")]) as server:
        assert await look(server.url) == "not_a_server: its answer to /metrics is damaged gzip: it ends early"


async def test_what_refuses_the_profile_in_packed_words_has_still_refused() -> None:
    words = gzip.compress(b"no")
    async with TokenServer(lambda seen: [reply("401 No", words, "text/plain", "content-encoding: br\r\n")]) as server:
        answer = await ProfileClient(server.url, SystemClock(), None).post("/start_profile", None, 30.0)
    assert answer == Reply(code=401, text="(a body compressed as br)")


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("away", ["other", "loop", "file:///etc/passwd", "//elsewhere/", "http://[bad"])
async def test_no_redirect_is_followed_and_the_key_stays(name: str, away: str) -> None:
    async with TokenServer(lambda seen: [reply("200 OK", b"{}")]) as other:

        def script(seen: Seen) -> Iterable[Step]:
            where = {"other": f"{other.url}{seen.path}", "loop": seen.path}.get(away, away)
            return [reply("307 Moved", b"", extra=f"location: {where}\r\n")]

        async with TokenServer(script) as server:
            said = await ASKS[name](server.url)
        assert "307" in said and KEY not in said
        assert other.seen == [] and len(server.seen) == 1


# TLS

BAD = {
    "self-signed": ({}, "self-signed certificate"),
    "expired": ({"days": -1}, "certificate is not believed"),
    "wrong host": ({"host": "elsewhere.example"}, "certificate is not believed"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("name", ASKS)
async def test_a_certificate_that_is_not_to_be_believed(name: str, kind: str, tmp_path: Path) -> None:
    made, words = BAD[kind]
    cert = certificate(tmp_path, **made)  # type: ignore[arg-type]
    async with TokenServer(lambda seen: [reply("200 OK", b"{}")], serving(cert)) as server:
        said = await ASKS[name](server.url)
        assert words in said and said.isprintable()
        assert server.seen == []


@pytest.mark.parametrize(
    ("kind", "words"), [("expired", "certificate has expired"), ("wrong host", "IP address mismatch")]
)
async def test_the_certificate_s_own_fault_is_named(
    kind: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert = certificate(tmp_path, **BAD[kind][0])  # type: ignore[arg-type]
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    async with TokenServer(lambda seen: [reply("200 OK", b"{}")], serving(cert)) as server:
        assert words in await look(server.url)


@pytest.mark.parametrize("name", ASKS)
async def test_an_authority_of_one_s_own_is_believed_by_all(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark did, the monitor did not."""
    cert = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    async with TokenServer(lambda seen: [reply("200 OK", b"{}")], serving(cert)) as server:
        await ASKS[name](server.url)
        assert [seen.headers["authorization"] for seen in server.seen] == [f"Bearer {KEY}"]


@pytest.mark.parametrize("name", ASKS)
async def test_plain_http_where_https_was_asked_for(name: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        said = await ASKS[name](f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert "it does not speak TLS: is it http?" in said


@pytest.mark.parametrize("name", ASKS)
async def test_https_where_plain_http_was_asked_for(name: str, tmp_path: Path) -> None:
    async with TokenServer(lambda seen: [], serving(certificate(tmp_path))) as server:
        said = await ASKS[name](server.url.replace("https:", "http:"))
    assert said and said.isprintable() and not said.startswith("200")


async def test_a_profiler_behind_tls_that_fails_is_not_known_to_have_stopped(tmp_path: Path) -> None:
    """Only who refuses the connection is gone."""
    async with TokenServer(lambda seen: [reply("200 OK", b"")], serving(certificate(tmp_path))) as server:
        with pytest.raises(Unreachable):
            await stop(ProfileClient(server.url, SystemClock(), None), "vllm", 30.0)
    await stop(ProfileClient(server.url, SystemClock(), None), "vllm", 30.0)


async def test_tls_that_breaks_after_the_request_does_not_mean_that_nothing_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    got = asyncio.Event()

    async def garble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        got.set()
        under = writer.transport.get_extra_info("socket").fileno()
        os.write(under, b"\x17\x03\x03\x00\x20" + b"no record of this connection's!!"[:32])
        await reader.read()
        writer.close()

    server = await asyncio.start_server(garble, "127.0.0.1", 0, ssl=serving(cert))
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(RequestError, match="the connection broke at POST /start_profile") as caught:
            await ProfileClient(url, SystemClock(), None).post("/start_profile", {"num_steps": 5}, 30.0)
    assert got.is_set() and not isinstance(caught.value, Unreachable)


async def test_a_connection_that_ends_without_an_answer(tmp_path: Path) -> None:
    async with TokenServer(lambda seen: [Break()], serving(certificate(tmp_path))) as server:
        assert (await look(server.url)).startswith("down: ")
