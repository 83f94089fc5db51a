"""Servers in every condition: each gives a word, and none holds up another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from decodetop.server.probe import ServerProbe
from decodetop.server.reading import Server, ServerReading
from support.clock import ManualClock
from support.engine_replay import EngineReplay, Reply, recorded, scrape

Make = Callable[..., ServerProbe]

UNAUTHORISED = Reply(401, b'{"error":"Unauthorized"}')


def only(reading: ServerReading) -> Server:
    (server,) = reading.servers
    return server


async def read(probe: ServerProbe, clock: ManualClock, after_s: float) -> ServerReading:
    """A reading during which `after_s` pass: what hangs runs into its deadline."""
    reading = asyncio.ensure_future(probe.read())
    for _ in range(int(after_s * 10)):
        await asyncio.sleep(0.002)
        await clock.advance(0.1)
    await asyncio.sleep(0.002)
    assert reading.done(), f"still waiting after {after_s} s"
    return await reading


async def test_down_then_up_then_down(make_probe: Make, clock: ManualClock) -> None:
    async with EngineReplay({}) as gone:
        pass
    probe = make_probe(gone.endpoint)
    server = only(await probe.read())
    assert (server.status, server.status_message, server.engine) == ("down", "connection refused", "unknown")
    assert server.reasons["running"] == server.reasons["model"] == "the server is down"
    async with EngineReplay(recorded("vllm_tp1_graph", "loaded"), gone.port):
        await clock.advance(1.0)
        server = only(await probe.read())
        assert (server.status, server.running, server.status_message) == ("up", 32, None)
    await clock.advance(1.0)
    server = only(await probe.read())
    assert (server.status, server.running, server.counters, server.itl) == ("down", None, None, None)
    assert (server.engine, server.version) == ("vllm", "0.24.0"), "one sees what is down"


async def test_a_key_is_needed(make_probe: Make, clock: ManualClock) -> None:
    """SGLang leaves /metrics open: its figures are there although its models are not."""
    answers = {"/v1/models": UNAUTHORISED, "/version": UNAUTHORISED, "/metrics": scrape("sglang_tp1_graph", "loaded")}
    async with EngineReplay(answers) as replay:
        probe = make_probe(replay.endpoint)
        server = only(await probe.read())
        assert (server.status, server.engine, server.running) == ("needs_key", "sglang", 32)
        assert "DECODETOP_API_KEY" in (server.status_message or "")
        assert server.reasons["tp"] == server.reasons["speculative_algorithm"] == "told to those with a key only"
        for _ in range(9):
            await clock.advance(1.0)
            await probe.read()
        assert replay.paths.count("/v1/models") == 1, "not a refusal a second in the operator's log"
        replay.answers = recorded("sglang_tp1_graph", "after")
        await clock.advance(2.0)
        server = only(await probe.read())
    assert (server.status, server.tp, server.status_message) == ("up", 1, None)


@pytest.mark.parametrize(
    ("answers", "engine"),
    [
        ({"/v1/models": UNAUTHORISED, "/version": Reply(200, b'{"version":"0.24.0"}')}, "vllm"),
        ({"/v1/models": Reply(401, b'{"error":{"type":"authentication_error","code":401}}')}, "llamacpp"),
        ({"/v1/models": Reply(403, b"forbidden", "text/plain")}, "unknown"),
    ],
)
async def test_who_wants_the_key(make_probe: Make, clock: ManualClock, answers: dict[str, Reply], engine: str) -> None:
    async with EngineReplay(answers) as replay:
        probe = make_probe(replay.endpoint)
        server = only(await probe.read())
        await clock.advance(1.0)
        again = only(await probe.read())
    assert (server.status, server.engine) == (again.status, again.engine) == ("needs_key", engine)
    assert replay.paths.count("/v1/models") == 1


async def test_the_key_given_is_refused(make_probe: Make) -> None:
    async with EngineReplay({"/v1/models": UNAUTHORISED}) as replay:
        server = only(await make_probe(replay.endpoint, api_key="wrong-key").read())
    assert (server.status, server.status_message) == ("needs_key", "it refuses the key given")


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (Reply(200, b"<html>hello</html>", "text/html; charset=utf-8"), "a web page"),
        (Reply(404, b"no", "text/plain"), "404 to /v1/models"),
        (Reply(302, location="http://127.0.0.1:1/"), "302 to /v1/models"),
        (Reply(200, b"\xff\xfe garbage"), "200 to /v1/models"),
        (Reply(200, b'{"data":[]}'), "200 to /v1/models"),
        (Reply(200, b'{"data":[["sglang"]]}'), "200 to /v1/models"),
    ],
)
async def test_not_an_inference_server(make_probe: Make, reply: Reply, word: str) -> None:
    async with EngineReplay({"/v1/models": reply}) as replay:
        server = only(await make_probe(replay.endpoint).read())
    assert server.status == "not_a_server" and word in (server.status_message or "")
    assert set(replay.paths) <= {"/v1/models", "/model_info", "/props", "/info", "/api/version"}


@pytest.mark.parametrize(("code", "status"), [(503, "starting"), (502, "down"), (504, "down")])
async def test_not_there_yet(make_probe: Make, code: int, status: str) -> None:
    async with EngineReplay({"/v1/models": Reply(code, b"")}) as replay:
        assert only(await make_probe(replay.endpoint).read()).status == status


async def test_an_unknown_engine_that_lists_its_models(make_probe: Make) -> None:
    listed = Reply(200, b'{"object":"list","data":[{"id":"some-model","owned_by":"me","max_model_len":4096}]}')
    async with EngineReplay({"/v1/models": listed}) as replay:
        server = only(await make_probe(replay.endpoint).read())
    assert (server.status, server.engine, server.model, server.context_length) == ("up", "unknown", "some-model", 4096)
    assert server.reasons["running"] == "an engine decodetop does not know"


async def test_a_hung_server_stalls_itself_only(make_probe: Make, clock: ManualClock) -> None:
    async with (
        EngineReplay(recorded("sglang_tp1_graph", "loaded")) as hung,
        EngineReplay(recorded("vllm_tp1_graph", "loaded")) as well,
    ):
        probe = make_probe(hung.endpoint, well.endpoint)
        await probe.read()
        hung.answers = {**hung.answers, "/metrics": Reply(hang=True)}
        await clock.advance(1.0)
        before = clock.now_ns()
        first, second = (await read(probe, clock, 1.0)).servers
        assert second.generated_tok_s == 0.0, "the other one was read"
        assert clock.now_ns() - before <= 1.1e9
        assert first.running == 32, "shown as it was while its answer may still come"
        await read(probe, clock, 1.0)
        first, second = (await read(probe, clock, 1.0)).servers
        assert (first.status, first.running, second.status) == ("hung", None, "up")
        assert first.tp == 1 and "/metrics" in (first.status_message or "")
        assert hung.paths.count("/metrics") - 1 <= 2, "no second request while the first hangs"
        hung.answers = recorded("sglang_tp1_graph", "after")
        await clock.advance(1.0)
        first, second = (await probe.read()).servers
    assert (first.status, first.running) == ("up", 0)


async def test_a_hung_server_info_does_not_hide_the_figures(make_probe: Make, clock: ManualClock) -> None:
    """SGLang's /server_info waits for its scheduler (sglang #4191)."""
    answers = {**recorded("sglang_tp1_graph", "loaded"), "/server_info": Reply(hang=True)}
    async with EngineReplay(answers) as replay:
        server = only(await read(make_probe(replay.endpoint), clock, 2.5))
    assert (server.status, server.engine, server.running, server.served_name) == ("up", "sglang", 32, "dummy-8b")
    assert server.tp is None and "scheduler" in server.reasons["tp"]


