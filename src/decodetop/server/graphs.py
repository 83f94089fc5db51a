"""Which captured CUDA graph the running batch takes, or that none fits. Pure."""

from __future__ import annotations

from typing import NamedTuple

from decodetop.server.reading import Server

_NO_PADDING = "disable_cuda_graph_padding"


class Fit(NamedTuple):
    """`size` is what a step runs on one data-parallel rank: requests, or tokens where the engine captures by tokens
    (vLLM: with speculation each request brings its drafted tokens). `padded_to` None = outside, or not known.
    """

    size: int
    of_tokens: bool
    largest: int | None
    padded_to: int | None
    outside: bool


def fit(server: Server) -> Fit | None:
    """None where graphs are off, nothing runs, or the captured sizes are not known."""
    sizes = sorted(server.cuda_graph_batches)
    largest = server.cuda_graph_max_batch or max(sizes, default=None)
    if not server.cuda_graph or not server.running or largest is None:
        return None
    drafted = server.speculative_draft_tokens or 0
    of_tokens = server.engine == "vllm" and drafted > 0
    requests = -(-server.running // max(server.dp or 1, 1))
    size = requests * (1 + drafted) if of_tokens else requests
    padded_to = next((one for one in sizes if one >= size), None)
    exact_only = any(flag.name == _NO_PADDING and _on(flag.resolved or flag.requested) for flag in server.flags)
    if exact_only and sizes:
        padded_to = size if size in sizes else None
        return Fit(size, of_tokens, largest, padded_to, padded_to is None)
    return Fit(size, of_tokens, largest, padded_to, size > largest)


def words(found: Fit) -> str:
    """`batch 33 padded to 40`, `batch 40 > 32 captured`, `160 tokens > 128 captured`."""
    what = f"{found.size} tokens" if found.of_tokens else f"batch {found.size}"
    if found.outside and found.largest is not None and found.size <= found.largest:
        return f"{what} is no captured size, and padding is off"
    if found.outside:
        return f"{what} > {found.largest} captured"
    if found.padded_to is None:
        return f"{what} of {found.largest} captured"
    return f"{what} padded to {found.padded_to}"


def _on(value: str | None) -> bool:
    return (value or "").lower() == "true"
