"""Two real engines played back over HTTP: the figures agree with what was measured beside them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from decodetop.server.probe import ServerProbe
from decodetop.server.reading import Server, ServerReading
from support.clock import ManualClock
from support.engine_replay import EngineReplay, Reply, read, recorded, scrape

Make = Callable[..., ServerProbe]

CLIENT = {
    "sglang_tp1_graph": (7.3933, 17152),
    "sglang_tp1_nograph": (21.5800, 17152),
    "sglang_tp2_graph": (4.7966, 17152),
    "vllm_tp1_graph": (6.7625, 17152),
    "vllm_tp2_graph": (4.9650, 17152),
}
"""Mean ms per token after the first, and output tokens, of the 67 requests a client sent between the idle scrape and
the one after the load: sum of (end - first token) over sum of (tokens - 1) in the recordings' loads.json."""


async def play(make_probe: Make, clock: ManualClock, folder: str, *states: str, step_s: float = 1.0) -> list[Server]:
    """One poll per state, `step_s` apart."""
    seen: list[Server] = []
    async with EngineReplay(recorded(folder, states[0])) as replay:
        probe = make_probe(replay.endpoint)
        for state in states:
            replay.answers = recorded(folder, state)
            seen.append(current(await probe.read()))
            await clock.advance(step_s)
    return seen


def current(reading: ServerReading) -> Server:
    server = reading.current_server
    assert server is not None
    return server


@pytest.mark.parametrize("folder", CLIENT)
async def test_tokens_and_itl_agree_with_the_client(make_probe: Make, clock: ManualClock, folder: str) -> None:
    idle, after = await play(make_probe, clock, folder, "idle", "after", step_s=20.0)
    itl_ms, tokens = CLIENT[folder]
    assert idle.counters is not None and after.counters is not None and after.itl is not None
    generated = (after.counters.generated_tokens or 0) - (idle.counters.generated_tokens or 0)
    assert generated == pytest.approx(tokens, rel=0.02)
    assert after.generated_tok_s == pytest.approx(generated / 20.0)
    assert after.itl.over_s == 20.0
    assert after.itl.mean_ms == pytest.approx(itl_ms, rel=0.02)


@pytest.mark.parametrize(
    ("folder", "running", "kv_usage", "generated", "ttft", "itl"),
    [
        ("sglang_tp1_graph", 32, 0.05048, 7709, (258.159, 42), (7.319, 7657)),
        ("sglang_tp1_nograph", 32, 0.04191, 2621, (341.370, 42), (24.981, 2601)),
        ("sglang_tp2_graph", 22, 0.01845, 9949, (213.186, 74), (4.962, 9865)),
        ("vllm_tp1_graph", 32, 0.05198, 7882, (396.529, 39), (6.556, 7843)),
        ("vllm_tp2_graph", 32, 0.01898, 9474, (210.396, 71), (5.246, 9403)),
    ],
)
async def test_the_loaded_scrape(
    make_probe: Make,
    clock: ManualClock,
    folder: str,
    running: int,
    kv_usage: float,
    generated: float,
    ttft: tuple[float, float],
    itl: tuple[float, float],
) -> None:
    (server,) = await play(make_probe, clock, folder, "loaded")
    assert (server.status, server.running, server.queued) == ("up", running, 0)
    assert server.kv_usage == pytest.approx(kv_usage, abs=5e-6)
    assert server.counters is not None and server.counters.generated_tokens == generated
    assert server.ttft is not None and server.itl is not None
    assert (server.ttft.mean_ms, server.ttft.count) == (pytest.approx(ttft[0], abs=1e-3), ttft[1])
    assert (server.itl.mean_ms, server.itl.count) == (pytest.approx(itl[0], abs=1e-3), itl[1])
    assert server.itl.over_s is None and server.ttft.over_s is None, "one poll: since the server started"
    assert server.generated_tok_s is None and server.reasons["generated_tok_s"] == "a rate needs two polls"


async def test_a_stale_throughput_gauge_is_not_live(make_probe: Make, clock: ManualClock) -> None:
    """The scrape after the load still says gen_throughput 4827 with nothing running."""
    assert b"gen_throughput{" in scrape("sglang_tp1_graph", "after").body
    *_, idle = await play(make_probe, clock, "sglang_tp1_graph", "loaded", "after", "after")
    assert idle.running == 0
    assert idle.generated_tok_s == 0.0


async def test_the_interval_is_told_from_the_whole_life(make_probe: Make, clock: ManualClock) -> None:
    """vLLM TP1, idle to loaded against loaded to after: ITL 6.556 and 6.939 ms, TTFT 396.5 and 336.0."""
    _, loaded, after = await play(make_probe, clock, "vllm_tp1_graph", "idle", "loaded", "after", step_s=10.0)
    assert loaded.itl is not None and after.itl is not None and after.ttft is not None
    assert loaded.itl.mean_ms == pytest.approx(6.556, abs=1e-3)
    assert after.itl.mean_ms == pytest.approx(6.939, abs=1e-3)
    # first tokens are rare: over the last minute, not over the last poll
    assert after.ttft.over_s == 20.0 and after.ttft.mean_ms == pytest.approx(369.243, abs=1e-3)


async def test_ranks_do_not_double_the_capacity(make_probe: Make, clock: ManualClock) -> None:
    (server,) = await play(make_probe, clock, "sglang_tp2_graph", "loaded")
    assert server.kv_capacity_tokens == 1_297_846
    assert server.context_length == 16384
    assert server.counters is not None and server.counters.graph_decode_passes == 1115.0


