"""The simulated server as a process, read by raw sockets and judged by its own truth log."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from decodetop.sim import model
from decodetop.sim.process import SimServer, start_server
from decodetop.sim.truth import read_truth
from support.sim_client import ask, line_of, samples, stream_body, together, total


def test_what_arrives_is_what_the_truth_log_says(fast: SimServer, truth: Path) -> None:
    reply = ask(fast, "POST", "/v1/completions", stream_body(40))
    tokens = [event for event in reply.events if event["choices"]]
    line = line_of(truth, reply)
    assert reply.done
    assert len(tokens) == len(line.sent_ns) == sum(line.chunk_tokens) == 40
    assert [event["usage"]["completion_tokens"] for event in tokens] == list(range(1, 41))
    assert reply.events[-1]["usage"]["completion_tokens"] == 40
    assert (line.end, line.prompt_tokens, line.cached_tokens) == ("finished", 32, 0)
    assert line.received_ns < line.sent_ns[0]
    arrivals = [ns for ns, _ in reply.reads]
    # no read can come before the first write, nor before as many writes as it took to fill the reads so far
    assert arrivals[0] > line.sent_ns[0]
    assert arrivals[-1] > line.sent_ns[-1]
    assert all(before < after for before, after in pairwise(line.sent_ns))


def test_no_token_comes_before_its_time(truth: Path) -> None:
    with start_server(truth=truth) as server:
        reply = ask(server, "POST", "/v1/completions", stream_body(64))
    line = line_of(truth, reply)
    pace = model.pace(1, graphs=True)
    assert (line.sent_ns[0] - line.received_ns) / 1e6 >= pace.first_token_ms(32)
    assert (line.sent_ns[-1] - line.received_ns) / 1e6 >= pace.first_token_ms(32) + 63 * pace.decode_ms(1, 32) * 0.988


def test_running_streams_emit_in_the_same_step(fast: SimServer, truth: Path) -> None:
    replies = together(fast, [stream_body(60, seed=at) for at in range(1, 9)])
    lines = [line_of(truth, reply) for reply in replies]
    start = max(line.sent_ns[0] for line in lines)
    end = min(line.sent_ns[-1] for line in lines)
    inside = [[ns for ns in line.sent_ns if start < ns < end] for line in lines]
    assert min(len(times) for times in inside) > 10
    assert max(len(times) for times in inside) - min(len(times) for times in inside) <= 1
    merged = sorted(ns for times in inside for ns in times)
    gaps = sorted(after - before for before, after in pairwise(merged))
    # 8 writes a step close together, then the step: of all gaps one in 8 is a step long
    assert gaps[len(gaps) // 2] < 0.25 * gaps[-len(inside[0]) // 2]


def test_metrics_add_up_to_the_truth(fast: SimServer, truth: Path) -> None:
    together(fast, [stream_body(tokens, prompt=50, seed=tokens) for tokens in (10, 20, 30)])
    ask(fast, "POST", "/v1/completions", stream_body(5, prompt=50, seed=10))
    text = ask(fast, "GET", "/metrics").body.decode()
    lines = read_truth(truth)
    gaps = [(after - before) / 1e9 for line in lines for before, after in pairwise(line.sent_ns)]
    waits = [(line.sent_ns[0] - line.received_ns) / 1e9 for line in lines]
    assert total(text, "sglang:generation_tokens_total") == 65
    assert samples(text, "sglang:realtime_tokens_total") == {
        key: value
        for key, value in samples(text, "sglang:realtime_tokens_total").items()
        if value == {"decode": 65, "prefill_compute": 200 - 48, "prefill_cache": 48}[dict(key)["mode"]]
    }
    assert total(text, "sglang:prompt_tokens_total") == 200
    assert total(text, "sglang:cached_tokens_total") == 48
    assert total(text, "sglang:num_requests_total") == 4
    assert total(text, "sglang:inter_token_latency_seconds_count") == len(gaps) == 61
    assert total(text, "sglang:inter_token_latency_seconds_sum") == pytest.approx(sum(gaps))
    assert total(text, "sglang:time_to_first_token_seconds_count") == 4
    assert total(text, "sglang:time_to_first_token_seconds_sum") == pytest.approx(sum(waits))
    buckets = samples(text, "sglang:inter_token_latency_seconds_bucket")
    for key, value in buckets.items():
        assert value == sum(gap <= float(dict(key)["le"]) for gap in gaps)
    passes = samples(text, "sglang:cuda_graph_passes_total")
    assert {dict(key)["mode"] for key in passes} == {"prefill_cuda_graph", "decode_cuda_graph"}
    assert 29 <= total(text, "sglang:cuda_graph_passes_total") <= 65 + 4


def test_metrics_have_the_recorded_families_and_labels(fast: SimServer) -> None:
    ask(fast, "POST", "/v1/completions", stream_body(3))
    captures = Path(__file__).parents[1] / "captures" / "sglang_tp1_graph"
    theirs = gzip.decompress((captures / "metrics_loaded.txt.gz").read_bytes()).decode()
    ours = ask(fast, "GET", "/metrics").body.decode()

    def shapes(text: str) -> dict[str, set[tuple[str, ...]]]:
        out: dict[str, set[tuple[str, ...]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                out.setdefault(sample.name, set()).add(tuple(sorted(set(sample.labels) - {"pid"})))
        return out

    recorded, made = shapes(theirs), shapes(ours)
    assert set(made) <= set(recorded)
    assert {name: recorded[name] for name in made} == made
    left_out = {name.split(":")[1] for name in set(recorded) - set(made)}
    prefixes = ("routing_key", "per_stage", "http_requests_active", "cached_tokens")
    assert all(name.startswith(prefixes) for name in left_out)


@pytest.mark.parametrize("tp", [1, 2])
def test_a_profile_holds_the_steps_it_was_asked_for(tmp_path: Path, tp: int) -> None:
    with start_server(tp=tp, graphs=True, profile_dir=tmp_path / "default") as server:
        loads = threading.Thread(target=together, args=(server, [stream_body(200, seed=at) for at in (1, 2)]))
        loads.start()
        while b'"running":2' not in ask(server, "GET", "/sim/load").body:
            assert loads.is_alive()
        folder = tmp_path / "here"
        started = ask(server, "POST", "/start_profile", {"num_steps": 40, "output_dir": str(folder)})
        again = ask(server, "POST", "/start_profile", {"num_steps": 8})
        loads.join()
        assert (started.status, started.body) == (200, b"Start profiling.\n")
        assert again.status == 500 and b"already in progress" in again.body
        files = sorted(folder.iterdir())
        assert [path.name[-18:] for path in files] == [f"TP-{rank}.trace.json.gz" for rank in range(tp)]
        assert ask(server, "POST", "/stop_profile").status == 500
    for path in files:
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        labels = [e["name"] for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("step[")]
        assert labels == ["step[DECODE bs=2]"] * 39


def test_a_profile_without_steps_ends_by_stop(tmp_path: Path) -> None:
    with start_server(speed=10, profile_dir=tmp_path) as server:
        assert ask(server, "POST", "/start_profile").status == 200
        ask(server, "POST", "/v1/completions", stream_body(20))
        assert list(tmp_path.iterdir()) == []
        assert ask(server, "POST", "/stop_profile").status == 200
        assert len(list(tmp_path.iterdir())) == 1


def test_exact_times_are_never_early(truth: Path) -> None:
    with start_server(exact="ttft_ms=40,itl_ms=8,tokens=4", truth=truth) as server:
        replies = together(server, [stream_body(22, seed=at) for at in range(1, 5)])
    assert [reply.events[-1]["usage"]["completion_tokens"] for reply in replies] == [22] * 4
    for line in read_truth(truth):
        assert line.chunk_tokens == (4, 4, 4, 4, 4, 2)
        assert all(ns - line.received_ns >= (40 + 8 * at) * 1_000_000 for at, ns in enumerate(line.sent_ns))


def test_what_it_says_of_itself() -> None:
    with start_server(tp=2, graphs=False) as server:
        said = json.loads(ask(server, "GET", "/server_info").body)
        assert (said["tp_size"], said["disable_cuda_graph"], said["version"]) == (2, True, "0.5.15+simulated")
        assert said["cuda_graph_config"]["decode"]["backend"] == "disabled"
        assert said["port"] == server.port
        card = json.loads(ask(server, "GET", "/v1/models").body)["data"][0]
        assert (card["owned_by"], card["max_model_len"]) == ("sglang", 16_384)
        assert ask(server, "GET", "/version").status == 404
        assert ask(server, "GET", "/v1/loads").status == 500
        capacity = samples(ask(server, "GET", "/metrics").body.decode(), "sglang:max_total_num_tokens")
        assert sorted(capacity.values()) == [1_297_846.0, 1_297_846.0]


def test_one_connection_serves_many_requests_and_gzips_when_asked(fast: SimServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", fast.port, timeout=5)
    for _ in range(3):
        connection.request("GET", "/v1/models")
        assert json.loads(connection.getresponse().read())["object"] == "list"
    connection.request("POST", "/v1/completions", json.dumps(stream_body(3)))
    assert connection.getresponse().read().endswith(b"data: [DONE]\n\n")
    connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.read()[:2] == b"\x1f\x8b"
    connection.close()


def test_visitors_make_load_and_give_way(truth: Path) -> None:
    with start_server(visitors=3, truth=truth) as server:
        while b'"running":0' in ask(server, "GET", "/sim/load").body:
            assert server.process.poll() is None
        ask(server, "POST", "/v1/completions", stream_body(20))
        lines = read_truth(truth)
        assert len(lines) == 1  # visitors are not in the log
        assert b'"running":0' in ask(server, "GET", "/sim/load").body
        text = ask(server, "GET", "/metrics").body.decode()
        assert total(text, "sglang:realtime_tokens_total") > 52


def test_requests_sent_ahead_are_answered_in_order(fast: SimServer) -> None:
    data = json.dumps(stream_body(3)).encode()
    with socket.create_connection(("127.0.0.1", fast.port), timeout=5) as sock:
        first = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        sock.sendall(first + b"GET /model_info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        seen = b""
        while piece := sock.recv(65536):
            seen += piece
    assert 0 < seen.index(b"data: [DONE]") < seen.index(b'"model_type"')


def test_a_long_prompt_is_prefilled_in_chunks_and_decoding_waits(truth: Path) -> None:
    with start_server(truth=truth, speed=4, more=["--context-length", "40000"]) as server:
        together(server, [stream_body(1500, seed=1), stream_body(2, prompt=20_000, seed=2)])
    long, short = sorted(read_truth(truth), key=lambda line: -line.prompt_tokens)
    pace = model.pace(1, graphs=True)
    wait_ms = (long.sent_ns[0] - long.received_ns) / 1e6
    assert wait_ms >= (2 * pace.first_token_ms(8192) + pace.first_token_ms(20_000 - 2 * 8192)) / 4
    # whichever came first: the short one waits for a chunk, before its first token or between two
    stalls = [(after - before) / 1e6 for before, after in pairwise((short.received_ns, *short.sent_ns))]
    assert max(stalls) >= pace.first_token_ms(8192) / 4


def test_requests_beyond_max_running_wait_in_the_queue(truth: Path) -> None:
    with start_server(truth=truth, speed=4, more=["--max-running", "2"]) as server:
        replies = together(server, [stream_body(30, seed=at) for at in range(1, 6)])
        assert all(reply.done for reply in replies)
    lines = sorted(read_truth(truth), key=lambda line: line.sent_ns[0])
    for at, line in enumerate(lines[2:], 2):
        assert sum(other.sent_ns[-1] < line.sent_ns[0] for other in lines[:at]) >= at - 1


def test_beyond_the_captured_batch_it_falls_to_eager() -> None:
    with start_server(speed=10, more=["--graph-max-batch", "2"]) as server:
        together(server, [stream_body(30, seed=at) for at in range(1, 5)])
        passes = samples(ask(server, "GET", "/metrics").body.decode(), "sglang:cuda_graph_passes_total")
    modes = {dict(key)["mode"]: value for key, value in passes.items()}
    assert modes["decode_none"] >= 20
