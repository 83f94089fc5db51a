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


def hostile(word: str = HOSTILE) -> State:
    """Every name that comes from outside is `word`."""
    state = states.box()
    todo, server = state.last("todo", TodoReading), state.last("server", ServerReading)
    steps, gpu = state.last("steps", StepsReading), state.last("gpu", GpuReading)
    bench, host = state.last("bench", BenchReading), state.last("host", HostReading)
    assert todo and server and steps and gpu and bench and host
    replace = msgspec.structs.replace
    tried = Attempt(change=word, outcome="failed", reason=word, links=(word,))
    items = tuple(
        replace(item, id=f"{at}{word}", content=word, notes=word, priority=word, attempts=(tried,))
        for at, item in enumerate(todo.todos)
    )
    command = ("python", word, "```", "~~~~", "````")
    flags = (Flag(name=word, requested=word, resolved=word),)
    named = tuple(
        replace(one, model=word, served_name=word, version=word, command=command, flags=flags) for one in server.servers
    )
    capture = steps.captures[0]
    rank = capture.report.ranks[0]
    kernels = tuple(replace(kernel, name=word) for kernel in rank.top_kernels)
    batches = tuple(replace(batch, label=word) for batch in rank.batches)
    rank = replace(rank, file=word, device_name=word, top_kernels=kernels, batches=batches)
    report = replace(capture.report, ranks=(rank,), errors=(word,))
    gates = (Gate(name=word, severity="suspect", detail=word),)
    runs = tuple(replace(one, gates=gates, plan=replace(one.plan, preset=word)) for one in bench.runs)
    processes = tuple(replace(one, title=word) for one in host.processes)
    state = replace(state, header=replace(state.header, host=word))
    return states.put(
        state,
        {
            "todo": replace(todo, todos=items, title=word),
            "server": replace(server, servers=named),
            "steps": replace(steps, captures=(replace(capture, report=report, files=(word,)),)),
            "gpu": replace(gpu, gpus=tuple(replace(one, name=word) for one in gpu.gpus), driver_version=word),
            "bench": replace(bench, runs=runs),
            "host": replace(host, processes=processes, kernel=word),
        },
        61,
    )
