"""The list of checks before a measurement."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from decodetop.core.sample import Sample
from decodetop.core.state import State, fold_all
from decodetop.findings.preflight import NOT_TRIED, preflight
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.server.reading import Counters, Generation, Server, ServerProcess
from support.probes import HEADER

SERVER = Server(
    endpoint="http://127.0.0.1:30000",
    engine="sglang",
    version="0.5.15",
    status="up",
    served_name="dense-8b",
    root_pid=6,
    unit="sglang.service",
    processes=(
        ServerProcess(pid=6, role="api", title="python"),
        ServerProcess(pid=7, role="scheduler", title="sglang::scheduler"),
    ),
    gpu_indices=(0, 1),
    counters=Counters(),
    scrape_ms=11.2,
)


def box(*free_gib: float) -> State:
    gpus = tuple(
        Gpu(index=at, memory_free_bytes=int(free * 2**30), memory_total_bytes=80 << 30)
        for at, free in enumerate(free_gib)
    )
    return fold_all(HEADER, [Sample(source="gpu", t_ns=0, seq=0, reading=GpuReading(gpus=gpus))])


def words(state: State, **changes: Any) -> dict[str, tuple[str, str]]:
    checks = preflight(state, msgspec.structs.replace(SERVER, **changes))
    return {check.name: (check.verdict, check.detail) for check in checks}


def test_a_server_that_is_ready() -> None:
    assert words(box(20, 19)) == {
        "process": ("ok", "pid 6 and 1 children"),
        "unit": ("ok", "sglang.service, its process runs in it"),
        "port": ("ok", "http://127.0.0.1:30000"),
        "identity": ("ok", "SGLang 0.5.15"),
        "model": ("ok", "dense-8b"),
        "generates": ("unknown", NOT_TRIED),
        "figures": ("ok", "counters, read in 11 ms"),
        "GPU 0 memory": ("ok", "20.0 of 80.0 GiB free (25.0 %)"),
        "GPU 1 memory": ("ok", "19.0 of 80.0 GiB free (23.8 %)"),
    }


@pytest.mark.parametrize(
    ("changes", "name", "verdict"),
    [
        ({"status": "down", "status_message": "connection refused"}, "port", "bad"),
        ({"status": "not_a_server"}, "identity", "bad"),
        ({"served_name": None}, "model", "bad"),
        ({"status": "needs_key", "served_name": None}, "model", "unknown"),
        ({"unit": None, "reasons": {"unit": "started by hand, by no unit"}}, "unit", "unknown"),
        ({"counters": None, "reasons": {"counters": "started without --enable-metrics"}}, "figures", "unknown"),
        ({"figures_from": "log", "log": "/var/log/a", "counters": None}, "figures", "ok"),
        ({"generation": Generation(t_ns=0, took_ms=41.7)}, "generates", "ok"),
        ({"generation": Generation(t_ns=0, error="it answered 500: no")}, "generates", "bad"),
        ({"root_pid": None, "reasons": {"root_pid": "it runs on another host"}}, "process", "unknown"),
    ],
)
def test_what_is_wrong_and_what_is_not_known_are_two_words(changes: dict[str, Any], name: str, verdict: str) -> None:
    assert words(box(20, 20), **changes)[name][0] == verdict


def test_gpus_nearly_full_and_not_known() -> None:
    assert words(box(20, 1))["GPU 1 memory"] == ("bad", "1.0 of 80.0 GiB free (1.2 %)")
    assert words(State(header=HEADER))["GPU memory"] == ("unknown", "no GPU was read")
    assert words(box(20, 20), local=False)["GPU memory"] == ("unknown", "it runs on another host")
