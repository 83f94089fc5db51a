"""`decodetop server`: plain and JSON, with exit codes and words for every condition."""

from __future__ import annotations

import json
import socket

import pytest

from decodetop.cli import main
from support.engine_replay import Reply, in_thread, recorded
from support.fake_proc import FakeProc


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    """This machine's own servers are not looked at."""
    box = FakeProc()
    monkeypatch.setattr("decodetop.server.probe.Proc", lambda: box)
    monkeypatch.setattr("decodetop.server.probe.PORTS", {})
    return box


def test_json_of_a_server_has_rates(capsys: pytest.CaptureFixture[str]) -> None:
    with in_thread(recorded("sglang_tp1_graph", "after")) as replay:
        assert main(["server", "--json", "--endpoint", replay.endpoint]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["source"], said["failure"], said["errors"]) == (1, "server", None, [])
    (server,) = said["reading"]["servers"]
    assert said["reading"]["current"] == server["endpoint"] == replay.endpoint
    assert (server["engine"], server["status"], server["tp"]) == ("sglang", "up", 1)
    assert server["generated_tok_s"] == 0.0, "two polls"
    assert server["counters"]["generated_tokens"] == 17215.0
    assert server["accept_length"] is None and server["reasons"]["accept_length"] == "no speculation"
    assert replay.paths.count("/metrics") == 2


def test_plain(capsys: pytest.CaptureFixture[str]) -> None:
    with in_thread(recorded("vllm_tp1_graph", "loaded")) as replay:
        assert main(["server", "--endpoint", replay.endpoint]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"  vLLM 0.24.0 :{replay.port}  dummy-8b")
    assert "running      32, queued 0" in out and "KV cache     5.2 % of 590 k tokens" in out


def test_a_found_server_without_naming_it(no_processes: FakeProc, capsys: pytest.CaptureFixture[str]) -> None:
    with in_thread(recorded("vllm_tp1_graph", "loaded")) as replay:
        no_processes.add(10, "vllm", "serve", "m", "--enforce-eager", listen=[("0.0.0.0", replay.port)], devices="1")
        assert main(["server"]) == 0
    out = capsys.readouterr().out
    assert "graphs       OFF (--enforce-eager)" in out and "on gpu 1" in out


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"/v1/models": Reply(401, b'{"error":"Unauthorized"}')}, "up, needs a key: set DECODETOP_API_KEY"),
        ({"/v1/models": Reply(200, b"<html>", "text/html")}, "not an inference server: it answers a web page"),
    ],
)
def test_no_figures_is_exit_1_with_words(
    answers: dict[str, Reply], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with in_thread(answers) as replay:
        assert main(["server", "--endpoint", replay.endpoint]) == 1
        assert words in capsys.readouterr().out
        assert main(["server", "--json", "--endpoint", replay.endpoint]) == 1
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error.startswith(f"{replay.endpoint} is {words}")


def test_down(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert main(["server", "--endpoint", f":{port}"]) == 1
    assert "down: connection refused" in capsys.readouterr().out


def test_nothing_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["server"]) == 1
    assert "no inference server found (searched: 0 processes of this box" in capsys.readouterr().out
    assert main(["server", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["reading"]["servers"] == [] and "no inference server found" in said["errors"][0]


def test_one_that_answers_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    with in_thread(recorded("vllm_tp1_graph", "idle")) as replay:
        assert main(["server", "--json", "--endpoint", ":1", "--endpoint", replay.endpoint]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["errors"] == ["http://127.0.0.1:1 is down: connection refused"]


def test_the_key_from_the_environment_opens_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DECODETOP_API_KEY", "planted-own-key")
    with in_thread(recorded("vllm_tp1_graph", "idle")) as replay:
        assert main(["server", "--endpoint", replay.endpoint]) == 0
    assert {headers.get("authorization") for headers in replay.headers} == {"Bearer planted-own-key"}
    assert "planted" not in "".join(capsys.readouterr())


def test_an_unreadable_key_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECODETOP_API_KEY_FILE", "/nonexistent/key")
    assert main(["server", "--endpoint", ":1"]) == 2
    assert "can't read the key file" in capsys.readouterr().err
