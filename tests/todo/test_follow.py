"""Agents' plans: where they lie, how they are read, and that nothing there is touched."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from decodetop.core.clock import SECOND_NS
from decodetop.core.encode import encode
from decodetop.core.engine import Engine
from decodetop.todo import agents as follow_limits
from decodetop.todo import follow
from decodetop.todo.agents import CodexSessions
from decodetop.todo.follow import FollowProbe, follower
from decodetop.todo.reading import FollowedPlan, FollowReading
from support.clock import ManualClock
from support.probes import HEADER, Sink
from support.running import running

NOW_NS = 1_796_000_000 * SECOND_NS


def put(path: Path, value: Any, age_s: float = 60) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    os.utime(path, ns=(NOW_NS - int(age_s * SECOND_NS),) * 2)
    return path


def item(content: str, status: str = "pending", **more: Any) -> dict[str, Any]:
    return {"content": content, "status": status, **more}


def listed(plan: FollowedPlan) -> list[str]:
    return [f"{todo.content} {todo.status}{' gone' if todo.gone else ''}" for todo in plan.todos]


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    before = tree(folder)
    yield
    assert tree(folder) == before, "somebody else's store was written"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def look(home: Path, *named: Path, environ: dict[str, str] | None = None) -> FollowReading:
    return follower(named, home, environ or {}).look(NOW_NS)


def test_nothing_there_is_a_normal_state(home: Path) -> None:
    reading = look(home)
    assert (reading.plans, reading.reasons) == ((), {})
    assert "~/.claude/tasks" in reading.searched and "~/.codex/sessions" in reading.searched


def test_claude_code_lists_of_both_shapes(home: Path) -> None:
    todos = home / ".claude" / "todos"
    put(todos / "s1-agent-s1.json", [item("a", priority="high", id="1"), item("b", "completed", id="2")])
    put(todos / "s2-agent-s2.json", [item("c", "in_progress", activeForm="Doing c")], age_s=30)
    for number in range(10):
        put(todos / f"e{number}-agent-e{number}.json", [], age_s=1)
    with untouched(home):
        reading = look(home)
    assert [(plan.agent, plan.session, plan.path) for plan in reading.plans] == [
        ("Claude Code", "s2", "~/.claude/todos/s2-agent-s2.json"),
        ("Claude Code", "s1", "~/.claude/todos/s1-agent-s1.json"),
    ]
    assert listed(reading.plans[1]) == ["a pending", "b completed"]
    assert reading.plans[1].todos[0].priority == "high" and reading.plans[1].todos[0].id == "1"
    assert reading.plans[1].changed_wall_ns == NOW_NS - 60 * SECOND_NS


def test_claude_code_tasks_whose_files_vanish(home: Path) -> None:
    session = home / "cfg" / "tasks" / "session-ab"
    for number, status in ((1, "completed"), (2, "in_progress"), (10, "pending")):
        put(
            session / f"{number}.json",
            {"id": str(number), "subject": f"task {number}", "description": "x", "status": status},
        )
    put(session / ".lock", "")
    put(session / ".highwatermark", "10")
    os.utime(session, ns=(NOW_NS, NOW_NS))
    watching = follower((), home, {"CLAUDE_CONFIG_DIR": str(home / "cfg")})
    assert listed(watching.look(NOW_NS).plans[0]) == ["task 1 completed", "task 2 in_progress", "task 10 pending"]
    (session / "1.json").unlink()
    put(session / "2.json", "{half")
    os.utime(session, ns=(NOW_NS, NOW_NS))
    (plan,) = watching.look(NOW_NS).plans
    assert listed(plan) == ["task 10 pending", "task 1 completed gone", "task 2 in_progress gone"]
    assert plan.problem == "2.json is not JSON (yet)"
    for path in session.iterdir():
        path.unlink()
    session.rmdir()
    (plan,) = watching.look(NOW_NS).plans
    assert [todo.gone for todo in plan.todos] == [True, True, True] and plan.problem is None


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


def opencode(path: Path, *, stamps: bool = True, wal: bool = False) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path)
    if wal:
        database.execute("PRAGMA journal_mode = WAL")
    more = ", time_created INTEGER, time_updated INTEGER" if stamps else ""
    database.execute(
        f"CREATE TABLE todo (session_id TEXT, content TEXT, status TEXT, priority TEXT, position INTEGER{more})"
    )
    for session, age_s in (("old", 7200), ("new", 60)):
        for position, (content, status) in enumerate((("second", "pending"), ("first", "in_progress"))):
            row = [f"{session} {content}", status, "high", 1 - position]
            stamp = (NOW_NS // SECOND_NS - age_s) * 1000
            values = [session, *row, *([stamp, stamp] if stamps else [])]
            database.execute(f"INSERT INTO todo VALUES ({','.join('?' * len(values))})", values)
    database.commit()
    return database


def test_opencode_database_and_the_stale_files_beside_it(home: Path) -> None:
    data = home / ".local" / "share" / "opencode"
    opencode(data / "opencode.db").close()
    put(data / "storage" / "todo" / "s9.json", [item("stale")])
    with untouched(home):
        reading = look(home)
    assert [(plan.agent, plan.session) for plan in reading.plans] == [("opencode", "new"), ("opencode", "old")]
    assert listed(reading.plans[0]) == ["new first in_progress", "new second pending"]
    assert reading.plans[0].changed_wall_ns == NOW_NS - 60 * SECOND_NS
    assert reading.plans[0].path == "~/.local/share/opencode/opencode.db"


def test_opencode_while_it_runs(home: Path) -> None:
    path = home / "my.db"
    with closing(opencode(path, wal=True)):
        assert path.with_name("my.db-wal").stat().st_size > 0, "what is new stands in the log only"
        reading = look(home, environ={"OPENCODE_DB": str(path)})
        assert [plan.session for plan in reading.plans] == ["new", "old"]


def test_opencode_without_stamps_and_its_older_files(home: Path) -> None:
    path = home / "x.db"
    opencode(path, stamps=False).close()
    assert [plan.session for plan in look(home, path).plans] == ["new", "old"]
    put(
        home / "data" / "opencode" / "storage" / "todo" / "ses_1.json", [item("a", "cancelled", priority="low", id="1")]
    )
    (plan,) = look(home, environ={"XDG_DATA_HOME": str(home / "data")}).plans
    assert (plan.agent, plan.session, listed(plan)) == ("opencode", "ses_1", ["a cancelled"])


def test_a_database_that_is_none_is_a_word(home: Path) -> None:
    path = put(home / "x.db", "not a database at all, however long it may be" * 40)
    reading = look(home, path)
    assert reading.plans == () and reading.reasons == {"~/x.db": "file is not a database"}


def codex_line(name: str, arguments: Any, nested: bool = True) -> str:
    call = {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": "c"}
    return json.dumps({"timestamp": "t", "type": "response_item", "payload": call} if nested else call) + "\n"


def steps(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"explanation": "x", "plan": [{"step": step, "status": status} for step, status in pairs]}


def test_codex_session_log_is_followed_as_it_grows(home: Path) -> None:
    day = home / ".codex" / "sessions" / "2026" / "11" / "30"
    log = put(day / "rollout-2026-11-30T00-50-00-uuid.jsonl", codex_line("shell", {"command": ["echo", "update_plan"]}))
    watching = follower((), home, {})
    assert watching.look(NOW_NS).plans == ()
    with log.open("a") as file:
        file.write(codex_line("update_plan", steps(("a", "in_progress"), ("b", "pending"))))
        file.write('{"message": "calls \\"update_plan\\" in words"}\n')
        whole = codex_line("update_plan", steps(("a", "completed"), ("b", "in_progress")), nested=False)
        file.write(whole[:40])
    os.utime(log, ns=(NOW_NS, NOW_NS))
    (plan,) = watching.look(NOW_NS).plans
    assert (plan.agent, plan.session) == ("Codex", "2026-11-30T00-50-00-uuid")
    assert listed(plan) == ["a in_progress", "b pending"]
    with log.open("a") as file:
        file.write(whole[40:])
    os.utime(log, ns=(NOW_NS, NOW_NS))
    with untouched(home):
        assert listed(watching.look(NOW_NS).plans[0]) == ["a completed", "b in_progress"]


def test_codex_reads_only_what_is_new_and_begins_again_when_the_log_does(tmp_path: Path) -> None:
    log = put(tmp_path / "rollout-1.jsonl", codex_line("update_plan", steps(("a", "pending"))) * 50)
    sessions = CodexSessions()
    assert len(list(sessions(log))) == 1
    offset = sessions._read[log][0]
    assert offset == log.stat().st_size
    put(log, codex_line("update_plan", steps(("b", "pending"))))
    (plan,) = sessions(log)
    assert listed(plan) == ["b pending"]


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("plan.md", "# Plan\n- [x] a\n- [ ] b\n", ["a completed", "b pending"]),
        ("plan.txt", "x a\n(A) b\n", ["a completed", "b pending"]),
        ("log.jsonl", codex_line("update_plan", steps(("a", "pending"))), ["a pending"]),
        ("x.json", {"todos": [item("a", "blocked")]}, ["a blocked"]),
    ],
)
def test_a_file_the_operator_named_however_old(
    home: Path, tmp_path: Path, name: str, content: Any, found: list[str]
) -> None:
    path = put(tmp_path / name, content, age_s=10**6)
    with untouched(tmp_path):
        (plan,) = look(home, path).plans
    assert listed(plan) == found and plan.path == str(path)


def test_a_folder_the_operator_named(home: Path, tmp_path: Path) -> None:
    put(tmp_path / "tasks" / "3.json", {"subject": "a", "status": "pending"})
    put(tmp_path / "lists" / "x.json", [item("b")])
    assert [listed(plan) for plan in look(home, tmp_path / "tasks", tmp_path / "lists").plans] == [
        ["a pending"],
        ["b pending"],
    ]


def test_a_named_file_that_is_not_there_is_a_word(home: Path, tmp_path: Path) -> None:
    reading = look(home, tmp_path / "none.json", tmp_path / "none.jsonl")
    assert set(reading.reasons.values()) == {"not there"} and len(reading.reasons) == 2


def test_an_agents_plan_of_last_week_is_not_shown(home: Path) -> None:
    put(home / ".qwen" / "todos" / "q.json", {"todos": [item("a", id="1")]}, age_s=7 * 24 * 3600)
    assert look(home).plans == ()
    put(home / ".qwen" / "todos" / "q.json", {"todos": [item("a", id="1")]})
    assert [plan.agent for plan in look(home).plans] == ["Qwen Code"]


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


def opened(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE todo (session_id, content, status, priority, position, time_updated)")
    return database


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


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    home = tmp_path / os.fsdecode(b"home\xff")
    put(home / ".claude" / "tasks" / os.fsdecode(b"s\xff") / "1.json", {"subject": "a"})
    database = home / ".local" / "share" / "opencode" / "opencode.db"
    database.parent.mkdir(parents=True)
    with closing(sqlite3.connect(tmp_path / "made.db")) as made:
        made.execute("CREATE TABLE todo (session_id, content, status, priority, position)")
        made.execute("INSERT INTO todo VALUES ('s', 'b', 'pending', 'high', 0)")
        made.commit()
    (tmp_path / "made.db").rename(database)
    reading = follower(home=home, environ={}).look(NOW_NS)
    assert sorted(plan.todos[0].content for plan in reading.plans) == ["a", "b"]
    assert b"tasks/s?" in encode(reading)
