"""Which server is meant, the command that changes it, and one-shot snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from decodetop.core.engine import Engine
from decodetop.core.sample import Header, Notice
from decodetop.core.state import State
from decodetop.errors import RequestError
from decodetop.server.probe import ServerControl, ServerProbe
from decodetop.server.reading import ChooseServer, ServerReading, TryGeneration
from support.clock import ManualClock
from support.engine_replay import EngineReplay, Reply, recorded
from support.fake_proc import FakeProc

Make = Callable[..., ServerProbe]


async def test_the_first_named_endpoint_is_meant_even_when_down(make_probe: Make) -> None:
    async with EngineReplay({}) as gone:
        pass
    async with EngineReplay(recorded("vllm_tp1_graph", "idle")) as up:
        probe = make_probe(gone.endpoint, up.endpoint)
        assert (await probe.read()).current == gone.endpoint
        probe.choose(up.endpoint)
        assert (await probe.read()).current == up.endpoint


async def test_without_a_name_the_first_one_up_is_meant_and_stays(make_probe: Make, clock: ManualClock) -> None:
    async with EngineReplay({}) as gone:
        pass
    async with EngineReplay(recorded("vllm_tp1_graph", "idle")) as up:
        box = FakeProc()
        box.add(100, "vllm", "serve", "m", listen=[("127.0.0.1", gone.port)])
        box.add(200, "vllm", "serve", "m", listen=[("127.0.0.1", up.port)])
        probe = make_probe(discover=True, proc=box)
        assert (await probe.read()).current == up.endpoint
        async with EngineReplay(recorded("vllm_tp1_graph", "idle"), gone.port):
            await clock.advance(1.0)
            reading = await probe.read()
        assert [server.status for server in reading.servers] == ["up", "up"]
        assert reading.current == up.endpoint


class Tape:
    def __init__(self) -> None:
        self.state: State | None = None

    def put(self, sample: object) -> None:
        pass

    def reset(self) -> None:
        pass


async def test_the_command(make_probe: Make, clock: ManualClock) -> None:
    async with (
        EngineReplay(recorded("vllm_tp1_graph", "idle")) as first,
        EngineReplay(recorded("sglang_tp1_graph", "idle")) as second,
    ):
        probe = make_probe(first.endpoint, second.endpoint)
        engine = Engine(
            Header(version="t", host="h", started_wall_ns=0), clock, [probe], [ServerControl(probe)], readonly=True
        )
        running = asyncio.ensure_future(engine.run(Tape()))

        async def until(current: str) -> None:
            while True:
                await asyncio.sleep(0.001)
                reading = engine.state.last("server", ServerReading)
                if reading is not None and reading.current == current:
                    return

        await until(first.endpoint)
        engine.submit(ChooseServer(endpoint=second.endpoint))
        await until(second.endpoint)  # at once: the clock has not moved
        engine.submit(ChooseServer(endpoint="http://127.0.0.1:1"))
        while engine.state.last("notice", Notice) is None:
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.wait({running})
    notice = engine.state.last("notice", Notice)
    assert notice is not None and "http://127.0.0.1:1" in notice.message


async def test_choosing_what_is_not_listed(make_probe: Make) -> None:
    with pytest.raises(RequestError, match="known: none"):
        make_probe().choose("http://127.0.0.1:1")


async def test_a_snapshot_of_any_endpoint(make_probe: Make, clock: ManualClock) -> None:
    async with EngineReplay(recorded("sglang_tp1_graph", "idle")) as replay:
        watched, strange = make_probe(replay.endpoint), make_probe()
        for probe in (watched, strange):
            replay.answers = recorded("sglang_tp1_graph", "idle")
            before = await probe.snapshot(replay.endpoint)
            replay.answers = recorded("sglang_tp1_graph", "after")
            await clock.advance(10.0)
            after = await probe.snapshot(replay.endpoint)
            assert before.counters is not None and after.counters is not None
            assert (before.counters.generated_tokens, after.counters.generated_tokens) == (11.0, 17215.0)
            assert (after.status, after.tp, after.flags != ()) == ("up", 1, True)
        assert (await strange.read()).servers == ()
    gone = await strange.snapshot(replay.endpoint)
    assert (gone.status, gone.counters) == ("down", None)


async def test_one_generation_on_demand(make_probe: Make, clock: ManualClock) -> None:
    answers = recorded("vllm_tp1_graph", "idle")
    answers["/v1/completions"] = Reply(200, b"{}")
    async with EngineReplay(answers) as replay:
        replay.may_post = frozenset({"/v1/completions"})
        probe = make_probe(replay.endpoint)
        control = ServerControl(probe)
        (server,) = (await probe.read()).servers
        assert server.generation is None
        await probe.generate(replay.endpoint)
        (server,) = (await probe.read()).servers
        assert server.generation is not None and server.generation.error is None
        replay.answers.pop("/v1/completions")
        await clock.advance(1.0)
        await probe.generate(replay.endpoint)
        (server,) = (await probe.read()).servers
        assert server.generation is not None and "answered 404" in (server.generation.error or "")
        with pytest.raises(RequestError, match="no server"):
            await probe.generate("http://127.0.0.1:1")
    assert TryGeneration in control.commands and TryGeneration.touches, "--readonly refuses it"
