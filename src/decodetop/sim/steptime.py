"""When each kernel of a simulated forward pass is launched and runs: what the traces are written from. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from decodetop.sim import model
from decodetop.sim.batch import Pass

RANK_SKEW_US = 920.0
"""Rank 1 enters the graph so much later; rank 0 waits in the first all-reduce (recorded with the profiler on)."""
TEMPLATE_CONTEXT = 1036
"""Context of the recorded steps; attention reads as much more or less as the context differs."""
LEAD_US = 3808.0
FIRST_LEAD_US = 700.0
"""The CPU label of a step begins so long before the step's first kernel: while the GPU is busy, and when it waits."""
GRAPH_LABEL_US = 1236.0
GRAPH_CALL_AT_US = 657.0
GRAPH_CALL_US = 478.0
EAGER_FIRST_LAUNCH_US = 340.0
CAST_HOST_US = 60.0
LAUNCH_US = 8.0
LAUNCH_TO_START_US = 10.5
MAIN, TOKEN, NEXT = "main", "token", "next"


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A line of kernels.toml; times in us."""

    kernel: str
    after: float
    duration: float
    host: float


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A call on the CPU and the kernels it started: (kernel, stream, start_us, duration_us) from the step's start."""

    call: str
    at_us: float
    duration_us: float
    kernels: tuple[tuple[str, str, float, float], ...]


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """One pass on one rank; us from `Pass.start_ns`. The label is the CPU annotation around the forward call."""

    label: str
    label_at_us: float
    label_us: float
    launches: tuple[Launch, ...]


@cache
def template() -> dict[str, Any]:
    """kernels.toml: `names`, `layers`, `tp1`, `tp2`, `side`."""
    return tomllib.loads(resources.files("decodetop.sim").joinpath("kernels.toml").read_text("utf-8"))


def rows(tp: int, section: str) -> tuple[Row, ...]:
    found = template()["side"] if section in ("copy", "next_batch") else template()[f"tp{tp}"]
    return tuple(Row(*row) for row in found[section])


def forward_rows(tp: int, cast_us: float = 0.0) -> tuple[Row, ...]:
    """What the graph holds: embedding, layers, head of the vocabulary. `cast_us` = of one layer's KV, 0 = none."""
    layer = rows(tp, "layer")
    if cast_us:
        at = next(index for index, row in enumerate(layer) if row.kernel == "attention_1")
        cast = Row("kv_cast", layer[at].after, cast_us, CAST_HOST_US)
        attention = Row("attention_1", cast_us + 1.0, layer[at].duration, layer[at].host)
        layer = (*layer[:at], cast, attention, *layer[at + 1 :])
    return (*rows(tp, "head"), *layer * int(template()["layers"]), *rows(tp, "tail"))


def step_time(one: Pass, tp: int, rank: int, *, follows_decode: bool) -> StepTime:
    """`follows_decode` = the pass before was a decode step too, so the CPU ran ahead."""
    if one.new_tokens:
        return _extend(one, tp)
    period_us = (one.end_ns - one.start_ns) / 1000
    if one.graphed:
        return _graphed(one, tp, rank, period_us, LEAD_US if follows_decode else FIRST_LEAD_US)
    return _eager(one, tp, period_us)


def _label(one: Pass) -> str:
    if one.new_tokens:
        return f"step[EXTEND bs={one.streams} toks={one.new_tokens}]"
    return f"step[DECODE bs={one.streams}]"


def _attention_us(one: Pass, tp: int) -> float:
    """How much longer the attention of one layer takes than in the template."""
    per_token_ms = model.pace(tp, graphs=True).per_context_token_ms
    return max(-6.0, per_token_ms * 1000 * (one.context_tokens - TEMPLATE_CONTEXT) / model.LAYERS)


def _graphed(one: Pass, tp: int, rank: int, period_us: float, lead_us: float) -> StepTime:
    skew = RANK_SKEW_US if tp > 1 else 0.0
    more = _attention_us(one, tp)
    forward = forward_rows(tp, one.cast_ms * 1000 / model.LAYERS)
    prepare, after = rows(tp, "prepare"), rows(tp, "after")
    natural = sum(row.after for row in (*prepare, *forward, *after)) + skew + model.LAYERS * more + 2.5
    scale = period_us / natural
    wait = skew if rank == 0 else 0.0
    clock = 0.0 if rank == 0 else skew
    spans: list[tuple[str, str, float, float]] = []
    lag = 0.0
    for row in (*prepare, *forward, *after):
        clock += row.after + lag
        lag = 0.0
        duration = row.duration
        if row.kernel == "attention_1":
            duration, lag = duration + more, more
        if wait and row.kernel in ("all_reduce", "norm"):
            duration += wait  # the norm is launched early and spans the same wait
            if row.kernel == "norm":
                lag, wait = wait, 0.0
        spans.append((row.kernel, MAIN, clock * scale, duration * scale))
    return StepTime(
        label=_label(one),
        label_at_us=-lead_us * scale,
        label_us=GRAPH_LABEL_US * min(1.0, scale),
        launches=tuple(_graph_launches(spans, len(prepare), len(forward), -lead_us * scale, min(1.0, scale))),
    )


