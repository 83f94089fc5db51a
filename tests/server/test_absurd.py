"""What a server, its log and its process table may say on purpose: no figure that can't be, and nobody waits long."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.server.engines.sglang_loads import look_at_loads
from decodetop.server.flags import TEXT_MAX, requested_flags, whole
from decodetop.server.log import DecodeLog, start_up
from decodetop.server.metrics import LINE_MAX, SERIES_MAX, parse
from decodetop.server.probe import ServerProbe
from decodetop.server.proctable import COMMAND_MAX_BYTES, ProcTable
from decodetop.server.redact import is_secret_name, redact_text
from support.clock import ManualClock
from support.engine_replay import EngineReplay, Reply, recorded

Make = Callable[..., ServerProbe]

_TIMES_OUT = """
import sys
from decodetop.server.redact import redact_text
redact_text(sys.stdin.read())
"""


@pytest.mark.parametrize(
    "text",
    ["a-" * 2000, ".-" * 2000, "a" * 50_000, '"' * 20_000, "\\" * 20_000, "-eyJaaaaaaaa" * 4000, "api_key" * 10_000],
    ids=lambda text: text[:9],
)
def test_no_text_takes_long_to_be_cleaned_of_keys(text: str) -> None:
    """A model's name of thirty dashes took minutes, one of 100,000 letters three."""
    subprocess.run([sys.executable, "-c", _TIMES_OUT], input=text.encode(), check=True, timeout=60)


@pytest.mark.parametrize("name", ["_HF_TOKEN", "a-b-c-d-token", "x_api_key_y", "--ssl-keyfile-password"])
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)
    assert redact_text(f'{{"{name}": "plain-value"}}') == f'{{"{name}": "***"}}'


def _numbers(value: Any, where: str = "") -> list[tuple[str, float]]:
    if isinstance(value, dict):
        return [found for key, one in value.items() for found in _numbers(one, f"{where}.{key}")]
    if isinstance(value, list):
        return [found for one in value for found in _numbers(one, where)]
    return [(where, value)] if isinstance(value, (int, float)) else []


@pytest.mark.parametrize("folder", ["sglang_tp1_graph", "vllm_tp1_graph"])
@pytest.mark.parametrize("value", ["1e308", "-1e308", "-1", "1e-320", "9" * 400, "NaN", "-Inf"])
@pytest.mark.parametrize("ranks", [1, 2])
async def test_absurd_metrics(make_probe: Make, clock: ManualClock, folder: str, value: str, ranks: int) -> None:
    """Two ranks of 1e308 have no sum: that broke the reading of every server."""
    answers = recorded(folder, "loaded")
    lines = answers["/metrics"].body.decode().splitlines()
    absurd = [f"{line.rpartition(' ')[0]} {value}" for line in lines if line[:1] not in ("", "#")]
    absurd += [line.replace("{", f'{{dp_rank="{rank}",') for rank in range(1, ranks) for line in absurd]
    async with EngineReplay({**answers, "/metrics": Reply(200, "\n".join(absurd).encode(), "text/plain")}) as replay:
        probe = make_probe(replay.endpoint)
        await probe.read()
        replay.answers = answers
        await clock.advance(1.0)
        (server,) = (await probe.read()).servers
        replay.answers = {**answers, "/metrics": Reply(200, "\n".join(absurd).encode(), "text/plain")}
        await clock.advance(1.0)
        (server,) = (await probe.read()).servers
    assert server.status == "up"
    assert [one for one in _numbers(msgspec.to_builtins(server)) if not 0 <= one[1] < 2**63] == []


@pytest.mark.parametrize("value", [-1, 2**70, "9" * 5000, "-5", [], {"a": 1}, True])
async def test_absurd_sizes(make_probe: Make, value: Any) -> None:
    for folder, path in (("sglang_tp1_graph", "/server_info"), ("vllm_tp1_graph", "/v1/models")):
        answers = recorded(folder, "loaded")
        body = json.loads(answers[path].body)
        absurd = (
            dict.fromkeys(body, value) if path == "/server_info" else {"data": [{"id": "m", "max_model_len": value}]}
        )
        async with EngineReplay({**answers, path: Reply(200, json.dumps(absurd).encode())}) as replay:
            (server,) = (await make_probe(replay.endpoint).read()).servers
        assert [one for one in _numbers(msgspec.to_builtins(server)) if not 0 <= one[1] < 2**63] == []


async def test_a_long_name_is_not_in_every_sample(make_probe: Make) -> None:
    listed = Reply(200, json.dumps({"data": [{"id": "m" * 1_000_000, "owned_by": "me"}]}).encode())
    async with EngineReplay({**recorded("vllm_tp1_graph", "loaded"), "/v1/models": listed}) as replay:
        (server,) = (await make_probe(replay.endpoint).read()).servers
    assert server.served_name is not None and len(server.served_name) <= TEXT_MAX


def test_a_scrape_without_end_is_not_added_up_in_part() -> None:
    flood = "\n".join(f'x{{a="{at}"}} 1' for at in range(SERIES_MAX + 1))
    seen = parse(flood, frozenset({"x"}))
    assert (seen.total("x"), seen.unreadable) == (None, SERIES_MAX + 1)
    assert parse(f'x{{a="{"b" * LINE_MAX}"}} 1', frozenset({"x"})).unreadable == 1


@pytest.mark.parametrize("text", ["9" * 5000, "²", "-1", ""])
def test_no_whole_number(text: str) -> None:
    assert whole(text) is None


