"""Recordings changed as other engines, versions, tools and accidents would change them, against the slow analysis."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from decodetop.steps.analyse import analyse
from decodetop.steps.reading import IDLE_KINDS, KINDS, TOP_KERNELS, RankSteps
from support.slow_steps import CALLS, GPU, events_of, truth

CAPTURES = Path(__file__).resolve().parents[1] / "captures"
RECORDINGS = {
    "sglang": "sglang_tp1_graph/prof_c8/*.gz",
    "sglang ngram": "sglang_ngram_graph/prof_decode/*.gz",
    "vllm eager": "vllm_tp1_eager/prof/rank0*.gz",
    "sglang tp2": "sglang_tp2_graph/prof_c1/*TP-0*.gz",
}

Event = dict[str, Any]
Change = Callable[[list[Event], random.Random], list[Event]]
LABEL = re.compile(r"step\[|execute_context_")


@cache
def recorded(name: str) -> tuple[Event, ...]:
    """What the reader looks at, and one in twenty of the rest."""
    (path,) = CAPTURES.glob(RECORDINGS[name])
    wanted = (*GPU, *CALLS, "user_annotation", "gpu_user_annotation")
    events = events_of(gzip.decompress(path.read_bytes()))
    return tuple(event for at, event in enumerate(events) if event.get("cat") in wanted or at % 20 == 0)


class Literal(str):
    """A number as it is to stand in the file."""


def written(value: Any) -> str:
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {written(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value)


def on_gpu(event: Event) -> bool:
    return event.get("cat") in GPU


def timed(change: Callable[[Decimal], Any]) -> Change:
    """Start and duration put otherwise."""

    def changed(event: Event) -> Event:
        fields = {field: change(Decimal(event[field])) for field in ("ts", "dur") if field in event}
        return {**event, **fields}

    return lambda events, _: [changed(event) for event in events]


def moved(by_us: Decimal, which: Callable[[Event], bool] = lambda _: True) -> Change:
    return lambda events, _: [
        {**event, "ts": event["ts"] + by_us} if "ts" in event and which(event) else event for event in events
    ]


def from_zero(events: list[Event], dice: random.Random) -> list[Event]:
    return moved(-min(event["ts"] for event in events if "ts" in event))(events, dice)


def labelled(name: Callable[[str, int], str]) -> Change:
    """`name` makes another of a label and its number."""

    def change(events: list[Event], _: random.Random) -> list[Event]:
        notes = [event for event in events if event.get("cat") == "user_annotation" and LABEL.match(event["name"])]
        numbers = {id(note): at for at, note in enumerate(sorted(notes, key=lambda note: note["ts"]))}
        kept = [event for event in events if event.get("cat") != "gpu_user_annotation"]
        return [
            {**event, "name": name(event["name"], numbers[id(event)])} if id(event) in numbers else event
            for event in kept
        ]

    return change


def between(low: float, high: float, which: Callable[[Event], bool] = lambda _: True) -> Change:
    """Events of a part of the time only."""

    def change(events: list[Event], _: random.Random) -> list[Event]:
        times = sorted(event["ts"] for event in events if "ts" in event and which(event))
        first, last = (times[int(share * (len(times) - 1))] for share in (low, high))
        return [one for one in events if not which(one) or "ts" not in one or first <= one["ts"] <= last]

    return change


def overlapping(events: list[Event], dice: random.Random) -> list[Event]:
    """A third of the GPU's work on other streams, later and of other lengths."""
    changed = []
    for event in events:
        if on_gpu(event) and dice.random() < 0.3:
            later, length = Decimal(dice.randrange(3000)) / 1000, Decimal(dice.randrange(90_000)) / 1000
            event = {**event, "tid": dice.choice([7, 20, 21, 22]), "ts": event["ts"] + later, "dur": length}
        changed.append(event)
    return changed


def shuffled(events: list[Event], dice: random.Random) -> list[Event]:
    return dice.sample(events, len(events))


def keys_shuffled(events: list[Event], dice: random.Random) -> list[Event]:
    return [dict(dice.sample(list(event.items()), len(event))) for event in events]


