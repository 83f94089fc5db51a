"""A box whose every name wants to be markup, a terminal code or the end of something."""

from __future__ import annotations

import msgspec

from decodetop.bench.reading import BenchReading, Gate
from decodetop.core.state import State
from decodetop.gpu.reading import GpuReading
from decodetop.host.reading import HostReading
from decodetop.server.reading import Flag, ServerReading
from decodetop.steps.reading import StepsReading
from decodetop.todo.reading import Attempt, TodoReading
from support import states

HOSTILE = (
    "a|b\n# c `d` <script> [x](y) **z** \\ ~~~ ```\n---\n\u202eevil\u202c\x1b[2J -->\n<!-- decodetop:data\n{}\n-->"
)


def hostile() -> State:
    """Every name that comes from outside is hostile."""
    state = states.box()
    todo, server = state.last("todo", TodoReading), state.last("server", ServerReading)
    steps, gpu = state.last("steps", StepsReading), state.last("gpu", GpuReading)
    bench, host = state.last("bench", BenchReading), state.last("host", HostReading)
    assert todo and server and steps and gpu and bench and host
    replace = msgspec.structs.replace
    tried = Attempt(change=HOSTILE, outcome="failed", reason=HOSTILE, links=(HOSTILE,))
    items = tuple(
        replace(item, id=f"{at}{HOSTILE}", content=HOSTILE, notes=HOSTILE, priority=HOSTILE, attempts=(tried,))
        for at, item in enumerate(todo.todos)
    )
    command = ("python", HOSTILE, "```", "~~~~", "````")
    flags = (Flag(name=HOSTILE, requested=HOSTILE, resolved=HOSTILE),)
    named = tuple(
        replace(one, model=HOSTILE, served_name=HOSTILE, version=HOSTILE, command=command, flags=flags)
        for one in server.servers
    )
    capture = steps.captures[0]
    rank = capture.report.ranks[0]
    kernels = tuple(replace(kernel, name=HOSTILE) for kernel in rank.top_kernels)
    batches = tuple(replace(batch, label=HOSTILE) for batch in rank.batches)
    rank = replace(rank, file=HOSTILE, device_name=HOSTILE, top_kernels=kernels, batches=batches)
    report = replace(capture.report, ranks=(rank,), errors=(HOSTILE,))
    gates = (Gate(name=HOSTILE, severity="suspect", detail=HOSTILE),)
    runs = tuple(replace(one, gates=gates, plan=replace(one.plan, preset=HOSTILE)) for one in bench.runs)
    processes = tuple(replace(one, title=HOSTILE) for one in host.processes)
    state = replace(state, header=replace(state.header, host=HOSTILE))
    return states.put(
        state,
        {
            "todo": replace(todo, todos=items, title=HOSTILE),
            "server": replace(server, servers=named),
            "steps": replace(steps, captures=(replace(capture, report=report, files=(HOSTILE,)),)),
            "gpu": replace(gpu, gpus=tuple(replace(one, name=HOSTILE) for one in gpu.gpus), driver_version=HOSTILE),
            "bench": replace(bench, runs=runs),
            "host": replace(host, processes=processes, kernel=HOSTILE),
        },
        61,
    )
