"""Floors for the face's tests: computed from the shipped table and a recording, as the live source does."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from decodetop.core.state import State
from decodetop.floor.reading import FloorReading, WhatIf
from decodetop.flows.floor_live import computed
from decodetop.gpu.reading import Gpu, GpuReading
from decodetop.server.reading import Flag, Server
from decodetop.steps.analyse import analyse
from decodetop.steps.reading import Capture
from support import states

TESTS = Path(__file__).resolve().parents[1]
CONFIG = TESTS / "floor" / "configs" / "qwen3-8b.json"
NOGRAPH = next((TESTS / "captures" / "sglang_tp1_nograph" / "prof_c1").glob("*.gz"))
SERVER = Server(
    endpoint="http://127.0.0.1:30001",
    engine="sglang",
    version="0.5.15",
    status="up",
    model=str(CONFIG),
    tp=1,
    gpu_indices=(0,),
    command=("python", "-m", "sglang.launch_server"),
    flags=(Flag(name="disable_cuda_graph", requested="true"),),
)
GPUS = GpuReading(gpus=(Gpu(index=0, name="NVIDIA H200", mem_clock_max_mhz=3201, memory_bus_bits=6016),))


@cache
def _report(itl_ms: float) -> Any:
    return analyse([NOGRAPH], itl_ms=itl_ms)


@cache
def reading(itl_ms: float | None = 19.347, asked: WhatIf = WhatIf(), model: str | None = None) -> FloorReading:
    """Without CUDA graphs: host-bound. `itl_ms` None = nothing was measured."""
    capture = None if itl_ms is None else Capture(id="c-1", made_wall_ns=1, files=("x",), report=_report(itl_ms))
    server = SERVER if model is None else msgspec.structs.replace(SERVER, model=model)
    with tempfile.TemporaryDirectory() as folder:
        return computed(Path(folder), server, GPUS, None, None, capture, asked)


def judged(base: State | None = None, seen: FloorReading | None = None) -> State:
    """A box with its floor."""
    return states.put(base or states.box(), {"floor": seen or reading()}, 60)
