"""The words: one line, the plain output, the report's section."""

from __future__ import annotations

import msgspec
import pytest

from decodetop.server import text
from decodetop.server.reading import Flag, Latency, Server, ServerReading

DENSE = Server(
    endpoint="http://127.0.0.1:30000",
    engine="sglang",
    version="0.5.15",
    status="up",
    model="/srv/models/dense-8b",
    tp=1,
    pp=1,
    gpu_indices=(0,),
    weights_dtype="bf16",
    kv_dtype="bf16",
    attention_backend="triton",
    cuda_graph=True,
    cuda_graph_max_batch=32,
    kv_capacity_tokens=597_532,
    kv_usage=0.05048,
    running=32,
    queued=0,
    generated_tok_s=4812.3,
    itl=Latency(mean_ms=7.381, count=9264, over_s=1.02, p50_ms=8.0, p99_ms=60.0),
    ttft=Latency(mean_ms=290.2, count=74),
    command=("python3", "-m", "sglang.launch_server", "--served-model-name", "a b"),
    flags=(
        Flag(name="tp_size", requested="1", resolved="1"),
        Flag(name="page_size", requested="1", resolved="64"),
        Flag(name="mem_fraction_static", requested="0.70", resolved="0.7"),
        Flag(name="attention_backend", resolved="triton"),
    ),
    reasons={"accept_length": "no speculation", "unit": "started by hand", "gpu_uuids": "started by hand"},
)


def but(server: Server = DENSE, **changes: object) -> Server:
    return msgspec.structs.replace(server, **changes)


@pytest.mark.parametrize(
    ("server", "line"),
    [
        (DENSE, "SGLang 0.5.15 :30000  dense-8b bf16  TP1 on gpu 0"),
        (but(status="needs_key"), "SGLang 0.5.15 :30000  up, needs a key  dense-8b bf16  TP1 on gpu 0"),
        (but(served_name="x", tp=4, dp=2, quantization="fp8"), "SGLang 0.5.15 :30000  x fp8 bf16  TP4 DP2 on gpu 0"),
        (
            but(endpoint="http://box7:8000", local=False),
            "SGLang 0.5.15 box7:8000  dense-8b bf16  TP1 on another host",
        ),
        (Server(endpoint="http://127.0.0.1:1"), "unknown engine :1  down"),
    ],
)
def test_summary(server: Server, line: str) -> None:
    assert text.summary(server) == line


def test_flags_differ_by_value_and_not_by_spelling() -> None:
    assert [row[0] for row in text.flag_rows(DENSE) if row[3]] == ["page_size"]
    assert text.flag_rows(DENSE)[0] == ("page_size", "1", "64", True)
    assert not text.differs(Flag(name="a", requested="auto", resolved="fa3"))
    assert not text.differs(Flag(name="a", requested="true", resolved="True"))


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (DENSE, "on, up to batch 32"),
        (but(running=40), "on, but batch 40 > 32 captured"),
        (but(cuda_graph=None), "–"),
        (but(cuda_graph=False), "OFF"),
        (
            but(cuda_graph=False, flags=(Flag(name="disable_cuda_graph", requested="true"),)),
            "OFF (--disable-cuda-graph)",
        ),
    ],
)
def test_graphs(server: Server, words: str) -> None:
    assert text.graphs(server) == words


def test_speculation() -> None:
    assert text.speculation(DENSE) == "off"
    assert text.speculation(but(reasons={"speculative_algorithm": "not told"})) == "–"
    ngram = but(speculative_algorithm="NGRAM", speculative_draft_tokens=4, accept_length=3.863)
    assert text.speculation(ngram) == "NGRAM, 4 draft tokens, accept 3.86"


def test_latency_says_over_what() -> None:
    assert text.latency(DENSE.itl) == "7.38 ms (mean of 9,264 in 1 s)"
    assert text.latency(DENSE.ttft) == "290 ms (mean of 74 since start)"
    assert text.latency(None) == "–"
    assert text.quantiles(DENSE.itl) == "p50 at most 8.00 ms, p99 at most 60.0 ms"


def test_lines() -> None:
    other = Server(endpoint="http://127.0.0.1:8000", status="down", status_message="connection refused")
    lines = text.lines(ServerReading(servers=(other, DENSE), current=DENSE.endpoint))
    assert lines[0] == "* SGLang 0.5.15 :30000  dense-8b bf16  TP1 on gpu 0"
    assert "    decode       4,812 tok/s" in lines
    assert "    KV cache     5.0 % of 598 k tokens" in lines
    assert "    differs      page_size: asked 1, runs 64" in lines
    assert "    not known    gpu_uuids, unit: started by hand" in lines
    assert "    command      python3 -m sglang.launch_server --served-model-name 'a b'" in lines
    assert "  unknown engine :8000  down" in lines
    assert "    state        down: connection refused" in lines


def test_nothing_found_says_where_was_looked() -> None:
    lines = text.lines(ServerReading(searched=("412 processes of this box", "port 8000")))
    assert lines[0] == "no inference server found (searched: 412 processes of this box, port 8000)"
    assert text.markdown(ServerReading())[2] == "no inference server found (searched: nothing)."


def test_markdown_keeps_others_text_out_of_its_markup() -> None:
    odd = but(model="m|`x`\n# <b>", served_name=None, flags=(Flag(name="a", requested="1|2", resolved="*"),))
    lines = text.markdown(ServerReading(servers=(odd,), current=odd.endpoint))
    assert lines[0] == "## Inference server"
    assert "| model | m\\|\\`x\\` # \\<b> |" in lines
    assert "| a | 1\\|2 | \\* | differs |" in lines
    assert "python3 -m sglang.launch_server --served-model-name 'a b'" in lines
    assert not any("\n" in line for line in lines)


def test_markdown_of_several_marks_the_current_one() -> None:
    reading = ServerReading(servers=(DENSE, but(endpoint="http://127.0.0.1:30001")), current="http://127.0.0.1:30001")
    titles = [line for line in text.markdown(reading) if line.startswith("**")]
    assert titles[0].startswith("**SGLang 0.5.15 :30001") and titles[0].endswith("(current)**")
    assert not titles[1].endswith("(current)**")
