"""Kinds of the events of a block: by name, and by neighbours on the stream where the name is not enough."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from decodetop.steps.kinds import UNKNOWN, Context, Kinds
from decodetop.steps.reading import KINDS
from decodetop.steps.rows import Trace
from decodetop.steps.split import Ints, distinct
from decodetop.steps.timeline import Events


class NameTable:
    """Per name id: code of its kind, rank of precedence, whether it is a kernel, and the rules about it."""

    def __init__(self, trace: Trace, kinds: Kinds) -> None:
        codes = [kinds.code(category, name) for category, name in trace.names]
        kernel = [category == "kernel" for category, _ in trace.names]
        self.code = np.array(codes, np.int64)
        self.is_kernel = np.array(kernel, bool)
        communication = KINDS.index("communication")
        self.rank = np.where(~self.is_kernel, 2, np.where(self.code == communication, 1, 0))
        rules = [kinds.context_numbers(category, name) for category, name in trace.names]
        self.has_rule = np.array([bool(found) for found in rules], bool)
        self._rules = kinds.contexts
        self._about = [np.array([number in found for found in rules], bool) for number in range(len(self._rules))]

    def codes(self, events: Events, window: Ints) -> Ints:
        """The kind of each event; `events` in order of time, `window` the step each starts in (-1 = none)."""
        code: Ints = self.code[events.name]
        asked = self.has_rule[events.name]
        open_at = np.flatnonzero(asked)
        if not len(open_at):
            return code
        before, after = _neighbours(events.track, code, ~asked, open_at)
        for rule, about in zip(self._rules, self._about, strict=True):
            chosen = np.flatnonzero(about[events.name[open_at]] & asked[open_at])
            at = open_at[chosen[_holds(rule, before[chosen], after[chosen])]]
            if rule.calls_per_step and len(at):
                at = at[_often(events.name[at], window[at], rule.calls_per_step)]
            if len(at):
                code[at] = KINDS.index(rule.kind)
                asked[at] = False
        return code


def _holds(rule: Context, before: Ints, after: Ints) -> NDArray[Any]:
    holds = np.ones(len(before), bool)
    for wanted, found in ((rule.after, before), (rule.before, after)):
        if wanted:
            # the last place is that of -1, no neighbour
            listed = np.zeros(UNKNOWN + 2, bool)
            listed[[KINDS.index(kind) for kind in wanted]] = True
            holds &= listed[found]
    return holds


def _neighbours(track: NDArray[Any], code: Ints, sure: NDArray[Any], at: Ints) -> tuple[Ints, Ints]:
    """Kind of the nearest event before and after each of those `at` these places, on the same stream, whose own kind is
    `sure`; -1 where there is none."""
    before, after = np.full(len(at), -1), np.full(len(at), -1)
    for one in distinct(track[at]):
        mine = np.flatnonzero(track[at] == one)
        known = np.flatnonzero((track == one) & sure)
        # the last place is that of no neighbour, on both sides
        kinds = np.append(code[known], -1)
        place = np.searchsorted(known, at[mine])
        before[mine], after[mine] = kinds[place - 1], kinds[place]
    return before, after


def _often(name: NDArray[Any], window: Ints, times: int) -> NDArray[Any]:
    """Which events have a name that occurs at least so often in their step."""
    _, inverse, count = np.unique(window * (1 << 32) + name, return_inverse=True, return_counts=True)
    often: NDArray[Any] = count[inverse] >= times
    return often
