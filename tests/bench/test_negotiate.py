"""What a load agrees on with the server before it begins: the address, the extras, the length of a prompt."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from decodetop.bench.launch import LoadFailed, run_load
from decodetop.bench.prompts import WORDS
from support.loads import Heard, load, plan_for
from support.token_server import MODELS, Seen, Step, completions, reply


async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(LoadFailed, match=r"can't connect to http://127\.0\.0\.1:\d+: connection refused") as caught:
            await run_load(plan_for(url), None, Heard(), asyncio.Event())
    assert caught.value.kind == "cut" and "address" in caught.value.hint


REFUSALS: dict[str, tuple[bytes, str, str]] = {
    "wants a key": (reply("401 Unauthorized", b'{"error":"no key"}'), "401: no key", "DECODETOP_API_KEY"),
    "no such path": (reply("404 Not Found", b'{"detail":"Not Found"}'), "404: Not Found", "--api"),
    "a web page": (reply("200 OK", b"<html>hi</html>", "text/html"), "not an event stream", "no inference server"),
    "not HTTP": (b"220 mail.example ESMTP\r\n\r\n", "not HTTP/1.1", "no inference server"),
    "elsewhere": (reply("307 Moved", b"", extra="location: https://y/\r\n"), "307: to https://y/", "points to"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_no_inference_server(name: str) -> None:
    answer, words, hint = REFUSALS[name]
    with pytest.raises(LoadFailed) as caught:
        await load(lambda _: [answer])
    assert words in caught.value.message and hint in caught.value.hint and "\n" not in caught.value.message


def refusing(unwanted: Callable[[dict[str, Any]], bool]) -> Callable[[Seen], Iterable[Step]]:
    """A server that answers 400 to requests with a field it does not know."""

    def script(seen: Seen) -> Iterable[Step]:
        if seen.method == "POST" and unwanted(seen.body):
            return [reply("400 Bad Request", b'{"error":{"message":"unknown field"}}')]
        return completions(seen, continuous="continuous_usage_stats" in str(seen.body.get("stream_options")))

    return script


async def test_extras_a_server_refuses_are_left_out() -> None:
    def options(body: dict[str, Any]) -> Any:
        return body.get("stream_options", {})

    result, terms, _ = await load(refusing(lambda body: "continuous_usage_stats" in options(body)))
    assert (terms.dialect.usage, terms.dialect.continuous) == (True, False)
    assert all(record.chunk_tokens is None and record.output_tokens == 8 for record in result.records)

    _, terms, _ = await load(refusing(lambda body: "stream_options" in body))
    assert (terms.dialect.usage, terms.dialect.token_ids) == (False, True)

    result, terms, seen = await load(refusing(lambda body: isinstance(body["prompt"], list)))
    assert (terms.dialect.token_ids, terms.dialect.usage, terms.dialect.continuous) == (False, True, True)
    assert set(seen[-1].body["prompt"].split()) <= set(WORDS)

    _, terms, _ = await load(refusing(lambda body: "ignore_eos" in body))
    assert (terms.dialect.ignore_eos, terms.dialect.usage) == (False, True)


async def test_what_is_refused_in_any_form_is_counted_as_it_comes() -> None:
    result, terms, _ = await load(refusing(lambda _: True), requests=3, streams=1)
    assert [record.fault for record in result.records] == ["http"] * 3
    assert terms.trouble == "http: 400: unknown field" and terms.dialect.token_ids


async def test_a_minimum_length_is_asked_for_when_ignore_eos_did_not_do() -> None:
    def script(seen: Seen) -> Iterable[Step]:
        if seen.method == "POST" and "min_tokens" not in seen.body:
            seen.body["max_tokens"] = min(3, seen.body["max_tokens"])
        return completions(seen)

    result, terms, seen = await load(script, warmup_requests=2)
    assert terms.dialect.min_tokens and seen[-1].body["min_tokens"] == 8
    assert all(record.fault is None for record in result.records)


def chatty(per_word: float, overhead: int) -> Callable[[Seen], Iterable[Step]]:
    """A chat server whose template adds `overhead` tokens, and whose tokenizer makes `per_word` of a word."""

    def script(seen: Seen) -> Iterable[Step]:
        if seen.path.endswith("/models"):
            return [MODELS]
        words = len(seen.body["messages"][0]["content"].split())
        seen.body["prompt"] = [0] * (round(words * per_word) + overhead)
        return completions(seen)

    return script


@pytest.mark.parametrize(("per_word", "overhead"), [(1.0, 0), (1.0, 24), (5.0, 12), (1.25, 7)])
async def test_chat_prompts_get_the_asked_length_by_what_the_server_counts(per_word: float, overhead: int) -> None:
    result, terms, seen = await load(chatty(per_word, overhead), api="chat", input_tokens=200)
    assert {record.prompt_tokens for record in result.records} == {terms.prompt_tokens}
    assert abs(result.records[0].prompt_tokens - 200) <= max(1, per_word / 2)  # type: ignore[operator]
    contents = [one.body["messages"][0]["content"] for one in seen if one.method == "POST"]
    assert len(set(contents)) == len(contents)
