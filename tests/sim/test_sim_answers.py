"""What the simulated server reads and writes, against the bytes a real SGLang 0.5.15 sent."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from decodetop.sim.asks import Api, Refused, parse
from decodetop.sim.chunks import Answer, token_ids
from decodetop.sim.prefix import PrefixCache

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang_tp1_graph"
RECORDED: list[tuple[str, Api]] = [
    ("sse_chat_nousage", "chat"),
    ("sse_chat_usage", "chat"),
    ("sse_completions_continuous", "completions"),
    ("sse_completions_usage", "completions"),
    ("sse_generate_native", "generate"),
]


def events(stream: str) -> list[Any]:
    """The `data:` payloads of a chunked body; also checks the chunks' lengths."""
    head, _, body = stream.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    out: list[Any] = []
    while body:
        size, _, rest = body.partition("\r\n")
        chunk, body = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        if chunk:
            assert chunk.startswith("data: ") and chunk.endswith("\n\n")
            text = chunk[6:-2]
            out.append(text if text == "[DONE]" else json.loads(text))
    return out


def shape(value: Any) -> Any:
    """Names in their order and types; token texts, ids and prompt counts differ by right."""
    if isinstance(value, dict):
        return {key: shape(part) for key, part in value.items() if not key.endswith("_ts")}
    if isinstance(value, list):
        return [shape(part) for part in value]
    return re.sub(r" w[0-9a-f]+", " w", value) if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize(("name", "api"), RECORDED)
def test_a_stream_has_the_recorded_shape(name: str, api: Api) -> None:
    recorded = json.loads(gzip.decompress((CAPTURES / f"{name}.json.gz").read_bytes()))
    raw = "".join(text for _, text in recorded["events"])
    theirs = events(raw)
    ask = parse(api, json.dumps(recorded["request"]).encode(), "dummy-8b", 16_384)
    rid = theirs[0]["meta_info"]["id"] if api == "generate" else theirs[0]["id"]
    answer = Answer(ask, rid, theirs[0].get("created", 0), token_ids(0, 1))
    answer.timings = {"e2e_latency": 0.045, "decode_throughput": 205.9}
    head = answer.opening() or raw.partition("\r\n\r\n")[0].encode() + b"\r\n\r\n"
    chunks = [answer.tokens(at, 1, last=at == ask.max_tokens - 1) for at in range(ask.max_tokens)]
    ours = events((head + b"".join(chunks) + answer.closing(ask.max_tokens)).decode())
    assert [shape(event) for event in ours] == [shape(event) for event in theirs]
    assert [list(event) for event in ours if event != "[DONE]"] == [list(e) for e in theirs if e != "[DONE]"]


def test_several_tokens_in_one_chunk_are_counted_in_its_usage() -> None:
    body = {"prompt": [1, 2, 3], "max_tokens": 8, "stream": True, "stream_options": {"continuous_usage_stats": True}}
    answer = Answer(parse("completions", json.dumps(body).encode(), "m", 100), "r", 0, token_ids(0, 1))
    stream = (answer.opening() + answer.tokens(0, 4, last=False) + answer.tokens(4, 4, last=True)).decode()
    counts = [event["usage"]["completion_tokens"] for event in events(stream)]
    assert counts == [4, 8]
    assert [len(event["choices"][0]["text"].split()) for event in events(stream)] == [4, 4]


def test_an_unstreamed_answer_holds_the_same_text() -> None:
    ask = parse("completions", b'{"prompt":"a b c","max_tokens":5}', "m", 100)
    answer = Answer(ask, "r", 0, token_ids(3, 1))
    whole = json.loads(answer.whole(5))
    texts = [events((answer.opening() + answer.tokens(at, 1, last=False)).decode())[0] for at in range(5)]
    assert whole["choices"][0]["text"] == "".join(event["choices"][0]["text"] for event in texts)
    assert whole["usage"] == {"prompt_tokens": 3, "total_tokens": 8, "completion_tokens": 5, "reasoning_tokens": 0}


@pytest.mark.parametrize(
    ("api", "body", "tokens"),
    [
        ("completions", {"prompt": [5, 6, 7]}, 3),
        ("completions", {"prompt": [[5, 6, 7]]}, 3),
        ("completions", {"prompt": "one two"}, 2),
        ("generate", {"input_ids": [5] * 9}, 9),
        ("generate", {"text": "one two three"}, 3),
        ("chat", {"messages": [{"role": "user", "content": "one two"}]}, 10),
        ("chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "one"}]}]}, 9),
    ],
)
def test_prompts_are_counted_in_ids_or_words(api: Api, body: dict[str, Any], tokens: int) -> None:
    assert len(parse(api, json.dumps(body).encode(), "m", 100).prompt) == tokens


@pytest.mark.parametrize(
    ("api", "body", "says"),
    [
        ("completions", b"{", "not JSON"),
        ("completions", b"[]", "not an object"),
        ("completions", b'{"prompt":"x","max_tokens":-3}', "max_tokens must be positive"),
        ("completions", b'{"prompt":"x","max_tokens":true}', "max_tokens must be positive"),
        ("completions", b'{"max_tokens":3}', "a prompt is needed"),
        ("completions", b'{"prompt":["a","b"]}', "one prompt"),
        ("completions", b'{"prompt":"x","n":2}', "n = 1"),
        ("chat", b'{"messages":[]}', "messages"),
        ("generate", b'{"text":"x","sampling_params":[]}', None),
        ("generate", b'{"text":"x","sampling_params":[1]}', "one object"),
        ("completions", b'{"prompt":[' + b"1," * 99 + b"1]}", "The input (100 tokens) is longer than"),
    ],
)
def test_what_can_not_be_served_is_refused_with_a_word(api: Api, body: bytes, says: str | None) -> None:
    if says is None:
        assert parse(api, body, "m", 100).max_tokens == 128
        return
    with pytest.raises(Refused) as caught:
        parse(api, body, "m", 100)
    answer = json.loads(caught.value.body)
    assert says in answer["message"]
    assert (answer["object"], answer["code"], caught.value.status) == ("error", 400, 400)


def test_the_prefix_cache_counts_whole_blocks_and_never_the_last_token() -> None:
    cache = PrefixCache()
    prompt = tuple(range(64))
    assert cache.admit(prompt) == 0
    assert cache.admit(prompt) == 63
    assert cache.admit((*prompt[:40], -1, -2)) == 32
    assert cache.admit(tuple(range(1, 65))) == 0
    cache.flush()
    assert cache.admit(prompt) == 0


def test_the_prefix_cache_forgets_the_least_recently_used() -> None:
    cache = PrefixCache(capacity_blocks=4)
    first, second = tuple(range(64)), tuple(range(100, 164))
    cache.admit(first)
    cache.admit(second)
    assert cache.admit(second) == 63
    assert cache.admit(first) == 0
