"""A box whose every name wants to be markup, a terminal code or the end of something."""

from __future__ import annotations

import types
from collections.abc import Callable

import msgspec

from decodetop.bench.reading import BenchReading, Gate
from decodetop.core.sample import Failure
from decodetop.core.state import State
from decodetop.gpu.reading import GpuReading
from decodetop.host.reading import HostReading
from decodetop.log.reading import KINDS, Entry, LogReading
from decodetop.report.privacy import mapped
from decodetop.server.reading import Flag, ServerReading
from decodetop.steps.reading import StepsReading
from decodetop.todo.reading import Attempt, FollowedPlan, FollowedTodo, FollowReading, TodoReading
from support import floors, states

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


def everywhere() -> State:
    """A box with something in every lane: floor, log and an agent's plan too, and a source that failed."""
    entries = tuple(
        Entry(wall_ns=states.WALL_NS + at, kind=kind, text=f"entry {at}", ref="r", key="k", data={"a": "b"})
        for at, kind in enumerate((*KINDS, "of a later version"))
    )
    plan = FollowedPlan(agent="a", session="s", path="~/x", todos=(FollowedTodo(content="c", status="pending"),))
    state = states.put(
        floors.judged(states.box(server_count=2)),
        {
            "log": LogReading(path="/x", entries=entries, total=50, unsaved="disk full", problem="two are broken"),
            "follow": FollowReading(plans=(plan,), searched=("x",), reasons={"y": "z"}),
        },
        61,
    )
    return states.fail(state, "gpu", Failure(kind="broken", message="no answer", hint="look"))


def planted(change: Callable[[str], str]) -> State:
    """`change` of every text in every reading of `everywhere`; the lanes keep their names."""
    state = everywhere()
    lanes = {
        name: msgspec.structs.replace(lane, last=mapped(lane.last, change), history=())
        for name, lane in state.lanes.items()
        if name != "clock"
    }
    return msgspec.structs.replace(
        state, header=mapped(state.header, change), lanes=types.MappingProxyType({**state.lanes, **lanes})
    )
