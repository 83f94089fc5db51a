"""The allow-list, and every way in which a server can fail to answer."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import tracemalloc
import zlib

import httpx
import pytest

from decodetop.core.clock import SystemClock
from decodetop.server.client import BODY_MAX_BYTES, IDENTIFY, SAFE, NoAnswer, PathRefused, SafeClient, base_url
from decodetop.server.reading import Engine
from support.clock import ManualClock
from support.engine_replay import EngineReplay, Reply

# what SGLang answers to a GET and what it does; from the deny list of its source, with others' dangerous ones
DANGEROUS = (
    "/flush_cache /start_profile /stop_profile /set_trace_level /freeze_gc /start_expert_distribution_record "
    "/stop_expert_distribution_record /dump_expert_distribution_record /get_weights_by_name "
    "/release_memory_occupation /resume_memory_occupation /weights_checker /slow_down /open_session /close_session "
    "/configure_logging /health_generate /generate /terminate /perf_metrics /v1/loads /get_load /v1/completions"
)


@pytest.mark.parametrize(
    ("engine", "path"),
    [(one, path) for one in SAFE for path in DANGEROUS.split() if (one, path) != ("sglang", "/v1/loads")],
)
async def test_a_dangerous_path_is_refused_before_a_socket_is_touched(
    clock: ManualClock, engine: Engine, path: str
) -> None:
    async with EngineReplay({path: Reply()}) as replay:
        client = SafeClient(replay.endpoint, clock)
        with pytest.raises(PathRefused, match="not on the list"):
            await client.get(engine, path)
        await client.close()
    assert replay.paths == []


@pytest.mark.parametrize("path", ["/metrics?x=1", "/../start_profile", "//start_profile", "/v1/models#", "metrics", ""])
async def test_a_path_is_compared_as_a_whole(clock: ManualClock, path: str) -> None:
    client = SafeClient("http://127.0.0.1:1", clock)
    with pytest.raises(PathRefused):
        await client.get("sglang", path)


def test_health_is_asked_of_llama_cpp_only_and_metrics_never_of_an_unknown_engine() -> None:
    assert [engine for engine, paths in SAFE.items() if "/health" in paths] == ["llamacpp"]
    assert "/metrics" not in SAFE["unknown"] | SAFE["trtllm"] | IDENTIFY


async def test_an_answer(clock: ManualClock) -> None:
    async with EngineReplay({"/version": Reply(200, b'{"version":"1"}')}) as replay:
        client = SafeClient(replay.endpoint + "/v1/", clock)
        answer = await client.get("vllm", "/version")
        missing = await client.get("vllm", "/metrics")
        await client.close()
    assert (answer.code, answer.object()) == (200, {"version": "1"})
    assert (missing.ok, missing.code) == (False, 404)


async def test_an_answer_compressed_against_our_word(clock: ManualClock) -> None:
    packed = Reply(200, gzip.compress(b'{"version":"1"}'), encoding="gzip")
    async with EngineReplay({"/version": packed}) as replay:
        client = SafeClient(replay.endpoint, clock)
        assert (await client.get("vllm", "/version")).object() == {"version": "1"}
        replay.answers = {"/version": Reply(200, b"no gzip", encoding="gzip")}
        with pytest.raises(NoAnswer):
            await client.get("vllm", "/version")
        await client.close()


async def fails(replay: EngineReplay, clock: ManualClock, path: str = "/v1/models") -> NoAnswer:
    client = SafeClient(replay.endpoint, clock)
    with pytest.raises(NoAnswer) as caught:
        await client.get("unknown", path)
    await client.close()
    return caught.value


async def test_connection_refused(clock: ManualClock) -> None:
    async with EngineReplay({}) as replay:
        pass
    no = await fails(replay, clock)
    assert (no.status, no.message) == ("down", "connection refused")


async def test_a_hung_server(clock: ManualClock) -> None:
    async with EngineReplay({"/v1/models": Reply(hang=True)}) as replay:
        client = SafeClient(replay.endpoint, clock)
        asked = asyncio.ensure_future(client.get("unknown", "/v1/models", 2.0))
        while not replay.paths:
            await asyncio.sleep(0)
        await clock.advance(1.9)
        assert not asked.done()
        await clock.advance(0.2)
        with pytest.raises(NoAnswer, match="no answer within 2 s to /v1/models") as caught:
            await asked
        await client.close()
    assert caught.value.status == "hung"


async def test_the_connection_breaks_in_the_middle_of_a_body(clock: ManualClock) -> None:
    async with EngineReplay({"/v1/models": Reply(body=b"x" * 1000, cut=True)}) as replay:
        no = await fails(replay, clock)
    assert no.status == "down" and "broke" in no.message


async def test_another_protocol(clock: ManualClock) -> None:
    async with EngineReplay({"/v1/models": Reply(raw=b"220 mail ESMTP\r\n\r\n")}) as replay:
        no = await fails(replay, clock)
    assert no.status == "not_a_server" and "does not speak HTTP" in no.message


async def test_a_closed_connection(clock: ManualClock) -> None:
    async with EngineReplay({"/v1/models": Reply(raw=b"")}) as replay:
        no = await fails(replay, clock)
    assert no.status == "down"


async def test_a_body_without_end(clock: ManualClock) -> None:
    async with EngineReplay({"/v1/models": Reply(body=b"x" * (BODY_MAX_BYTES + 1))}) as replay:
        no = await fails(replay, clock)
    assert no.status == "not_a_server" and "8 MiB" in no.message


async def test_a_redirect_is_not_followed(clock: ManualClock) -> None:
    async with EngineReplay({"/v1/models": Reply()}) as other:
        away = Reply(302, location=f"{other.endpoint}/v1/models")
        async with EngineReplay({"/v1/models": away}) as replay:
            client = SafeClient(replay.endpoint, clock, "the-secret-key")
            answer = await client.get("unknown", "/v1/models")
            await client.close()
    assert answer.code == 302 and other.paths == []


async def test_the_environment_s_proxy_is_not_used(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with EngineReplay({}) as proxy, EngineReplay({"/version": Reply(200, b"{}")}) as replay:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.endpoint)
        client = SafeClient(replay.endpoint, clock)
        assert (await client.get("vllm", "/version")).ok
        await client.close()
    assert proxy.paths == []


async def test_the_key_is_sent_and_never_told(clock: ManualClock) -> None:
    key = "the-secret-key-\u00e9"
    client = SafeClient("http://127.0.0.1:1", clock, key)
    with pytest.raises(NoAnswer) as caught:
        await client.get("vllm", "/version")
    assert key not in str(caught.value)
    assert key not in client.clean(f"you said {key}") and len(client.clean("x" * 999)) == 200
    async with EngineReplay({"/version": Reply(200, b"{}")}) as replay:
        client = SafeClient(replay.endpoint, clock, "plain-key")
        await client.get("vllm", "/version")
        await client.close()
    assert replay.headers[0]["authorization"] == "Bearer plain-key"


@pytest.mark.parametrize(
    ("typed", "base"),
    [("http://h:1", "http://h:1"), ("http://h:1/v1", "http://h:1"), ("http://h/api/v1/", "http://h/api")],
)
def test_base_url(typed: str, base: str) -> None:
    assert base_url(typed) == base


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_small_answer_that_unpacks_without_end_is_not_unpacked(clock: ManualClock, encoding: str) -> None:
    pack = zlib.compressobj(9, wbits=31 if encoding == "gzip" else 15)
    bomb = b"".join(pack.compress(bytes(1 << 20)) for _ in range(256)) + pack.flush()
    tracemalloc.start()
    try:
        async with EngineReplay({"/v1/models": Reply(200, bomb, encoding=encoding)}) as replay:
            no = await fails(replay, clock)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert no.status == "not_a_server" and "longer than" in no.message
    assert peak < 5 * BODY_MAX_BYTES


async def test_an_answer_of_a_foreign_coding_is_a_word(clock: ManualClock) -> None:
    async with EngineReplay({"/v1/models": Reply(200, b"x", encoding="br")}) as replay:
        assert "compressed as br" in (await fails(replay, clock)).message


def test_what_tls_says_is_not_taken_for_the_system_s_word() -> None:
    refused = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    refused.verify_code, refused.verify_message = 18, "self-signed certificate"
    error = httpx.ConnectError("failed")
    error.__cause__ = refused
    no = SafeClient("https://127.0.0.1:1", SystemClock())._no_answer("/v1/models", error)
    assert (no.status, no.message) == (
        "down",
        "TLS failed: its certificate is not believed: self-signed certificate "
        "(name the file of the authority that signed it: SSL_CERT_FILE=ca.pem)",
    )
