"""Command lines to flags, and requested next to resolved."""

from __future__ import annotations

import pytest

from decodetop.server.flags import merge_flags, requested_flags, shown, whole
from decodetop.server.reading import Engine


@pytest.mark.parametrize(
    ("engine", "command", "flags"),
    [
        (
            "sglang",
            "python3 -m sglang.launch_server --tp 2 --disable-cuda-graph --model m --cuda-graph-bs 1 2 4",
            {"tp_size": "2", "disable_cuda_graph": "true", "model_path": "m", "cuda_graph_bs_decode": "1 2 4"},
        ),
        (
            "vllm",
            "/opt/venv/bin/python /opt/venv/bin/vllm serve Qwen/Qwen3-8B -tp 2 -O3 --max-model-len=4096",
            {
                "model": "Qwen/Qwen3-8B",
                "tensor_parallel_size": "2",
                "optimization_level": "3",
                "max_model_len": "4096",
            },
        ),
        ("vllm", "vllm serve m --api-key a b --port 1", {"model": "m", "api_key": "*** ***", "port": "1"}),
        (
            "llamacpp",
            "llama-server -m m.gguf -c 4096 --temp -1 -",
            {"model": "m.gguf", "ctx_size": "4096", "temp": "-1 -"},
        ),
        ("sglang", "sglang serve", {}),
    ],
)
def test_requested(engine: Engine, command: str, flags: dict[str, str]) -> None:
    assert requested_flags(engine, command.split()) == flags


def test_requested_next_to_resolved() -> None:
    flags = merge_flags(
        {"tp_size": "2", "port": "1"}, {"tp_size": "2", "page_size": "64", "x": "1"}, ("page_size", "y")
    )
    assert [(flag.name, flag.requested, flag.resolved) for flag in flags] == [
        ("tp_size", "2", "2"),
        ("port", "1", None),
        ("page_size", None, "64"),
    ]


def test_values_as_text() -> None:
    assert [shown("a", value) for value in (True, None, 1.0, [1, 2], "x", {})] == [
        "true",
        None,
        "1.0",
        "1 2",
        "x",
        "{}",
    ]
    assert shown("api_key", 12345) == shown("ssl_keyfile_password", "p") == "***"
    assert (whole("12"), whole("-1"), whole("x"), whole(None)) == (12, None, None, None)