@pytest.mark.parametrize(
    "line",
    [
        "Decode batch, #running-req: 1e999, gen throughput (token/s): 1e999",
        "Decode batch, #running-req: -3, token usage: -1",
        f"Engine 000: Avg generation throughput: {'9' * 400}.0 tokens/s, Running: {'9' * 400} reqs",
        f"Decode batch, {'a' * 1_000_000}",
    ],
)
def test_a_prompt_in_the_log_that_looks_like_its_figures(line: str) -> None:
    log = DecodeLog()
    log.feed(f"{line}\n", 0)
    seen = log.at(0)
    assert seen is None or (seen.running, seen.tok_s, seen.kv_usage) == (None, None, None)


@pytest.mark.parametrize("words", ["Available KV cache memory: 1.2.3 GiB", "Available KV cache memory: . GiB", "x"])
def test_odd_words_at_start(words: str) -> None:
    assert start_up(f"(EngineCore pid=7) {words}\n(a pid={'9' * 5000}) b", [7]).kv_pool_bytes is None


def test_a_process_that_ends_while_it_is_read(tmp_path: Path) -> None:
    for pid, stat in ((1, b""), (2, b"2 (a) S 1"), ("self", b"")):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_bytes(stat)
        (folder / "cmdline").write_bytes(b"")
    assert ProcTable(tmp_path).look() == []


@pytest.mark.parametrize("word", [b"a", b"--api-key", b"x" * (COMMAND_MAX_BYTES - 20), b"sk-abcdefgh" * 200_000])
def test_a_command_of_a_million_words(tmp_path: Path, word: bytes) -> None:
    """Its flags took the square of their number, in the thread that looks for servers."""
    for pid in ("self", "7"):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_bytes(b"7 (vllm) S 1 " + b"1 " * 30)
        words = [b"vllm", b"serve", b"m", b"--tag", *[word] * (2_000_000 // len(word) + 1)]
        (tmp_path / pid / "cmdline").write_bytes(b"\0".join(words))
    (process,) = ProcTable(tmp_path).look()
    assert sum(map(len, process.argv)) <= COMMAND_MAX_BYTES and set(process.argv[4:]) <= {word.decode()}
    assert requested_flags("vllm", process.argv)["model"] == "m"


@pytest.mark.parametrize("length", [10**400, -1, "9", True, None, 1e300])
def test_an_absurd_accept_length(length: Any) -> None:
    load = {"num_running_reqs": 1, "speculative": {"accept_length": length}}
    gauge = look_at_loads({"loads": [load]}, {}).accept_gauge
    assert gauge is None or 0 < gauge < 1e18


COUNTERS = {
    "vllm_tp1_graph": {
        "vllm:generation_tokens_total": ["generated_tok_s"],
        "vllm:prompt_tokens_total": ["prompt_tok_s", "prefix_hit_rate"],
        "vllm:prefix_cache_hits_total": ["prefix_hit_rate"],
        "vllm:time_to_first_token_seconds_sum": ["ttft"],
        "vllm:inter_token_latency_seconds_count": ["itl"],
        "vllm:num_requests_running": ["running"],
    },
    "sglang_tp1_graph": {
        "sglang:realtime_tokens_total": ["generated_tok_s", "prompt_tok_s", "prefix_hit_rate"],
        "sglang:time_to_first_token_seconds_count": ["ttft"],
        "sglang:inter_token_latency_seconds_sum": ["itl"],
        "sglang:num_queue_reqs": ["queued"],
    },
    "llamacpp": {
        "llamacpp:tokens_predicted_seconds_total": ["itl"],
        "llamacpp:prompt_tokens_total": ["prompt_tok_s", "prefix_hit_rate"],
        "llamacpp:requests_processing": ["running"],
    },
}
LLAMACPP = {
    "/v1/models": Reply(200, b'{"object":"list","data":[{"id":"m","owned_by":"llamacpp"}]}'),
    "/props": Reply(200, b'{"total_slots":4,"model_path":"/m.gguf","build_info":"b1"}'),
    "/slots": Reply(200, b"[]"),
    "/metrics": Reply(
        200,
        b"llamacpp:prompt_tokens_total 5\nllamacpp:tokens_predicted_total 7\nllamacpp:requests_processing 0\n"
        b"llamacpp:tokens_predicted_seconds_total 1\nllamacpp:requests_deferred 0\n",
        "text/plain",
    ),
}


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf"])
@pytest.mark.parametrize(("folder", "name"), [(folder, name) for folder in COUNTERS for name in COUNTERS[folder]])
async def test_a_figure_says_which_counter_it_is_missing_for(
    make_probe: Make, clock: ManualClock, folder: str, name: str, value: str
) -> None:
    """It said that nothing was counted yet, or took 0 for it."""
    answers = LLAMACPP if folder == "llamacpp" else recorded(folder, "loaded")
    lines = answers["/metrics"].body.decode().splitlines()
    odd = [
        f"{line.rpartition(' ')[0]} {value}" if line.startswith((f"{name}{{", f"{name} ")) else line for line in lines
    ]
    assert odd != lines
    async with EngineReplay({**answers, "/metrics": Reply(200, "\n".join(odd).encode(), "text/plain")}) as replay:
        probe = make_probe(replay.endpoint)
        await probe.read()
        await clock.advance(4.0)
        (server,) = (await probe.read()).servers
    for figure in COUNTERS[folder][name]:
        assert getattr(server, figure) is None
        shown = {"NaN": "NaN", "-1": "-1", "+Inf": "inf"}[value]
        assert f"the engine reports {shown}" in server.reasons[figure] and "can't be" in server.reasons[figure]
    assert not any("not renewed" in why for why in server.reasons.values()) or "realtime" not in name
