"""What reaches a server and what comes back: the key, TLS, proxies, words that would steer a terminal."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from decodetop.bench.launch import LoadFailed, environment, run_load
from support.certificates import certificate as made
from support.certificates import serving
from support.loads import Heard, load, plan_for
from support.token_server import MODELS, Seen, Step, TokenServer, completions, reply

KEY = "sk-very-secret-key-0123456789"


ESCAPES = "\x1b]0;owned\x07\u202egnp.exe"


async def test_what_a_server_says_moves_no_terminal() -> None:
    def script(seen: Seen) -> Iterable[Step]:
        if seen.method == "POST" and seen.asked == 8 and len(seen.body["prompt"]) == 31:
            return [reply("307 Moved", b"", extra=f"location: /{ESCAPES}\r\n")]
        return [reply("400 Bad", ESCAPES.encode(), "text/plain")] if seen.method == "POST" else [MODELS]

    for tokens in (32, 31):
        try:
            result, _, _ = await load(script, input_tokens=tokens)
        except LoadFailed as error:
            said = [str(error)]
        else:
            said = [record.message for record in result.records]
        assert said and all(word.isprintable() for word in said)


def guarded(seen: Seen) -> Iterable[Step]:
    """Wants the key, and is careless enough to repeat it."""
    given = seen.headers.get("authorization", "none")
    if given != f"Bearer {KEY}":
        words = json.dumps({"error": {"message": f"invalid key: {given}"}}).encode()
        return [reply("401 Unauthorized", words)]
    if seen.method == "POST" and seen.asked == 8 and len(seen.body["prompt"]) == 31:
        return [reply("500 Oops", f"no luck with {KEY}".encode(), "text/plain")]
    return completions(seen)


async def test_the_key_reaches_the_server_and_nothing_else() -> None:
    result, _, _ = await load(guarded, key=KEY)
    assert all(record.fault is None for record in result.records)
    result, _, _ = await load(guarded, key=KEY, input_tokens=31)
    assert {record.message for record in result.records} == {"500: no luck with ***"}
    with pytest.raises(LoadFailed, match="401") as caught:
        await load(guarded, key=KEY[:-1])
    assert KEY[:-1] not in str(caught.value) and "DECODETOP_API_KEY" in caught.value.hint


def test_the_key_goes_by_the_environment_of_the_child_alone() -> None:
    base = {"PATH": "/bin", "DECODETOP_API_KEY": "old"}
    assert environment(base, "new") == {"PATH": "/bin", "DECODETOP_API_KEY": "new"}
    assert environment(base, None) == {"PATH": "/bin"}
    assert "DECODETOP_API_KEY" not in os.environ


async def test_a_key_that_can_not_be_sent() -> None:
    with pytest.raises(LoadFailed, match="line break"):
        await load(completions, key="sk-abc\r\nX-Injected: 1")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    return made(tmp_path)


async def test_https(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with TokenServer(completions, serving(certificate)) as server:
        with pytest.raises(LoadFailed, match=r"certificate is not believed: self-signed") as caught:
            await run_load(plan_for(server.url), None, Heard(), asyncio.Event())
        assert "SSL_CERT_FILE" in caught.value.hint
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        result = await run_load(plan_for(server.url), None, Heard(), asyncio.Event())
    assert [record.fault for record in result.records] == [None] * 4


async def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    result, _, _ = await load(completions)
    assert [record.fault for record in result.records] == [None] * 4
