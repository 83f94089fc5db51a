"""Where each agent keeps its plans and in which shape; nothing there is touched."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from decodetop.core.clock import SECOND_NS
from decodetop.core.encode import encode
from decodetop.todo.agents import CodexSessions
from decodetop.todo.follow import follower
from support.plans import NOW_NS, item, listed, look, opencode, put, untouched


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