CHANGES: dict[str, Change] = {
    "as it is": lambda events, _: events,
    "compact floats": timed(lambda time: Literal(f"{time:.16e}")),
    "whole microseconds": timed(int),
    "six places": timed(lambda time: Literal(f"{time:.6f}")),
    "times as strings": timed(str),
    "of the epoch": moved(Decimal("1796024669629679.123")),
    "from zero": from_zero,
    "before zero": moved(Decimal("-9e12")),
    "GPU's clock late": moved(Decimal(50_000), on_gpu),
    "shuffled": shuffled,
    "keys shuffled": keys_shuffled,
    "ids as strings": lambda events, _: [
        {**event, "pid": f"python {event.get('pid')}", "tid": f"stream {event.get('tid')}"} for event in events
    ],
    "correlations as strings": lambda events, _: [
        {**one, "args": {**one["args"], "correlation": str(one["args"]["correlation"])}}
        if "correlation" in (one.get("args") or {}) else one
        for one in events
    ],
    "large correlations": lambda events, _: [
        {**one, "args": {**one["args"], "correlation": one["args"]["correlation"] + (1 << 62)}}
        if "correlation" in (one.get("args") or {}) else one
        for one in events
    ],
    "only what counts": lambda events, _: [
        event for event in events if event.get("cat") in (*GPU, *CALLS, "user_annotation")
    ],
    "written twice": lambda events, _: [*events, *events],
    "some twice": lambda events, dice: [*events, *(one for one in events if dice.random() < 0.1)],
    "vllm's label": labelled(lambda *_: "execute_context_0(0)_generation_3(3)"),
    "vllm's detailed label": labelled(lambda *_: "execute_3_context_0(sq0sk0sqsq0sqsk0)_generation_3(sq3sk9sqsq3sqsk)"),
    "vllm 0.12's label": labelled(lambda *_: "execute_new_0_cached_3"),
    "sglang's later label": labelled(lambda _, at: f"step[DECODE bs=3 g_sq=3 g_sk=9 forward_id={at}]"),
    "a prefill": labelled(lambda name, at: "step[EXTEND bs=1 toks=99]" if "step[" in name and at == 5 else name),
    "two batch sizes": labelled(lambda name, at: re.sub(r"bs=\d+", f"bs={2 + (at > 3)}", name)),
    "the first fifth missing": between(0.2, 1),
    "the last fifth missing": between(0, 0.8),
    "the GPU recorded later": between(0.2, 1, on_gpu),
    "overlapping streams": overlapping,
}  # fmt: skip


def check_sums(rank: RankSteps) -> None:
    """Parts and idle are the period, to the ns."""
    assert rank.period_us is not None and rank.idle_us is not None and rank.busy_us is not None
    period_ns = round(rank.period_us.representative * 1000)
    assert sum(round(rank.kinds_us[kind] * 1000) for kind in KINDS) == period_ns
    assert round(rank.busy_us * 1000) + round(rank.idle_us * 1000) == period_ns
    assert sum(round(rank.idle_split_us[kind] * 1000) for kind in IDLE_KINDS) == round(rank.idle_us * 1000)
    assert min(*rank.kinds_us.values(), *rank.idle_split_us.values()) >= 0
    for bar in rank.kept_steps:
        assert sum(round(us * 1000) for us in bar.kinds_us.values()) == round(bar.period_us * 1000)


CASES = [(change, name) for at, change in enumerate(CHANGES) for name in (list(RECORDINGS) * 2)[at % 4 : at % 4 + 2]]
"""Each change of two recordings, by turns; all of all take a minute and found no more."""


@pytest.mark.parametrize(("change", "name"), CASES)
def test_a_changed_recording_gives_what_the_slow_analysis_finds(change: str, name: str, tmp_path: Path) -> None:
    events = CHANGES[change](list(recorded(name)), random.Random(7))
    path = tmp_path / "changed.trace.json"
    body = ",\n  ".join(map(written, events))
    path.write_text(
        f'{{"schemaVersion": 1, "displayTimeUnit": "ns", "traceEvents": [\n  {body}\n  ], "traceName": ""}}\n'
    )
    expected = truth(path)
    (rank,) = analyse([path]).ranks
    if expected is None:
        assert not rank.coverage.ok and rank.period_us is None and rank.totals is not None
        return
    assert rank.coverage.ok, rank.coverage.problems
    check_sums(rank)
    assert rank.period_us is not None
    found = (rank.steps.used, rank.representative_step, round(rank.period_us.representative * 1000))
    assert (*found, rank.kernels_per_step) == expected[:4]
    assert rank.busy_us is not None and round(rank.busy_us * 1000) == sum(expected.owned_ns.values())
    owned, begun = dict[str, int](), dict[str, int]()
    for kernel in rank.top_kernels:
        owned[kernel.name] = owned.get(kernel.name, 0) + round(kernel.us_per_step * 1000)
        begun[kernel.name] = begun.get(kernel.name, 0) + round(kernel.calls_per_step)
    assert len(rank.top_kernels) < TOP_KERNELS, "all names of the step are there"
    assert {one: ns for one, ns in owned.items() if ns} == expected.owned_ns
    assert {one: calls for one, calls in begun.items() if calls} == expected.begun
