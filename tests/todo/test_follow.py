"""What is followed of agents' plans over time: what is gone, what came back, what is too old."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decodetop.core.engine import Engine
from decodetop.todo import follow
from decodetop.todo.follow import FollowProbe, follower
from decodetop.todo.reading import FollowReading
from support.clock import ManualClock
from support.plans import NOW_NS, item, listed, look, put
from support.probes import HEADER, Sink
from support.running import running


def test_nothing_there_is_a_normal_state(home: Path) -> None:
    reading = look(home)
    assert (reading.plans, reading.reasons) == ((), {})
    assert "~/.claude/tasks" in reading.searched and "~/.codex/sessions" in reading.searched


def test_an_emptied_list_is_gone_and_one_pushed_out_by_newer_ones_is_not(home: Path) -> None:
    todos = home / ".claude" / "todos"
    old = put(todos / "s1-agent-s1.json", [item("a")], age_s=300)
    watching = follower((), home, {})
    assert listed(watching.look(NOW_NS).plans[0]) == ["a pending"]
    for number in range(3):
        put(todos / f"n{number}.json", [item("new")], age_s=10)
    assert listed(watching.look(NOW_NS).plans[-1]) == ["a pending"]
    put(old, [], age_s=5)
    assert ["a pending gone"] in [listed(plan) for plan in watching.look(NOW_NS).plans]


def test_a_plan_that_comes_back_is_not_gone(home: Path, tmp_path: Path) -> None:
    path = put(tmp_path / "plan.json", [item("a"), item("a"), item("b")])
    watching = follower((path,), home, {})
    watching.look(NOW_NS)
    put(path, [item("a")])
    assert listed(watching.look(NOW_NS).plans[0]) == ["a pending", "a pending gone", "b pending gone"]
    put(path, [item("b", "completed"), item("a"), item("a")])
    assert listed(watching.look(NOW_NS).plans[0]) == ["b completed", "a pending", "a pending"]


def test_a_half_written_list_keeps_the_last_good_one(home: Path, tmp_path: Path) -> None:
    path = put(tmp_path / "plan.json", [item("a")])
    watching = follower((path,), home, {})
    watching.look(NOW_NS)
    put(path, '[{"content')
    (plan,) = watching.look(NOW_NS).plans
    assert listed(plan) == ["a pending"] and plan.problem == "no checklist in the text (yet)"


def test_a_named_file_that_is_not_there_is_a_word(home: Path, tmp_path: Path) -> None:
    reading = look(home, tmp_path / "none.json", tmp_path / "none.jsonl")
    assert set(reading.reasons.values()) == {"not there"} and len(reading.reasons) == 2


def test_an_agents_plan_of_last_week_is_not_shown(home: Path) -> None:
    put(home / ".qwen" / "todos" / "q.json", {"todos": [item("a", id="1")]}, age_s=7 * 24 * 3600)
    assert look(home).plans == ()
    put(home / ".qwen" / "todos" / "q.json", {"todos": [item("a", id="1")]})
    assert [plan.agent for plan in look(home).plans] == ["Qwen Code"]


async def test_the_probe_in_an_engine(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "plan.md", "- [ ] a\n")

    class Inline:
        def __init__(self, name: str) -> None:
            pass

        async def call(self, function: Any) -> Any:
            return function()

        def close(self) -> None:
            pass

    monkeypatch.setattr(follow, "CallThread", Inline)
    clock, sink = ManualClock(), Sink()
    engine = Engine(HEADER, clock, [FollowProbe(follower((path,), home, {}), clock)])
    async with running(engine, sink):
        await clock.advance(FollowProbe.period_s)
    seen = [sample.reading for sample in sink.of("follow")]
    assert len(seen) == 2 and isinstance(seen[0], FollowReading) and listed(seen[0].plans[0]) == ["a pending"]
