"""Agents' plans as a lane beside one's own list. Items that vanish from a store stay, marked as gone."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from decodetop.core.clock import SECOND_NS, Clock
from decodetop.core.regular import home as own_home
from decodetop.core.regular import present
from decodetop.core.thread import CallThread
from decodetop.todo.agents import Place, known_places, named_place
from decodetop.todo.document import fold_content
from decodetop.todo.reading import FollowedPlan, FollowedTodo, FollowReading

PLANS_SHOWN = 4
RECENT_S = 24 * 3600.0
"""A plan of an agent nobody named is shown if its store changed within a day."""
GONE_KEPT = 50

_Key = tuple[str, str]


class Follower:
    """`look` reads all places once; it blocks on the disk."""

    def __init__(self, places: Sequence[Place], home: Path) -> None:
        self._places = tuple(places)
        self._home = home
        self._known: list[dict[_Key, FollowedPlan]] = [{} for _ in self._places]

    def look(self, wall_ns: int) -> FollowReading:
        """`wall_ns` is now. What can't be read stands in `reasons`; a place that is not there is only `searched`."""
        reasons: dict[str, str] = {}
        shown: list[FollowedPlan] = []
        for number, place in enumerate(self._places):
            known = self._known[number]
            try:
                known = _merged(place, known)
            except OSError as error:
                reasons[self._short(place.path)] = error.strerror or str(error)
            except sqlite3.Error as error:
                reasons[self._short(place.path)] = str(error)
            if place.named and not present(place.path):
                reasons.setdefault(self._short(place.path), "not there")
            newest = _newest_first(plan for plan in known.values() if plan.todos or plan.problem)[:PLANS_SHOWN]
            self._known[number] = {_key(plan): plan for plan in newest}
            shown += [plan for plan in newest if place.named or self._is_recent(plan, wall_ns)]
        plans = _newest_first(shown)[:PLANS_SHOWN]
        return FollowReading(
            plans=tuple(msgspec.structs.replace(plan, path=self._short(Path(plan.path))) for plan in plans),
            searched=tuple(self._short(place.path) for place in self._places),
            reasons=reasons,
        )

    def _is_recent(self, plan: FollowedPlan, wall_ns: int) -> bool:
        return plan.changed_wall_ns is None or wall_ns - plan.changed_wall_ns <= RECENT_S * SECOND_NS

    def _short(self, path: Path) -> str:
        """With `~`, so that a report does not carry the operator's name."""
        return f"~/{path.relative_to(self._home)}" if path.is_relative_to(self._home) else str(path)


class FollowProbe:
    """Engine probe of the lane `follow`."""

    source = "follow"
    period_s = 5.0
    deadline_s = 5.0

    def __init__(self, follower: Follower, clock: Clock) -> None:
        self._follower = follower
        self._clock = clock
        self._thread: CallThread | None = None

    async def read(self) -> FollowReading:
        if self._thread is None:
            self._thread = CallThread("decodetop-follow")
        wall_ns = self._clock.wall_ns()
        return await self._thread.call(lambda: self._follower.look(wall_ns))

    async def close(self) -> None:
        if self._thread is not None:
            self._thread.close()


def follower(
    named: Sequence[Path] = (), home: Path | None = None, environ: Mapping[str, str] | None = None
) -> Follower:
    """Of the places named; none named: of the places where agents keep plans by default."""
    home = own_home() or Path("/") if home is None else home
    environ = os.environ if environ is None else environ
    return Follower(tuple(map(named_place, named)) or known_places(home, environ), home)


def _merged(place: Place, known: Mapping[_Key, FollowedPlan]) -> dict[_Key, FollowedPlan]:
    """What the place holds now, together with what it held before. Raises OSError and sqlite3.Error."""
    read = {_key(plan): plan for plan in place.read(place.path)} if place.path.exists() else {}
    merged = {key: _with_gone(plan, known[key]) if key in known else plan for key, plan in read.items()}
    for key, plan in known.items():
        if key not in read:
            own_file = Path(plan.path) != place.path and Path(plan.path).exists()
            merged[key] = plan if own_file else _with_gone(msgspec.structs.replace(plan, todos=(), problem=None), plan)
    return merged


def _key(plan: FollowedPlan) -> _Key:
    return plan.agent, plan.session


def _newest_first(plans: Iterable[FollowedPlan]) -> list[FollowedPlan]:
    return sorted(plans, key=lambda plan: plan.changed_wall_ns or 0, reverse=True)


def _with_gone(plan: FollowedPlan, known: FollowedPlan) -> FollowedPlan:
    """The plan with what it held before and holds no more, at the end. One that can't be read now keeps its items."""
    if plan.problem is not None and not plan.todos:
        return msgspec.structs.replace(known, problem=plan.problem, changed_wall_ns=plan.changed_wall_ns)
    names = set(_names(plan.todos))
    gone = [
        msgspec.structs.replace(todo, gone=True)
        for name, todo in zip(_names(known.todos), known.todos, strict=True)
        if name not in names
    ]
    return msgspec.structs.replace(plan, todos=(*plan.todos, *gone[-GONE_KEPT:]))


def _names(todos: Sequence[FollowedTodo]) -> list[tuple[str, int]]:
    """What tells items apart: their words and how many of the same stand before (ids are given again)."""
    counts: dict[str, int] = {}
    names = []
    for todo in todos:
        words = fold_content(todo.content)
        counts[words] = counts.get(words, 0) + 1
        names.append((words, counts[words]))
    return names
