"""Any state and any size: a pane draws, keeps to its width, and names a row for every line."""

from __future__ import annotations

import types
import typing
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from decodetop.bench.reading import BenchReading
from decodetop.core.sample import ClockReading, Failure, Reading
from decodetop.core.state import Lane, Past, State
from decodetop.diagnosis.reading import DiagnosisReading
from decodetop.floor.reading import FloorReading
from decodetop.gpu.reading import GpuReading
from decodetop.host.reading import HostReading
from decodetop.log.reading import LogReading
from decodetop.server.reading import ServerReading
from decodetop.steps.reading import StepsReading
from decodetop.todo.reading import FollowReading, TodoReading
from decodetop_tui.cells import width_of
from decodetop_tui.paint import View
from decodetop_tui.pane import PaneModule
from decodetop_tui.panes import bench, floor, gpu, host, server, steps, todo
from support import states

PANES: dict[str, PaneModule] = {
    "gpu": gpu,
    "server": server,
    "todo": todo,
    "bench": bench,
    "steps": steps,
    "host": host,
    "floor": floor,
}
READINGS: dict[str, type[Reading]] = {
    "gpu": GpuReading,
    "server": ServerReading,
    "todo": TodoReading,
    "follow": FollowReading,
    "log": LogReading,
    "bench": BenchReading,
    "steps": StepsReading,
    "host": HostReading,
    "diagnosis": DiagnosisReading,
    "floor": FloorReading,
}
TEXTS = st.one_of(
    st.sampled_from(
        (
            "",
            "plain",
            "[/bold] [red]x[",
            "語" * 30,
            "a\tb\nc\x1b[31m",
            "👩‍💻☑️ e\u0301",
            "\u202eabc",
            "void at::native::elementwise_kernel<4, direct_copy_kernel_cuda>(int, float)" * 4,
            "x" * 300,
        )
    ),
    st.text(max_size=12),
)
FLOATS = st.one_of(
    st.sampled_from(
        (0.0, -1.0, 0.5, 99.96, 100.0, 1e18, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"))
    ),
    st.floats(0, 1e5),
)
INTS = st.one_of(st.sampled_from((0, 1, -1, 2**63 - 1, 255)), st.integers(0, 100_000))


@cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field's type; strings where a Literal stands are one of its words."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is type(None):
        return st.none()
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(arg) for arg in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and args[-1] is not Ellipsis:
        return st.tuples(*map(values, args))
    if origin is tuple:
        return st.lists(values(args[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=3)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs(kind)
    plain: dict[Any, st.SearchStrategy[Any]] = {bool: st.booleans(), int: INTS, float: FLOATS, str: TEXTS, Any: TEXTS}
    return plain[kind]


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """A struct with each optional field left out half the time, so that most of what is drawn is unknown."""
    hints = typing.get_type_hints(kind)
    needed = {field.name for field in msgspec.structs.fields(kind) if field.required}
    given = {name: values(hints[name]) for name in kind.__struct_fields__}
    return st.fixed_dictionaries(
        {name: given[name] for name in given if name in needed},
        optional={name: given[name] for name in given if name not in needed},
    ).map(lambda fields: kind(**fields))


FAILURES = structs(Failure)
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""No shrinking: a state of a hundred fields takes minutes, and the traceback names the field anyway."""


@st.composite
def lanes(draw: st.DrawFn, kind: type[Reading]) -> Lane:
    readings = draw(st.lists(structs(kind), max_size=2))
    times = [1_000_000_000 * (at + 1) for at in range(len(readings))]
    failure = draw(st.none() | FAILURES)
    past = tuple(Past(t_ns, reading) for t_ns, reading in zip(times, readings, strict=True))
    return Lane(
        last=readings[-1] if readings else None,
        last_t_ns=times[-1] if times else None,
        failure=failure,
        failure_since_ns=None if failure is None else 2_000_000_000,
        history=past,
    )


@st.composite
def any_state(draw: st.DrawFn, name: str) -> State:
    sources = {source for source in (*PANES[name].SOURCES, "server") if draw(st.integers(0, 9)) > 0}
    found = {source: draw(lanes(READINGS[source])) for source in sorted(sources)}
    found["clock"] = Lane(last=ClockReading(wall_ns=draw(INTS)), last_t_ns=0)
    return State(header=states.header(), now_ns=draw(INTS) * 1_000_000, seq=3, lanes=MappingProxyType(found))


VIEWS = st.builds(
    View,
    width=st.one_of(st.integers(1, 250), st.sampled_from((1, 2, 3, 20, 58, 61, 80, 120, 200, 250))),
    height=st.integers(1, 70),
    focused=st.booleans(),
    zoomed=st.booleans(),
    cursor=st.sampled_from(
        (None, "gpu:0", "rank:0", "kernel:0:0", "kind:0:gemm", "capture:a", "preset:single", "run:1", "nothing")
    ),
    mode=st.integers(0, 7),
    filter=st.sampled_from(("", "gemm", "[", "語")),
    marks=st.just(frozenset({"run:1", "capture:c1"})),
)


def check(module: PaneModule, state: State, view: View) -> None:
    picture = module.draw(state, view)
    assert len(picture.rows) == len(picture.lines)
    assert picture.header_lines <= len(picture.lines)
    for line in picture.lines:
        assert width_of(line) <= view.width, line
        assert all(span.text.isprintable() for span in line), line
    least, wanted = module.want(state, view.width)
    assert 1 <= least <= wanted


@pytest.mark.parametrize("name", PANES)
def test_draws_whatever_was_read(name: str) -> None:
    @settings(
        max_examples=25,
        deadline=None,
        phases=_PHASES,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(any_state(name), VIEWS)
    def holds(state: State, view: View) -> None:
        check(PANES[name], state, view)

    holds()


@pytest.mark.parametrize("name", PANES)
@pytest.mark.parametrize("which", ["box", "many", "bare", "empty"])
def test_keeps_to_every_width(name: str, which: str) -> None:
    state = {
        "box": states.box(5, busy_bench=True, server_count=2),
        "many": states.box(2, gpu_count=16),
        "bare": states.bare(),
        "empty": states.empty(),
    }[which]
    for width in (*range(1, 40), 58, 61, 79, 80, 81, 100, 119, 120, 160, 200, 250):
        for height, zoomed in ((1, False), (3, False), (12, False), (40, True)):
            for mode in range(len(PANES[name].MODES)):
                check(PANES[name], state, View(width=width, height=height, focused=zoomed, zoomed=zoomed, mode=mode))


def test_rows_of_a_list_are_not_repeated_apart() -> None:
    """Lines of one row stand together, so that the cursor's ground is one block."""
    state = states.box(3, busy_bench=True, server_count=2)
    for module in PANES.values():
        rows = module.draw(state, View(width=120, height=40, focused=True, zoomed=True)).rows
        named = [row for row, before in zip(rows, (None, *rows), strict=False) if row is not None and row != before]
        assert len(named) == len(set(named)), module.TITLE
