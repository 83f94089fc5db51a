"""Which captured graph a batch takes: padded to, outside, by tokens, by data-parallel rank."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from decodetop.server.graphs import fit, words
from decodetop.server.reading import Flag, Server
from decodetop.server.text import graphs

SERVER = Server(
    endpoint="http://127.0.0.1:30000",
    engine="sglang",
    status="up",
    running=9,
    cuda_graph=True,
    cuda_graph_max_batch=32,
    cuda_graph_batches=(1, 2, 4, 8, 12, 16, 24, 32),
)
NO_PADDING = (Flag(name="disable_cuda_graph_padding", requested="true", resolved="true"),)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "on, batch 9 padded to 12"),
        ({"running": 12}, "on, batch 12 padded to 12"),
        ({"running": 33}, "on, but batch 33 > 32 captured"),
        ({"running": 0}, "on, up to batch 32"),
        ({"running": None}, "on, up to batch 32"),
        ({"cuda_graph_batches": ()}, "on, up to batch 32"),
        ({"cuda_graph_batches": (), "running": 40}, "on, but batch 40 > 32 captured"),
        ({"cuda_graph_max_batch": None}, "on, batch 9 padded to 12"),
        ({"cuda_graph_max_batch": None, "cuda_graph_batches": ()}, "on"),
        # each data-parallel rank runs its part
        ({"dp": 4, "running": 33}, "on, batch 9 padded to 12"),
        ({"flags": NO_PADDING}, "on, but batch 9 is no captured size, and padding is off"),
        ({"flags": NO_PADDING, "running": 12}, "on, batch 12 padded to 12"),
        # vLLM captures by tokens: 9 requests with 3 drafted tokens each are 36
        ({"engine": "vllm", "speculative_draft_tokens": 3}, "on, but 36 tokens > 32 captured"),
        ({"engine": "vllm", "speculative_draft_tokens": 3, "running": 4}, "on, 16 tokens padded to 16"),
        ({"engine": "sglang", "speculative_draft_tokens": 3}, "on, batch 9 padded to 12"),
    ],
)
def test_in_words(changes: dict[str, Any], said: str) -> None:
    assert graphs(msgspec.structs.replace(SERVER, **changes)) == said


def test_nothing_to_fit() -> None:
    assert fit(msgspec.structs.replace(SERVER, cuda_graph=False)) is None
    assert fit(msgspec.structs.replace(SERVER, running=0)) is None
    found = fit(msgspec.structs.replace(SERVER, cuda_graph_batches=()))
    assert found is not None and words(found) == "batch 9 of 32 captured"