async def test_sglang_identity_and_settings(make_probe: Make, clock: ManualClock) -> None:
    (server,) = await play(make_probe, clock, "sglang_tp2_graph", "idle")
    assert (server.engine, server.version, server.model, server.served_name) == (
        "sglang",
        "0.5.15",
        "/srv/models/dense8b",
        "dummy-8b",
    )
    assert (server.tp, server.pp, server.dp, server.ep) == (2, 1, 1, 1)
    assert (server.attention_backend, server.max_running) == ("triton", 4096)
    assert (server.cuda_graph, server.cuda_graph_max_batch) == (True, 32)
    assert server.cuda_graph_batches == (1, 2, 4, 8, 12, 16, 24, 32)
    assert server.speculative_algorithm is None and "speculative_algorithm" not in server.reasons
    assert server.reasons["kv_dtype"] == "auto: taken from the model's own configuration"


async def test_graphs_are_told_by_settings_and_passes(make_probe: Make, clock: ManualClock) -> None:
    """`is_cuda_graph` reads 0 on both servers; the counters of passes say which one runs graphs."""
    (on,) = await play(make_probe, clock, "sglang_tp1_graph", "loaded")
    (off,) = await play(make_probe, clock, "sglang_tp1_nograph", "loaded")
    assert on.cuda_graph is True and on.counters is not None and off.counters is not None
    assert (on.counters.graph_decode_passes, on.counters.eager_decode_passes) == (1044.0, 0.0)
    assert off.cuda_graph is False and off.cuda_graph_batches == ()
    assert (off.counters.graph_decode_passes, off.counters.eager_decode_passes) == (0.0, 886.0)


async def test_vllm_identity_and_what_it_does_not_say(make_probe: Make, clock: ManualClock) -> None:
    (server,) = await play(make_probe, clock, "vllm_tp2_graph", "idle")
    assert (server.engine, server.version, server.model, server.served_name) == (
        "vllm",
        "0.24.0",
        "/srv/models/dense8b",
        "dummy-8b",
    )
    assert (server.context_length, server.kv_capacity_tokens) == (16384, 1_295_840)
    assert server.tp is None and "command line" in server.reasons["tp"]
    assert server.cuda_graph is None and "command line" in server.reasons["cuda_graph"]
    assert {flag.name: flag.resolved for flag in server.flags}["block_size"] == "16"


async def test_accept_length_from_the_verify_calls(make_probe: Make, clock: ManualClock) -> None:
    """N-gram speculation: (2784 tokens - 14 first ones) / 717 verify steps; the gauge says 4.0, one log window."""
    answers = recorded("sglang_tp1_graph")
    info = read("sglang_ngram_graph", "server_info.json")
    answers["/server_info"] = Reply(200, info)
    answers["/metrics"] = Reply(200, read("sglang_ngram_graph", "metrics.txt"), "text/plain")
    async with EngineReplay(answers) as replay:
        probe = make_probe(replay.endpoint)
        first = current(await probe.read())
        assert first.accept_length == 4.0, "it works: the engine's own last figure"
        # its requests have ended since: now they are counted
        later = re.sub(rb"(num_running_reqs\{[^}]*\}) 6\.0", rb"\1 0.0", read("sglang_ngram_graph", "metrics.txt"))
        replay.answers = {**answers, "/metrics": Reply(200, later, "text/plain")}
        await clock.advance(1.0)
        second = current(await probe.read())
    assert (first.speculative_algorithm, first.speculative_draft_tokens) == ("NGRAM", 4)
    assert second.running == 0
    assert second.accept_length == pytest.approx(2770 / 717)


@pytest.mark.parametrize("folder", CLIENT)
async def test_only_safe_addresses_are_asked(make_probe: Make, clock: ManualClock, folder: str) -> None:
    async with EngineReplay(recorded(folder, "idle")) as replay:
        probe = make_probe(replay.endpoint)
        for _ in range(3):
            await probe.read()
            await clock.advance(70.0)
        asked = set(replay.paths)
        accepts = {
            headers["accept"] for path, headers in zip(replay.paths, replay.headers, strict=True) if path == "/metrics"
        }
        encodings = {headers["accept-encoding"] for headers in replay.headers}
    sglang = {"/v1/models", "/model_info", "/server_info", "/metrics"}
    assert asked == (sglang if folder.startswith("sglang") else {"/v1/models", "/version", "/metrics"})
    assert accepts == {"text/plain"} and encodings == {"identity"}


async def test_a_gauge_that_stopped_with_the_tokens_is_not_live(make_probe: Make, clock: ManualClock) -> None:
    """SGLang renews `num_running_reqs` with its decode log: after a load it says 1 running for up to 30 s more."""
    polls = await play(make_probe, clock, "sglang_tp1_graph", "loaded", "loaded", "loaded", "loaded", "loaded")
    assert [server.running for server in polls] == [32, 32, 32, None, None]
    assert polls[-1].reasons["running"] == "not renewed since the last token, 4 s ago"
    assert polls[-1].kv_usage is None and polls[-1].generated_tok_s == 0.0


async def test_a_busy_server_keeps_its_gauges(make_probe: Make, clock: ManualClock) -> None:
    polls = await play(make_probe, clock, "sglang_tp1_graph", "idle", "loaded", step_s=10.0)
    assert [server.running for server in polls] == [0, 32]