async def test_metrics_are_off(make_probe: Make) -> None:
    answers = recorded("sglang_tp1_graph")
    async with EngineReplay(answers) as replay:
        server = only(await make_probe(replay.endpoint).read())
    assert (server.status, server.tp, server.running) == ("up", 1, None)
    why = "started without --enable-metrics; its log can't be read: no log of it is known: --server-log FILE names one"
    assert server.reasons["running"] == server.reasons["itl"] == why


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\xff" * 100,
        b"<html>503</html>",
        b"sglang:num_running_reqs{tp_rank=\n" * 10,
        b'sglang:num_running_reqs{tp_rank="0"} nonsense\nsglang:num_queue_reqs NaN\n',
    ],
)
async def test_garbage_metrics(make_probe: Make, body: bytes) -> None:
    answers = {**recorded("sglang_tp1_graph"), "/metrics": Reply(200, body, "text/plain")}
    async with EngineReplay(answers) as replay:
        server = only(await make_probe(replay.endpoint).read())
    assert (server.status, server.running, server.queued) == ("up", None, None)
    why = server.reasons["running"]
    assert ("sglang:num_running_reqs" in why or "no text" in why) and server.reasons["queued"]
    assert server.generated_tok_s is None and server.reasons["generated_tok_s"]


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(500, b"oops", "text/plain"), "up"),
        (Reply(200, b"x" * 5000, cut=True), "down"),
        (Reply(200, b"<html></html>", "text/html"), "not_a_server"),
        (Reply(503, b""), "down"),
    ],
)
async def test_metrics_that_fail(make_probe: Make, clock: ManualClock, reply: Reply, status: str) -> None:
    async with EngineReplay(recorded("vllm_tp1_graph", "loaded")) as replay:
        probe = make_probe(replay.endpoint)
        assert only(await probe.read()).running == 32
        replay.answers = {**replay.answers, "/metrics": reply}
        await clock.advance(1.0)
        server = only(await probe.read())
    assert (server.status, server.running, server.generated_tok_s) == (status, None, None)
    assert server.status_message


async def test_a_restart_gives_no_negative_rate(make_probe: Make, clock: ManualClock) -> None:
    async with EngineReplay(recorded("sglang_tp1_graph", "after")) as replay:
        probe = make_probe(replay.endpoint)
        await probe.read()
        replay.answers = recorded("sglang_tp1_graph", "idle")
        await clock.advance(1.0)
        restarted = only(await probe.read())
        replay.answers = recorded("sglang_tp1_graph", "loaded")
        await clock.advance(10.0)
        running = only(await probe.read())
    assert restarted.generated_tok_s is None
    assert restarted.reasons["generated_tok_s"] == "the counters went back: the server restarted"
    assert running.generated_tok_s == pytest.approx((7709 - 11) / 10)


async def test_nothing_to_watch(make_probe: Make) -> None:
    reading = await make_probe().read()
    assert (reading.servers, reading.current) == ((), None)


async def test_json_nested_without_end_blinds_nobody_else(make_probe: Make) -> None:
    deep = Reply(200, b"[" * 100_000)
    async with (
        EngineReplay({"/v1/models": deep}) as hostile,
        EngineReplay(recorded("vllm_tp1_graph", "loaded")) as good,
    ):
        servers = (await make_probe(hostile.endpoint, good.endpoint).read()).servers
    assert {server.endpoint: server.status for server in servers}[good.endpoint] == "up"
