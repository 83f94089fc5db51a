"""Steps of a trace without labels: the kernels of the main stream repeat, so cut where one comes once a period."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from decodetop.steps.context import NameTable
from decodetop.steps.reading import KINDS
from decodetop.steps.segment import Label, Stage
from decodetop.steps.split import Ints
from decodetop.steps.timeline import Timeline

LOOK_MAX = 1_500_000
"""Kernels of the main stream looked at to find what repeats; the cuts are then made over all of them."""
PERIOD_MIN_KERNELS = 8
TOLERANCE = 0.02
SHARE_MIN = 0.5
"""Of the distances between an anchor's calls, and of the kernels, so much has to be regular."""
MULTIPLE_MAX = 4
ALIKE_MIN = 0.9
"""Two steps do the same work when so much of their kernels have the same names; shapes stand in GEMM names."""
CLASSES_MAX = 32
SEEN_MAX = 10_000
TEXT = "(no labels: by what repeats)"


Names = dict[int, int]
"""Name id -> calls, of one step."""


class _Anchor(NamedTuple):
    name: int
    period: float
    share: float


class Repeats(msgspec.Struct, frozen=True):
    """Synthetic labels, and for each the start of its first event."""

    labels: tuple[Label, ...]
    first_start: Ints


def find(timeline: Timeline, names: NameTable) -> Repeats:
    """Empty where nothing repeats at least three times."""
    anchor = _anchor(_sequence(timeline, names), names)
    if anchor is None:
        return Repeats((), np.empty(0, np.int64))
    starts, kinds = _cuts(timeline, names, anchor.name)
    decode = _decode(starts, kinds, anchor.period)
    stages: list[Stage] = ["decode" if like else "other" for like in decode]
    labels = [Label(TEXT, stage, None, start, start, 0) for stage, start in zip(stages, starts.tolist(), strict=True)]
    return Repeats(tuple(labels), starts)


class _Sorts:
    """Sorts of steps by the names of their kernels: `of` numbers them as they are met, -1 beyond CLASSES_MAX."""

    def __init__(self) -> None:
        self.kernels: list[int] = []
        self._seen: dict[bytes, int] = {}
        self._examples: list[Names] = []

    def of(self, names: NDArray[np.uint32]) -> int:
        found, counts = np.unique(names, return_counts=True)
        key = found.tobytes() + counts.tobytes()
        if key not in self._seen:
            mine = dict(zip(found.tolist(), counts.tolist(), strict=True))
            number = next((at for at, other in enumerate(self._examples) if _alike(mine, other)), -1)
            if number < 0 and len(self._examples) < CLASSES_MAX:
                number = len(self._examples)
                self._examples.append(mine)
                self.kernels.append(len(names))
            if len(self._seen) >= SEEN_MAX:
                return number
            self._seen[key] = number
        return self._seen[key]


def _decode(starts: Ints, steps: tuple[list[int], _Sorts], period: float) -> list[bool]:
    """Which steps do the decode's work: the shortest of the sorts of steps that occur more than once.

    A prefill repeats as well, with as many kernels of other shapes, but takes longer. The last step has no end and
    counts as the one before it.
    """
    sort = np.array(steps[0], np.int64)
    length = starts[1:] - starts[:-1]
    usual = [
        number
        for number, kernels in enumerate(steps[1].kernels)
        if kernels > period / 2 and np.count_nonzero(sort == number) > 1
    ]
    best = min(usual, key=lambda number: float(np.median(length[sort == number])), default=-2)
    decode = [one == best for one in steps[0]]
    return [*decode, bool(decode) and decode[-1]]


def _alike(mine: Names, other: Names) -> bool:
    shared = sum(min(count, other.get(name, 0)) for name, count in mine.items())
    return shared >= ALIKE_MIN * max(sum(mine.values()), sum(other.values()))


def _sequence(timeline: Timeline, names: NameTable) -> NDArray[np.uint32]:
    """Name ids of the main stream's kernels in order of time."""
    parts: list[NDArray[np.uint32]] = []
    seen = 0
    for events, _, _ in timeline.buckets():
        mine = events.name[(events.track == timeline.main_track) & names.is_kernel[events.name]]
        parts.append(mine)
        seen += len(mine)
        if seen > LOOK_MAX:
            break
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


def _anchor(sequence: NDArray[np.uint32], names: NameTable) -> _Anchor | None:
    order = np.argsort(sequence, kind="stable")
    edges = np.flatnonzero(np.diff(sequence[order])) + 1
    found: list[_Anchor] = []
    for places in np.split(order, edges):
        if len(places) < 3:
            continue
        distance = np.diff(places)
        usual = float(np.median(distance))
        regular = np.abs(distance - usual) <= max(1, TOLERANCE * usual)
        covered = distance[regular].sum() / len(sequence)
        if usual >= PERIOD_MIN_KERNELS and regular.mean() >= SHARE_MIN and covered >= SHARE_MIN:
            found.append(_Anchor(int(sequence[places[0]]), usual, float(regular.mean())))
    return _longest(found, names)


def _longest(found: list[_Anchor], names: NameTable) -> _Anchor | None:
    """The longest period that several kernels (or one that samples) agree on; a layer's is shorter than a step's."""
    sampling = KINDS.index("sampling")
    groups: list[list[_Anchor]] = []
    for anchor in sorted(found, key=lambda one: -one.period):
        if groups and abs(groups[-1][0].period - anchor.period) <= max(1, TOLERANCE * anchor.period):
            groups[-1].append(anchor)
        else:
            groups.append([anchor])
    groups = [group for group in groups if len(group) > 1 or names.code[group[0].name] == sampling]
    if not groups:
        return None
    best = groups[0]
    for group in groups[1:]:
        # what comes every second or third step only must not join steps into one
        times = best[0].period / group[0].period
        if round(times) <= MULTIPLE_MAX and abs(times - round(times)) < 0.1 and len(group) > len(best):
            best = group
    return max(best, key=lambda one: one.share)


def _cuts(timeline: Timeline, names: NameTable, anchor: int) -> tuple[Ints, tuple[list[int], _Sorts]]:
    """Starts of the anchor's calls on the main stream, and which sort of step each begins (the last has no end)."""
    starts: list[Ints] = []
    numbers: list[int] = []
    sorts = _Sorts()
    begun: NDArray[np.uint32] | None = None
    for events, _, _ in timeline.buckets():
        mine = np.flatnonzero((events.track == timeline.main_track) & names.is_kernel[events.name])
        name = events.name[mine]
        at = np.flatnonzero(name == anchor)
        starts.append(events.start[mine[at]])
        first, *others = np.split(name, at)
        begun = None if begun is None else np.concatenate([begun, first])
        for part in others:
            if begun is not None:
                numbers.append(sorts.of(begun))
            begun = part
    return np.concatenate(starts), (numbers, sorts)
