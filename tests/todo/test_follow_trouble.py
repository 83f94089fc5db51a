"""Agents' stores that are closed, locked, huge, broken or odd: a word, and no other plan goes with them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from decodetop.todo import agents as follow_limits
from decodetop.todo.agents import CodexSessions
from decodetop.todo.follow import follower
from support.plans import NOW_NS, item, listed, look, opened, put, untouched


def test_a_database_that_is_none_is_a_word(home: Path) -> None:
    path = put(home / "x.db", "not a database at all, however long it may be" * 40)
    reading = look(home, path)
    assert reading.plans == () and reading.reasons == {"~/x.db": "file is not a database"}


def test_a_place_that_may_not_be_read_is_a_word(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home / ".claude" / "todos" / "s.json", [item("a")])

    def denied(self: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied")

    watching = follower((), home, {})
    assert len(watching.look(NOW_NS).plans) == 1
    monkeypatch.setattr(Path, "iterdir", denied)
    reading = watching.look(NOW_NS)
    assert reading.reasons["~/.claude/todos"] == "Permission denied"
    assert listed(reading.plans[0]) == ["a pending"], "what was known of it stays, and is not called gone"


def test_stores_that_are_huge_broken_or_of_odd_things_end_in_a_word(home: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    put(odd / "deep.json", "[" * 50_000)
    put(odd / "wrong.json", [{"content": ["a"], "status": {"b": 1}}, 7, None, "words", {"status": "x"}])
    put(odd / "many.json", [item(f"n{number}") for number in range(follow_limits.TODOS_MOST + 5)], age_s=1)
    long = put(tmp_path / "long.json", [item("x" * 10_000)])
    with untouched(tmp_path):
        plans = {Path(plan.path).name: plan for plan in look(home, odd, long).plans}
    assert len(plans["many.json"].todos) == follow_limits.TODOS_MOST
    assert "only the first" in (plans["many.json"].problem or "")
    assert len(plans["long.json"].todos[0].content) == follow_limits.WORDS_MOST
    assert "no checklist" in (plans["wrong.json"].problem or "")
    assert "deep.json" not in plans or plans["deep.json"].problem


def test_one_file_that_may_not_be_read_hides_no_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = home / ".claude" / "tasks" / "s1"
    for number in (1, 2):
        put(tasks / f"{number}.json", {"id": str(number), "subject": f"task {number}", "status": "pending"})
    real = follow_limits.read_regular

    def refuse(path: Path, most: int) -> bytes:
        if path.name == "1.json":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, most)

    monkeypatch.setattr(follow_limits, "read_regular", refuse)
    (plan,) = look(home).plans
    assert listed(plan) == ["task 2 pending"] and plan.problem == "1.json: Permission denied"


def test_tasks_nested_too_deeply_are_no_json(home: Path) -> None:
    tasks = home / ".claude" / "tasks" / "s1"
    put(tasks / "1.json", "[" * 100_000)
    put(tasks / "2.json", {"id": "2", "subject": "b", "status": "pending"})
    (plan,) = look(home).plans
    assert listed(plan) == ["b pending"] and plan.problem == "1.json is not JSON (yet)"


def test_a_locked_database_keeps_what_was_read_and_says_so(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    with closing(opened(path)) as database:
        database.execute("INSERT INTO todo VALUES ('s1', 'a', 'pending', 'high', 0, 1)")
        database.commit()
        (tmp_path / "opencode.db-wal").touch()  # as if it ran: then locks are kept
        watching = follower([path], home, {})
        assert listed(watching.look(NOW_NS).plans[0]) == ["a pending"]
        database.execute("BEGIN EXCLUSIVE")
        reading = watching.look(NOW_NS)
        assert listed(reading.plans[0]) == ["a pending"] and "locked" in next(iter(reading.reasons.values()))
        database.rollback()
        assert watching.look(NOW_NS).reasons == {}


def test_a_query_that_takes_too_long_is_given_up(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_limits, "_SQL_STEPS", 100)
    monkeypatch.setattr(follow_limits, "_SQL_ROUNDS", 5)
    path = tmp_path / "opencode.db"
    with closing(opened(path)) as database:
        rows = [(f"s{number % 50}", "a", "pending", "high", number, number) for number in range(2_000)]
        database.executemany("INSERT INTO todo VALUES (?, ?, ?, ?, ?, ?)", rows)
        database.commit()
    reading = look(home, path)
    assert reading.plans == () and "interrupted" in next(iter(reading.reasons.values()))


def test_a_line_of_a_session_log_that_never_ends_is_passed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_limits, "ROLLOUT_TAIL_BYTES", 1_000)
    call = {"payload": {"name": "update_plan", "arguments": json.dumps({"plan": [{"step": "a", "status": "pending"}]})}}
    log = tmp_path / "rollout-1.jsonl"
    log.write_text("")
    sessions = CodexSessions()
    assert list(sessions(log)) == []
    log.write_text("x" * 2_500 + "\n" + json.dumps(call) + "\n")
    found = [plan for _ in range(4) for plan in sessions(log)]
    assert found and listed(found[-1]) == ["a pending"]


@pytest.mark.parametrize("stamp", ["abc", None, float("inf"), 1e300, -5, b"\xff"])
def test_a_database_may_hold_anything(tmp_path: Path, stamp: object) -> None:
    """SQLite's columns have no types: such a row takes no other agent's plan away."""
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE todo (session_id, content, status, priority, position, time_updated)")
        database.execute("INSERT INTO todo VALUES (?, ?, 'pending', ?, 0, ?)", (b"s\xff", b"look\xff", 1.5, stamp))
        database.commit()
    reading = follower([path], home=tmp_path, environ={}).look(NOW_NS)
    assert reading.reasons == {}
    assert [listed(plan) for plan in reading.plans] == [["look\ufffd pending"]]


def test_a_link_that_leads_nowhere_is_passed(tmp_path: Path) -> None:
    folder = tmp_path / ".qwen" / "todos"
    put(folder / "a.json", [item("read the trace")])
    (folder / "b.json").symlink_to("b.json")
    reading = follower(home=tmp_path, environ={}).look(NOW_NS)
    assert reading.reasons == {} and len(reading.plans) == 1


def test_a_folder_that_may_not_be_entered_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", refused)
    looking = follower([tmp_path / "closed" / "list.json"], home=tmp_path, environ={})
    assert looking.look(NOW_NS).reasons == {"~/closed/list.json": "Permission denied"}
    assert set(follower(home=tmp_path, environ={}).look(NOW_NS).reasons.values()) == {"Permission denied"}
