"""The simulated server's faults, on demand and by bad clients."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from decodetop.errors import DataError
from decodetop.sim.process import SimServer, start_server
from decodetop.sim.truth import read_truth
from support.sim_client import ask, stream_body


@pytest.mark.parametrize(
    ("fault", "end", "tokens"), [("error_after=8", "error", 8), ("cut_after=5", "cut", 5), ("slow=3", "finished", 12)]
)
def test_faults_in_the_stream(truth: Path, fault: str, end: str, tokens: int) -> None:
    with start_server(speed=10, truth=truth, faults=[fault]) as server:
        reply = ask(server, "POST", "/v1/completions", stream_body(12))
    line = read_truth(truth)[0]
    assert (line.end, len(line.sent_ns)) == (end, tokens)
    assert reply.status == 200
    assert len([event for event in reply.events if event.get("choices")]) == tokens
    assert ("error" in reply.events[-1]) == (end == "error")
    assert reply.done == (end != "cut")


def test_a_stall_sends_nothing_more_and_keeps_the_connection(truth: Path) -> None:
    with start_server(speed=10, truth=truth, faults=["stall=3"]) as server:
        data = json.dumps(stream_body(12)).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.5) as sock:
            head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data)
            sock.sendall(head + data)
            seen = b""
            with pytest.raises(TimeoutError):
                while True:
                    piece = sock.recv(65536)
                    assert piece
                    seen += piece
        assert seen.count(b'"completion_tokens"') == 3
        assert read_truth(truth)[0].end == "stalled"


def test_http500_refuses_before_a_token() -> None:
    with start_server(faults=["http500"]) as server:
        reply = ask(server, "POST", "/v1/completions", stream_body(4))
        assert reply.status == 500
        assert json.loads(reply.body)["code"] == 500


def test_a_client_that_leaves_is_dropped_from_the_batch(truth: Path) -> None:
    with start_server(truth=truth) as server:
        data = json.dumps(stream_body(2000)).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock:
            head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data)
            sock.sendall(head + data)
            sock.recv(1)
        while b'"running":0' not in ask(server, "GET", "/sim/load").body:
            assert server.process.poll() is None
        assert read_truth(truth)[0].end == "left"


def test_api_key_and_open_paths() -> None:
    with start_server(api_key="sim-key", speed=10) as server:
        refused = ask(server, "GET", "/v1/models")
        assert (refused.status, json.loads(refused.body)) == (401, {"error": "Unauthorized"})
        assert ask(server, "POST", "/v1/completions", stream_body(2)).status == 401
        assert ask(server, "GET", "/v1/models", Authorization="Bearer wrong").status == 401
        assert ask(server, "GET", "/metrics").status == 200
        assert ask(server, "GET", "/v1/models", Authorization="Bearer sim-key").status == 200
        leaked = json.loads(ask(server, "GET", "/server_info", Authorization="Bearer sim-key").body)
        assert leaked["api_key"] == leaked["internal_states"][0]["api_key"] == "sim-key"  # as the real one does


def test_what_is_not_http_is_answered_and_closed(fast: SimServer) -> None:
    with socket.create_connection(("127.0.0.1", fast.port), timeout=5) as sock:
        sock.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        seen = sock.recv(65536)
    assert seen.startswith(b"HTTP/1.1 400 ")
    assert ask(fast, "GET", "/ping").status == 200


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"faults": ["explode"]}, "explode"),
        ({"exact": "ttft_ms=soon,itl_ms=1"}, "ttft_ms"),
        ({"exact": "itl_ms=1"}, "ttft_ms"),
        ({"speed": 0.0}, "--speed"),
    ],
)
def test_a_wrong_option_is_said(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        start_server(**options)
