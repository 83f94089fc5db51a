"""How much room a GPU has for KV: what is free in its server's pool, and what a larger pool could take. Pure."""

from __future__ import annotations

from typing import NamedTuple

from decodetop.findings.rules import MEMORY_FREE_SHARE
from decodetop.gpu.reading import Gpu
from decodetop.server.reading import Server


class KvRoom(NamedTuple):
    """`pool_*`: not in use in the pool that the server holds. `beside_*`: the GPU's free memory less the share
    (`MEMORY_FREE_SHARE`) that ought to stay free; an estimate, for graphs and activations may want some of it.

    Tokens are of the whole server, each GPU holding its part of them. None = not known.
    """

    pool_bytes: int | None
    pool_tokens: int | None
    beside_bytes: int | None
    beside_tokens: int | None


def kv_room(server: Server | None, gpu: Gpu) -> KvRoom:
    """`server`: the one that holds this GPU, None = no server does (what is free is then all it could have)."""
    beside = None
    if gpu.memory_free_bytes is not None and gpu.memory_total_bytes:
        beside = max(0, gpu.memory_free_bytes - int(MEMORY_FREE_SHARE * gpu.memory_total_bytes))
    if server is None:
        return KvRoom(None, None, beside, None)
    free = None if server.kv_usage is None else max(0.0, 1 - server.kv_usage)
    pool, capacity = server.kv_pool_bytes, server.kv_capacity_tokens
    if pool is not None and gpu.memory_used_bytes is not None and pool > gpu.memory_used_bytes:
        pool = None  # it can't hold more than is used there
    per_token = pool / capacity if pool and capacity else None
    return KvRoom(
        None if free is None or pool is None else int(free * pool),
        None if free is None or capacity is None else int(free * capacity),
        beside,
        None if beside is None or per_token is None else int(beside / per_token),
    )
