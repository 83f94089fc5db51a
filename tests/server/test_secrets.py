"""Keys planted everywhere a server may hold one: none reaches a reading, a tape line, words or a log."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import msgspec
import pytest

from decodetop.core.sample import Sample
from decodetop.flows.catalog import codec
from decodetop.server import text
from decodetop.server.probe import ServerProbe
from support.engine_replay import EngineReplay, Reply, recorded
from support.fake_proc import FakeProc

Make = Callable[..., ServerProbe]
PLANTED = "planted"


def info_with_keys() -> bytes:
    """As SGLang 0.5.23 answers: keys at the top, in each internal state, and in the launch command."""
    info = json.loads(recorded("sglang_tp1_graph")["/server_info"].body)
    keys = {
        "api_key": "planted-1",
        "admin_api_key": "planted-2",
        "ssl_keyfile_password": "planted-3",
        "env_vars": {"HF_TOKEN": "hf_plantedplantedplanted"},
        "launch_command": "python3 -m sglang.launch_server --api-key planted-4 --tp 1",
        "revision": "planted-not-on-the-list",
        "served_model_name": "m",
    }
    info |= keys
    info["internal_states"][0] |= keys
    info["cuda_graph_config"]["decode"]["token"] = "planted-5"
    return json.dumps(info).encode()


async def everything_said(make_probe: Make, answers: dict[str, Reply], caplog: pytest.LogCaptureFixture) -> str:
    caplog.set_level(logging.DEBUG)
    box = FakeProc()
    async with EngineReplay(answers) as replay:
        command = ("python3", "-m", "sglang.launch_server", "--port", str(replay.port))
        keys = ("--api-key", "planted-a", "--admin-api-key=planted-b", "--ssl-keyfile-password", "planted-c")
        more = ("--extra", '{"hf_token": "planted-d"}', "--url", "http://user:planted-e@host/")
        box.add(100, *command, *keys, *more, listen=[("127.0.0.1", replay.port)])
        box.add(101, "sglang::scheduler", ppid=100)
        probe = make_probe(replay.endpoint, discover=True, proc=box, api_key="planted-own-key")
        reading = await probe.read()
        assert any(f"Bearer {PLANTED}" in headers.get("authorization", "") for headers in replay.headers)
    sample = Sample(source="server", t_ns=0, seq=0, reading=reading)
    said = [codec().line(sample).decode(), msgspec.json.encode(reading).decode(), repr(reading), caplog.text]
    return "\n".join([*said, *text.lines(reading), *text.markdown(reading), *map(text.summary, reading.servers)])


async def test_keys_of_a_server_that_answers(make_probe: Make, caplog: pytest.LogCaptureFixture) -> None:
    answers = {**recorded("sglang_tp1_graph", "loaded"), "/server_info": Reply(200, info_with_keys())}
    said = await everything_said(make_probe, answers, caplog)
    assert "--admin-api-key=***" in said and "triton" in said
    assert PLANTED not in said.replace("planted-not-on-the-list", "revision")
    assert "planted-not-on-the-list" not in said, "settings are taken by an allow-list"


async def test_keys_in_what_a_server_says_when_it_refuses(make_probe: Make, caplog: pytest.LogCaptureFixture) -> None:
    body = b'{"error":"Unauthorized","api_key":"planted-x","message":"wrong key planted-own-key"}'
    said = await everything_said(make_probe, {"/v1/models": Reply(401, body)}, caplog)
    assert "refuses the key" in said and PLANTED not in said


async def test_a_key_in_a_model_s_name(make_probe: Make, caplog: pytest.LogCaptureFixture) -> None:
    listed = b'{"data":[{"id":"m","owned_by":"x","root":"https://u:planted-y@host/m?token=planted-z"}]}'
    said = await everything_said(make_probe, {"/v1/models": Reply(200, listed)}, caplog)
    assert "***@host" in said and PLANTED not in said


async def test_the_key_goes_to_named_endpoints_only(make_probe: Make) -> None:
    async with EngineReplay(recorded("vllm_tp1_graph", "idle")) as named, EngineReplay({}) as other:
        box = FakeProc()
        box.add(100, "vllm", "serve", "m", listen=[("127.0.0.1", other.port)])
        await make_probe(named.endpoint, discover=True, proc=box, api_key="planted-own-key").read()
    assert {headers.get("authorization") for headers in named.headers} == {"Bearer planted-own-key"}
    assert other.headers and {headers.get("authorization") for headers in other.headers} == {None}
