"""What each server's stream means: its token chunks, its counts, its end, its errors."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from decodetop.bench.events import error_message
from decodetop.bench.reading import Api
from decodetop.bench.sse import Event, SseDecoder
from decodetop.bench.stream import StreamLog

CAPTURES = Path(__file__).parents[1] / "captures"


def log_of(api: Api, events: list[Any]) -> StreamLog:
    """A log of events at 1, 2, 3, ... ns; a str is sent as it is, all else as JSON."""
    log = StreamLog(api)
    for number, one in enumerate(events, 1):
        data = one.encode() if isinstance(one, str) else json.dumps(one).encode()
        log.hear(Event(data, number))
    return log


def delta(finish: str | None = None, usage: Any = "absent", **fields: Any) -> dict[str, Any]:
    chunk: dict[str, Any] = {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}
    return chunk if usage == "absent" else {**chunk, "usage": usage}


def text(value: str, finish: str | None = None, usage: Any = "absent") -> dict[str, Any]:
    chunk: dict[str, Any] = {"choices": [{"index": 0, "text": value, "finish_reason": finish}]}
    return chunk if usage == "absent" else {**chunk, "usage": usage}


def usage(output: int, prompt: int = 11, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output, **more}


def last(output: int) -> dict[str, Any]:
    return {"choices": [], "usage": usage(output)}


ROLE = delta(role="assistant", content="")
CHAT: dict[str, tuple[list[Any], list[int], list[int], int | None]] = {
    # events -> stamps of token chunks, tokens of each (0 = not said), the server's count
    "role chunk, tokens, finish chunk (SGLang)": (
        [delta(role="assistant", content="", reasoning_content=None), delta(content="a", reasoning_content=None),
         delta(content="b"), delta(finish="length", reasoning_content=None), last(2), "[DONE]"],
        [2, 3], [0, 0], 2),
    "finish reason on the last token (vLLM)": (
        [ROLE, delta(content="a"), delta(content="b", finish="length"), last(2), "[DONE]"], [2, 3], [0, 0], 2),
    "reasoning_content counts": (
        [ROLE, delta(reasoning_content="a"), delta(content="b"), delta(finish="stop"), last(2)], [2, 3], [0, 0], 2),
    "reasoning counts": ([ROLE, delta(reasoning="a"), delta(content="b", finish="stop"), last(2)], [2, 3], [0, 0], 2),
    "tool calls count": (
        [ROLE, delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}]), delta(finish="tool_calls"), last(1)],
        [2], [0], 1),
    "an empty text without a role is a token held back (TensorRT-LLM)": (
        [ROLE, delta(content=""), delta(content="ab"), delta(content="", finish="length"), last(3)], [2, 3], [0, 0], 3),
    "a role in every delta (TGI)": (
        [delta(role="assistant", content="a"), delta(role="assistant", content="b", finish="length"), last(2)],
        [1, 2], [0, 0], 2),
    "a placeholder with a role is none (LMDeploy)": (
        [delta(role="assistant", content="", usage=None), delta(role="assistant", content="ab", usage=None),
         delta(role="assistant", content="c", finish="length", usage=usage(3))], [2, 3], [0, 0], 3),
    "continuous usage": (
        [delta(role="assistant", content="", usage=usage(0)), delta(content="a", usage=usage(1)),
         delta(content="bcd", usage=usage(4)), delta(content="e", usage=usage(5), finish="length"), last(5)],
        [2, 3, 4], [1, 3, 1], 5),
    "a count on the role chunk belongs to the first token": (
        [delta(role="assistant", content="", usage=usage(1)), delta(content="a", usage=usage(1)),
         delta(content="b", usage=usage(2)), last(2)], [2, 3], [1, 1], 2),
    "text flushed without a new token is no token chunk": (
        [delta(content="a", usage=usage(1)), delta(content="b", usage=usage(2)), delta(content="!", usage=usage(2)),
         delta(finish="stop", usage=usage(2)), last(2)], [1, 2], [1, 1], 2),
    "a token without text counts where the count rises": (
        [delta(content="a", usage=usage(1)), delta(finish="stop", usage=usage(2)), last(2)], [1, 2], [1, 1], 2),
    "usage only on the last token is no running count": (
        [delta(content="a"), delta(content="b"), delta(content="c", finish="length", usage=usage(6))],
        [1, 2, 3], [0, 0, 0], 6),
    "usage only on the finish chunk is no token": (
        [delta(content="a"), delta(content="b"), delta(finish="length", usage=usage(6))], [1, 2], [0, 0], 6),
    "usage zeroed until the end (Ollama)": (
        [delta(content="a", usage=usage(0)), delta(content="b", usage=usage(0)), last(2)], [1, 2], [0, 0], 2),
    "no usage at all": ([ROLE, delta(content="a"), delta(finish="stop"), "[DONE]"], [2], [0], None),
    "all tokens in one chunk": (
        [delta(content="abc", usage=usage(3)), delta(finish="length", usage=usage(3)), last(3)], [1], [3], 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAT)
def test_chat(name: str) -> None:
    events, stamps, tokens, total = CHAT[name]
    log = log_of("chat", events)
    assert log.fault is None
    assert (log.stamps_ns, log.tokens, log.counts.output) == (stamps, tokens, total)
    assert log.counted == (sum(tokens) == total)


def test_completions_finish_chunk_without_text_is_no_interval() -> None:
    log = log_of("completions", [text("a"), text(""), text("b"), text("", finish="length"), last(3), "[DONE]"])
    assert (log.stamps_ns, log.finish, log.done, log.counts.output) == ([1, 2, 3], "length", True, 3)


def test_counts_that_do_not_add_up_are_not_used() -> None:
    log = log_of("completions", [text("a", usage=usage(1)), text("b", usage=usage(2)), last(9)])
    assert (log.tokens, log.counts.output, log.counted) == ([1, 1], 9, False)


def test_cached_tokens_and_null_details() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 7}}
    assert log_of("chat", [{"choices": [], "usage": usage(1, **details)}]).counts.cached == 7
    assert log_of("chat", [{"choices": [], "usage": usage(1, prompt_tokens_details=None)}]).counts.cached is None


@pytest.mark.parametrize("count", [-5, 10**15, 10**18, 10**30])
@pytest.mark.parametrize("api", ["completions", "generate", "completion"])
def test_a_count_that_cant_be_is_unknown_with_a_word(api: Api, count: int) -> None:
    ends: dict[str, list[Any]] = {
        "completions": [text("a"), text("b"), text("", finish="length"), last(count)],
        "generate": [
            {"text": "ab", "meta_info": {"completion_tokens": count, "prompt_tokens": 3, "finish_reason": None}},
            {"text": "abc", "meta_info": {"completion_tokens": count, "finish_reason": {"type": "length"}}},
        ],
        "completion": [
            {"content": "a", "stop": False},
            {"content": "", "stop": True, "stop_type": "limit", "tokens_predicted": count},
        ],
    }
    log = log_of(api, ends[api])
    assert log.counts.output is None and log.known_tokens == 0 and not log.counted
    assert log.stamps_ns and log.fault is None
    assert "output tokens" in log.doubt and ("-5" in log.doubt or "a billion" in log.doubt)


def test_one_count_that_cant_be_leaves_the_others() -> None:
    log = log_of("completions", [text("a", finish="length"), {"choices": [], "usage": usage(1, prompt=-3)}])
    assert log.counts.output == 1 and log.counts.prompt is None and log.doubt == "the server counted -3 prompt tokens"


def test_invalid_utf8_in_a_text() -> None:
    log = StreamLog("completions")
    log.hear(Event(b'{"choices":[{"index":0,"text":"\xff\xfe"}]}', 1))
    assert (log.stamps_ns, log.fault) == ([1], None)


def test_sglang_generate_is_cumulative() -> None:
    def event(total: int, finish: Any = None, **meta: Any) -> dict[str, Any]:
        meta |= {"completion_tokens": total, "prompt_tokens": 5, "cached_tokens": 1, "finish_reason": finish}
        return {"text": "x" * total, "output_ids": list(range(total)), "meta_info": meta}

    end = event(7, {"type": "length", "length": 7}, spec_verify_ct=3)
    log = log_of("generate", [event(1), event(4), end, "[DONE]"])
    assert (log.stamps_ns, log.tokens, log.finish, log.counted) == ([1, 2, 3], [1, 3, 3], "length", True)
    assert (log.counts.output, log.counts.prompt, log.counts.cached, log.counts.steps) == (7, 5, 1, 3)


def test_llamacpp_completion() -> None:
    timings = {"cache_n": 2, "prompt_n": 3, "predicted_n": 4, "draft_n": 5, "draft_n_accepted": 2}
    events = [
        {"content": "a", "stop": False, "tokens": [5]},
        {"content": "", "stop": False, "tokens": [6]},
        {"content": "bc", "stop": False, "tokens": [7, 8]},
    ]
    end = {"content": "", "stop": True, "stop_type": "limit", "tokens_predicted": 4, "tokens_evaluated": 5}
    log = log_of("completion", [*events, {**end, "timings": timings}])
    assert (log.stamps_ns, log.tokens, log.finish, log.counted) == ([1, 2, 3], [1, 1, 2], "limit", True)
    assert (log.counts.output, log.counts.prompt, log.counts.cached, log.counts.steps) == (4, 5, 2, 2)


ERRORS: dict[str, tuple[Api, Any, str]] = {
    "vLLM": ("chat", {"error": {"message": "out of\nmemory", "type": "x", "code": 500}}, "out of memory"),
    "SGLang": ("chat", {"object": "error", "message": "too long", "code": 400}, "too long"),
    "TGI": ("completions", {"error": "overloaded", "error_type": ""}, "overloaded"),
    "error inside an error": ("completions", {"error": {"error": "deep"}}, "deep"),
    "SGLang native abort": (
        "generate",
        {"meta_info": {"completion_tokens": 3, "finish_reason": {"type": "abort", "message": "killed"}}},
        "killed",
    ),
    "SGLang native NaN": (
        "generate",
        {"meta_info": {"completion_tokens": 3, "finish_reason": {"type": "stop", "matched": "NaN happened"}}},
        "NaN happened",
    ),
    "aborted": ("chat", delta(finish="abort"), "abort"),
    "llama.cpp": ("completion", {"error": {"code": 500, "message": "slot"}}, "slot"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_inside_the_stream_is_a_fault(name: str) -> None:
    api, event, words = ERRORS[name]
    first = {"meta_info": {"completion_tokens": 1}} if api == "generate" else text("a")
    log = log_of(api, [first, event, "[DONE]"])
    assert log.fault == ("stream_error", words)


def test_an_event_named_error_is_a_fault_and_unknown_names_are_not() -> None:
    log = StreamLog("chat")
    log.hear(Event(b"ids 1 2", 1, "sglext_ids"))
    assert log.fault is None
    log.hear(Event(b"broken pipe", 2, "error"))
    assert log.fault == ("stream_error", "broken pipe")


def test_what_is_no_json_is_a_protocol_fault() -> None:
    log = log_of("chat", ['{"choices": [{"delta"'])
    assert log.fault is not None and log.fault[0] == "protocol"
    assert log_of("chat", ['{"choices": 5}']).fault is not None
    assert log_of("chat", ["", "  "]).fault is None


def test_error_bodies() -> None:
    assert error_message(b'{"detail":[{"msg":"field required"},{"msg":"too short"}]}') == "field required; too short"
    assert error_message(b"<html>\n<b>502</b>") == "<html> <b>502</b>"
    assert error_message(b"") == ""
    assert error_message(b"[1, 2]") == "1; 2"
    assert error_message(b'{"error":"\\u001b[31mred\\u0007"}') == "[31mred"  # nothing that moves a cursor


def recorded(path: Path) -> tuple[dict[str, Any], list[Event]]:
    """A recording's request, and its events with their stamps in ns."""
    recording = json.loads(gzip.decompress(path.read_bytes()))
    decoder = SseDecoder()
    events: list[Event] = []
    carry = b""
    for number, (seconds, piece) in enumerate(recording["events"]):
        raw = carry + piece.encode()
        if number == 0:
            raw = raw.partition(b"\r\n\r\n")[2]
        body, carry = _dechunked(raw)
        events += decoder.feed(body, round(seconds * 1e9))
    return recording, events