def _graph_launches(
    spans: list[tuple[str, str, float, float]], prepare: int, forward: int, label_us: float, scale: float
) -> Iterator[Launch]:
    for at, span in enumerate(spans[:prepare]):
        yield _single(span, label_us + (216 + 60 * at) * scale, scale)
    graph = tuple(spans[prepare : prepare + forward])
    call_us = label_us + GRAPH_CALL_AT_US * scale
    yield Launch(call="cudaGraphLaunch", at_us=call_us, duration_us=GRAPH_CALL_US * scale, kernels=graph)
    after = spans[prepare + forward :]
    for at, span in enumerate(after):
        yield _single(span, label_us + (1343 + 55 * at) * scale, scale)
    clock = after[1][2] + after[1][3] + 1.0  # the sampled token is there once the argmax is done
    for row in rows(1, "copy"):
        yield _single((row.kernel, TOKEN, clock, row.duration * scale), label_us + 1660 * scale, scale)
    clock = graph[len(graph) // 3][2]
    for row in rows(1, "next_batch"):
        clock += row.after * scale
        yield _single((row.kernel, NEXT, clock, row.duration * scale), clock - LAUNCH_TO_START_US * scale, scale)


def _eager(one: Pass, tp: int, period_us: float) -> StepTime:
    more = _attention_us(one, tp)
    sections = ("prepare", "forward", "after", "copy", "next_batch")
    forward = forward_rows(tp, one.cast_ms * 1000 / model.LAYERS)
    parts = {name: forward if name == "forward" else rows(tp, name) for name in sections}
    order = [(name, row) for name in sections for row in parts[name]]
    natural = EAGER_FIRST_LAUNCH_US + sum(row.host for _, row in order)
    scale = period_us / natural
    clock, free = EAGER_FIRST_LAUNCH_US * scale, 0.0
    launches: list[Launch] = []
    label_end = clock
    for section, row in order:
        stream = {"copy": TOKEN, "next_batch": NEXT}.get(section, MAIN)
        start = max(clock + LAUNCH_TO_START_US * scale, free)
        duration = (row.duration + (more if row.kernel == "attention_1" else 0.0)) * min(1.0, scale)
        if stream == MAIN:
            free = start + duration + 0.5 * scale
        launches.append(_single((row.kernel, stream, start, duration), clock, scale))
        if section == "forward":
            label_end = clock + LAUNCH_US * scale
        clock += row.host * scale
    return StepTime(label=_label(one), label_at_us=0.0, label_us=label_end + 30.0 * scale, launches=tuple(launches))


def _extend(one: Pass, tp: int) -> StepTime:
    """A prefill: the layers' kernels, longer, launched one by one; it fills the pass."""
    span_us = (one.end_ns - one.start_ns) / 1000
    forward = forward_rows(tp)
    scale = 0.97 * span_us / sum(row.duration for row in forward)
    clock = 0.0
    launches: list[Launch] = []
    for at, row in enumerate(forward):
        kernel = "attention_extend" if row.kernel.startswith("attention_1") else row.kernel
        launches.append(
            _single((kernel, MAIN, clock, row.duration * scale), at * span_us / len(forward) / 4 - 200.0, 1.0)
        )
        clock += row.duration * scale + 0.3
    return StepTime(label=_label(one), label_at_us=-400.0, label_us=span_us / 4 + 300.0, launches=tuple(launches))


def _single(span: tuple[str, str, float, float], at_us: float, scale: float) -> Launch:
    call = {"memset": "cudaMemsetAsync", "memcpy_dtoh": "cudaMemcpyAsync", "memcpy_dtod": "cudaMemcpyAsync"}
    name = call.get(
        span[0], "cuLaunchKernelEx" if span[0].startswith(("gemm", "attention", "kv_")) else "cudaLaunchKernel"
    )
    return Launch(call=name, at_us=at_us, duration_us=min(LAUNCH_US * scale, LAUNCH_US), kernels=(span,))
