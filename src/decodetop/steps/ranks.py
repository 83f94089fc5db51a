"""Ranks beside each other: of a collective's time the shortest over the ranks is transfer, the rest is waiting.

Needs durations only, so no common clock. Collectives are matched by their ordinal among those of the same name within
the same step. The straggler is the rank that waits least: the others wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decodetop.steps.split import Ints

STRAGGLER_MIN_SHARE = 0.01
"""Of the step: less difference in waiting than this names no straggler."""

ALIKE_WITHIN = 0.75

Collectives = dict[tuple[str, int], int]
"""(name, ordinal) -> ns, of one step of one rank."""


def number(names: Sequence[str], ns: Ints) -> Collectives:
    """Collectives in order of time, numbered per name."""
    seen: dict[str, int] = {}
    numbered: Collectives = {}
    for name, duration in zip(names, ns.tolist(), strict=True):
        ordinal = seen.get(name, 0)
        seen[name] = ordinal + 1
        numbered[name, ordinal] = duration
    return numbered


def transfer_ns(ranks: Sequence[Collectives]) -> int | None:
    """Sum over the collectives that every rank has of the shortest; None if the ranks' collectives don't match."""
    if len(ranks) < 2 or not all(ranks):
        return None
    shared = set.intersection(*(set(rank) for rank in ranks))
    if len(shared) < 0.9 * max(len(rank) for rank in ranks):
        return None
    return sum(min(rank[key] for rank in ranks) for key in shared)


def straggler(waiting_ns: Sequence[float | None], period_ns: float) -> int | None:
    """Position of the rank that waits least, where the difference matters."""
    known = [wait for wait in waiting_ns if wait is not None]
    if len(known) < 2 or len(known) < len(waiting_ns):
        return None
    if max(known) - min(known) < STRAGGLER_MIN_SHARE * period_ns:
        return None
    return int(np.argmin(np.array(known)))


def same_step(start: int, period: int, starts: NDArray[np.int64], alike: int | None) -> int | None:
    """Which of another rank's sorted `starts` is of the step that begins at `start`: the nearest within half a step.

    Where both recorded as many steps, `alike` is the one of the same number; it counts first, within ALIKE_WITHIN of a
    step, for the clocks of two hosts may differ.
    """
    if alike is not None and abs(int(starts[alike]) - start) < ALIKE_WITHIN * period:
        return alike
    if not len(starts):
        return None
    nearest = int(np.argmin(np.abs(starts - start)))
    return nearest if abs(int(starts[nearest]) - start) < period / 2 else None
