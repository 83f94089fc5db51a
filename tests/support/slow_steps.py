"""The contract of `steps` once more, in plain Python and slowly: who owns each ns of the representative step.

Shares nothing with the reader: times are decimals, steps are looked through from edge to edge. Kinds are left out; of a
name only whether it communicates matters to who owns the time.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
_SHARED = re.compile(r"nccl|cross_device_reduce|all_reduce")
_VLLM = re.compile(r"execute_(?:(?:\d+_)?context|new)_(\d+)(?:\([^)]*\))?_(?:generation|cached)_(\d+)")


class Truth(NamedTuple):
    """Of the commonest batch size: steps kept, the one shown, its period, and per name ns owned and events begun."""

    kept: int
    shown: int
    period_ns: int
    kernels: int
    owned_ns: dict[str, int]
    begun: dict[str, int]


class _Event(NamedTuple):
    start: int
    end: int
    kind: str
    name: str
    stream: tuple[str, str]
    correlation: int | None


class _Label(NamedTuple):
    start: int
    end: int
    stage: str
    batch: int | None


def events_of(text: bytes) -> list[dict[str, Any]]:
    """The events of a trace, times as decimals."""
    found: list[dict[str, Any]] = json.loads(text, parse_float=Decimal)["traceEvents"]
    return found


def truth(path: Path) -> Truth | None:
    """None where no step counts."""
    gpu, calls, labels = _read(events_of(path.read_bytes()))
    spent, devices = Counter[tuple[str, str]](), Counter[str]()
    for event in gpu:
        spent[event.stream] += event.end - event.start
        devices[event.stream[0]] += event.end - event.start
    device = max(devices, key=lambda one: devices[one])
    gpu = [event for event in gpu if event.stream[0] == device]
    main = max((stream for stream in spent if stream[0] == device), key=lambda stream: spent[stream])
    first = _first([event for event in gpu if event.stream == main], calls, labels)
    gpu.sort(key=lambda event: event.start)  # stable: ties stay in the order of the file
    kept = _kept(gpu, labels, first)
    if not kept:
        return None
    periods = {number: _known(first, number + 1) - _known(first, number) for number, _ in kept}
    ordered = sorted(periods.values())
    middle = Fraction(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2], 2)
    shown = min(periods, key=lambda number: (abs(periods[number] - middle), number))
    low = _known(first, shown)
    owned, begun = _owners(gpu, low, low + periods[shown])
    counts = sorted(count for _, count in kept)
    return Truth(len(kept), shown, periods[shown], counts[(len(counts) - 1) // 2], owned, begun)


def _read(events: Sequence[dict[str, Any]]) -> tuple[list[_Event], dict[int, int], list[_Label]]:
    gpu: dict[Any, _Event] = {}
    calls: dict[int, int] = {}
    labels: set[_Label] = set()
    for place, event in enumerate(events):
        category = event.get("cat")
        if event.get("ph") != "X" or category not in (*GPU, *CALLS, "user_annotation"):
            continue
        start, length = (round(Decimal(event[field]) * 1000) for field in ("ts", "dur"))
        correlation = (event.get("args") or {}).get("correlation")
        number = None if correlation is None else int(correlation)
        if category in GPU:
            stream = str(event["pid"]), str(event["tid"])
            made = _Event(start, start + length, category, event["name"], stream, number)
            gpu.setdefault(made if length else place, made)
        elif category in CALLS and number is not None:
            calls[number] = min(start, calls.get(number, start))
        elif category == "user_annotation" and (stage := _stage(event["name"])):
            labels.add(_Label(start, start + length, *stage))
    ordered = sorted(labels, key=lambda label: label.start)
    drafts = ("draft", "decode") if any(label.stage == "verify" for label in ordered) else ("draft",)
    return list(gpu.values()), calls, [label for label in ordered if label.stage not in drafts]


def _stage(text: str) -> tuple[str, int | None] | None:
    if match := re.match(r"step\[([A-Z_]+)", text):
        size = re.search(r"\bbs=(\d+)", text)
        stage = {"DECODE": "decode", "TARGET_VERIFY": "verify", "VERIFY": "verify"}.get(match[1], "other")
        return "draft" if match[1].startswith("DRAFT") else stage, int(size[1]) if size else None
    if match := _VLLM.match(text):
        context, generation = int(match[1]), int(match[2])
        return "other" if context or not generation else "decode", context + generation
    return None


def _first(gpu: Sequence[_Event], calls: dict[int, int], labels: Sequence[_Label]) -> list[int | None]:
    """The earliest event on the main stream that was launched inside each label."""
    starts = [label.start for label in labels]
    first: list[int | None] = [None] * len(labels)
    for event in gpu:
        called = None if event.correlation is None else calls.get(event.correlation)
        number = -1 if called is None else bisect_right(starts, called) - 1
        if called is not None and number >= 0 and called < labels[number].end:
            before = first[number]
            first[number] = event.start if before is None else min(before, event.start)
    return first


def _kept(gpu: Sequence[_Event], labels: Sequence[_Label], first: Sequence[int | None]) -> list[tuple[int, int]]:
    """Number and kernels of the steps that count, of the commonest batch size."""
    starts = [event.start for event in gpu if event.kind == "kernel"]
    good: dict[int | None, list[tuple[int, int]]] = defaultdict(list)
    for number in range(1, len(labels) - 1):
        low, high = first[number], first[number + 1]
        alike = all(label.stage in ("decode", "verify") for label in labels[number - 1 : number + 2])
        if alike and low is not None and high is not None and low < high:
            kernels = sum(low <= start < high for start in starts)
            good[labels[number].batch].append((number, kernels))
    for batch, steps in good.items():
        usual = sorted(kernels for _, kernels in steps)[len(steps) // 2]
        good[batch] = [step for step in steps if abs(step[1] - usual) * 50 <= usual]
    return max(good.values(), key=len, default=[])


def _known(first: Sequence[int | None], number: int) -> int:
    start = first[number]
    assert start is not None
    return start


def _owners(gpu: Sequence[_Event], low: int, high: int) -> tuple[dict[str, int], dict[str, int]]:
    """Of each stream the earliest started that runs; of these compute before communication before the copy engine."""
    mine = [(place, event) for place, event in enumerate(gpu) if event.end > low and event.start < high]
    edges = {low, high, *(edge for _, event in mine for edge in event[:2] if low < edge < high)}
    owned, begun = Counter[str](), Counter(event.name for event in gpu if low <= event.start < high)
    ordered = sorted(edges)
    waiting, running = iter([*mine, None]), list[tuple[int, _Event]]()
    coming = next(waiting)
    for begin, end in pairwise(ordered):
        while coming is not None and coming[1].start <= begin:
            running.append(coming)
            coming = next(waiting)
        running = [one for one in running if one[1].end > begin]
        best: dict[tuple[str, str], tuple[int, _Event]] = {}
        for one in running:
            best.setdefault(one[1].stream, one)
        if best:
            _, owner = min(best.values(), key=lambda one: (_rank(one[1]), one[1].start, one[0]))
            owned[owner.name] += end - begin
    return dict(owned), dict(begun)


def _rank(event: _Event) -> int:
    return 2 if event.kind != "kernel" else 1 if _SHARED.search(event.name) else 0