def _dechunked(raw: bytes) -> tuple[bytes, bytes]:
    body = b""
    while (size := re.match(rb"([0-9a-f]+)\r\n", raw)) and len(raw) >= size.end() + int(size[1], 16) + 2:
        length = int(size[1], 16)
        body += raw[size.end() : size.end() + length]
        raw = raw[size.end() + length + 2 :]
    return body, raw


STREAMS = sorted(path for path in CAPTURES.glob("*/sse_*.json.gz") if "_err_" not in path.name)


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: f"{path.parent.name}/{path.name[4:-8]}")
def test_recorded_streams(path: Path) -> None:
    recording, events = recorded(path)
    route = recording["path"]
    api: Api = "generate" if route == "/generate" else "chat" if "chat" in route else "completions"
    log = StreamLog(api)
    for event in events:
        log.hear(event)
    request = recording["request"]
    asked = request.get("max_tokens") or request["sampling_params"]["max_new_tokens"]
    assert log.fault is None and log.done and log.finish == "length"
    assert len(log.stamps_ns) == asked  # one token a chunk in these recordings; role, finish and usage are none
    assert log.stamps_ns == sorted(log.stamps_ns)
    said = api == "generate" or request.get("stream_options", {}).get("include_usage", False)
    assert log.counts.output == (asked if said else None)
    assert log.counted == ("continuous" in path.name or api == "generate")


def test_what_comes_after_the_end_is_not_of_the_answer() -> None:
    """Chunks behind [DONE] made the answer longer, and its TPOT another."""
    log = log_of(
        "completions", [text("a"), text("b", finish="length"), last(2), "[DONE]", text("c"), last(9), "[DONE]"]
    )
    assert (log.stamps_ns, log.counts.output, log.done) == ([1, 2], 2, True)


def test_a_stream_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk's stamp is kept: an endless stream took memory for as long as the time-out lasted."""
    monkeypatch.setattr("decodetop.bench.stream.CHUNKS_MAX", 3)
    log = log_of("completions", [text("a")] * 6)
    assert log.fault == ("protocol", "over 3 chunks came, and no end") and len(log.stamps_ns) == 3
