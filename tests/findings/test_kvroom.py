"""Room for KV: in the pool that is there, and what a larger pool could take."""

from __future__ import annotations

import pytest

from decodetop.findings.kvroom import kv_room
from decodetop.gpu.reading import Gpu
from decodetop.server.reading import Server

GIB = 2**30
GPU = Gpu(index=0, memory_free_bytes=42 * GIB, memory_total_bytes=100 * GIB)
SERVER = Server(endpoint="http://127.0.0.1:30000", kv_capacity_tokens=600_000, kv_pool_bytes=80 * GIB, kv_usage=0.25)


def test_what_is_free_in_the_pool_and_beside_it() -> None:
    room = kv_room(SERVER, GPU)
    assert room.pool_bytes == 60 * GIB and room.pool_tokens == 450_000
    assert room.beside_bytes == 40 * GIB, "two percent stay free"
    assert room.beside_tokens == pytest.approx(300_000, abs=1)


def test_what_is_not_told_is_not_guessed() -> None:
    room = kv_room(Server(endpoint="http://127.0.0.1:8000", kv_capacity_tokens=600_000, kv_usage=0.5), GPU)
    assert (room.pool_bytes, room.pool_tokens, room.beside_tokens) == (None, 300_000, None)
    assert kv_room(None, GPU) == (None, None, 40 * GIB, None)
    assert kv_room(SERVER, Gpu(index=0)).beside_bytes is None


def test_a_full_gpu_has_none() -> None:
    full = Gpu(index=0, memory_free_bytes=GIB, memory_total_bytes=100 * GIB)
    assert kv_room(SERVER, full).beside_bytes == 0


def test_a_pool_larger_than_what_is_used_is_not_believed() -> None:
    small = Gpu(index=0, memory_free_bytes=42 * GIB, memory_total_bytes=100 * GIB, memory_used_bytes=10 * GIB)
    room = kv_room(SERVER, small)
    assert (room.pool_bytes, room.pool_tokens, room.beside_tokens) == (None, 450_000, None)
