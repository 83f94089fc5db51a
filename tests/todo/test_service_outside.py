"""The checklist beside other programs that write its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from decodetop.todo import model
from decodetop.todo.reading import (
    AddEvidence,
    AddTodo,
    EditTodo,
    RedoTodo,
    RestoreTodo,
    UndoTodo,
)
from decodetop.todo.store import TodoStore
from support.notebook import Notes, contents


async def test_an_outside_edit_is_seen_by_the_watch_and_by_the_poll(tmp_path: Path) -> None:
    async with Notes(tmp_path).running() as bench:
        assert contents(await bench.outside([{"content": "a"}])) == ["a"]
        bench.write([{"content": "a", "status": "completed"}, {"content": "b"}])
        assert contents(await bench.poll()) == ["a", "b"]
        assert bench.reading.todos[0].status == "completed"


async def test_outside_and_own_edits_come_together(tmp_path: Path) -> None:
    async with Notes(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"), AddTodo(content="b"))
        whole = json.loads(bench.path.read_bytes())
        whole["todos"][0] |= {"content": "a, outside", "mine": 1}
        whole["todos"].append({"id": "t3", "content": "c, outside", "status": "pending"})
        bench.write(whole)
        await bench.do(EditTodo(id="t1", status="completed"), AddTodo(content="d, here"))
        assert contents(bench.reading) == bench.on_disk == ["a, outside", "b", "c, outside", "d, here"]
        assert (bench.reading.todos[0].status, bench.reading.todos[0].extra) == ("completed", {"mine": 1})
        assert [todo.id for todo in bench.reading.todos] == ["t1", "t2", "t3", "t4"]


async def test_an_agent_that_rewrites_the_list_takes_no_notes_away(tmp_path: Path) -> None:
    async with Notes(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a", notes="why"), AddTodo(content="b", status="in_progress"))
        await bench.do(AddEvidence(kind="run", ref="4"))
        await bench.outside([{"content": "b", "status": "completed"}, {"content": "new", "status": "pending"}])
        assert [(todo.id, todo.content, todo.status) for todo in bench.reading.todos] == [
            ("t2", "b", "completed"),
            ("t3", "new", "pending"),
        ]
        assert bench.reading.todos[0].evidence[0].ref == "4"
        assert json.loads(bench.path.read_bytes())["todos"][0]["evidence"], "put back on disk too"
        assert [todo.notes for todo in bench.reading.gone] == ["why"]
        await bench.do(RestoreTodo(id="t1"))
        assert contents(bench.reading) == bench.on_disk == ["b", "new", "a"]
        assert bench.reading.gone == () and bench.reading.todos[2].notes == "why"


async def test_an_agent_that_knows_nothing_of_our_edits_does_not_take_them_back(tmp_path: Path) -> None:
    """TodoWrite sends the whole list from the agent's memory, each time."""
    plan = [{"content": word, "status": "pending"} for word in ("a", "b")]
    async with Notes(tmp_path).running() as bench:
        await bench.outside(plan)
        await bench.do(EditTodo(id="t1", status="cancelled", reason="no kernel"), AddTodo(content="c, ours"))
        for status in ("in_progress", "completed"):
            plan[1]["status"] = status
            await bench.outside(plan)
            assert [(todo.id, todo.content, todo.status) for todo in bench.reading.todos] == [
                ("t1", "a", "cancelled"),
                ("t2", "b", status),
                ("t3", "c, ours", "pending"),
            ]
            assert bench.on_disk == ["a", "b", "c, ours"] and bench.reading.gone == ()
        await bench.outside(
            [plan[1], {"content": "c, ours", "status": "completed"}, {"content": "d", "status": "pending"}]
        )
        assert [(todo.id, todo.status) for todo in bench.reading.todos if todo.status != "cancelled"] == [
            ("t2", "completed"),
            ("t3", "completed"),
            ("t4", "pending"),
        ]


async def test_an_edit_of_another_decodetop_that_an_agent_overwrote_at_once_is_not_lost(tmp_path: Path) -> None:
    plan = [{"content": word, "status": "pending"} for word in ("a", "b")]
    async with Notes(tmp_path).running() as bench:
        await bench.outside(plan)
        await bench.do(AddTodo(content="c, ours"))
        TodoStore(tmp_path).update(lambda document: model.add(document, AddTodo(content="d, cli"), 0)[0])
        plan[0]["status"] = "completed"
        await bench.outside(plan)
        assert sorted(bench.on_disk) == sorted(contents(bench.reading)) == ["a", "b", "c, ours", "d, cli"]
        assert bench.reading.todos[0].status == "completed"


@pytest.mark.parametrize("call", ["memory", "read_bytes"])
async def test_a_command_between_two_readings_of_a_screen_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The file and what is remembered beside it are read one after the other, and an agent overwrites the file then."""
    plan = [{"content": word, "status": "pending"} for word in ("a", "b")]
    real = getattr(TodoStore, call)

    def interrupted(self: TodoStore) -> Any:
        found = real(self)
        monkeypatch.setattr(TodoStore, call, real)
        TodoStore(tmp_path).update(lambda document: model.add(document, AddTodo(content="d, cli"), 0)[0])
        return found

    async with Notes(tmp_path).running() as bench:
        await bench.outside(plan)
        await bench.do(AddTodo(content="c, ours"))
        monkeypatch.setattr(TodoStore, call, interrupted)
        bench.write(plan)
        await bench.poll()
        await bench.outside([{**plan[0], "status": "completed"}, plan[1]])
        assert sorted(bench.on_disk) == sorted(contents(bench.reading)) == ["a", "b", "c, ours", "d, cli"]


async def test_an_editor_with_an_old_buffer_does_not_take_our_edits_back(tmp_path: Path) -> None:
    async with Notes(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"), AddTodo(content="b"))
        buffer = json.loads(bench.path.read_bytes())
        await bench.do(EditTodo(id="t1", status="completed"), AddTodo(content="c"))
        buffer["todos"][1]["content"] = "b, said better"
        await bench.outside(buffer)
        assert [(todo.content, todo.status) for todo in bench.reading.todos] == [
            ("a", "completed"),
            ("b, said better", "pending"),
            ("c", "pending"),
        ]
        assert bench.on_disk == ["a", "b, said better", "c"]


async def test_an_older_file_put_back_on_purpose_is_taken_as_it_is(tmp_path: Path) -> None:
    async with Notes(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"))
        backup = bench.path.read_bytes()
        await bench.do(EditTodo(id="t1", status="completed"), AddTodo(content="b"))
        await bench.outside(backup)
        assert [(todo.content, todo.status) for todo in bench.reading.todos] == [("a", "pending")]
        assert [todo.content for todo in bench.reading.gone] == ["b"]


async def test_undo_and_redo_keep_edits_made_outside(tmp_path: Path) -> None:
    async with Notes(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"), EditTodo(id="t1", status="completed"))
        whole = json.loads(bench.path.read_bytes())
        whole["todos"].append({"content": "outside"})
        await bench.outside(whole)
        await bench.do(UndoTodo())
        assert [(todo.content, todo.status) for todo in bench.reading.todos] == [
            ("a", "pending"),
            ("outside", "pending"),
        ]
        assert (bench.reading.undo_depth, bench.reading.redo_depth) == (1, 1)
        assert bench.notices[-1] == "undone: a is pending again"
        await bench.do(UndoTodo())
        assert bench.notices[-1] == "undone: a is gone"
        await bench.do(UndoTodo())
        assert contents(bench.reading) == bench.on_disk == ["outside"]
        assert bench.reading.gone == ()
        await bench.do(RedoTodo(), RedoTodo())
        assert bench.notices[-2:] == ["made again: a is back", "made again: a is completed again"]
        assert [(todo.id, todo.status) for todo in bench.reading.todos] == [("t1", "completed"), ("t2", "pending")]


async def test_a_file_gone_from_disk_keeps_the_list(tmp_path: Path) -> None:
    async with Notes(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"))
        bench.path.unlink()
        reading = await bench.poll()
        assert contents(reading) == ["a"]
        assert reading.problem is not None and "is gone from disk" in reading.problem
        assert not bench.path.exists()
        await bench.do(AddTodo(content="b"))
        assert bench.on_disk == ["a", "b"] and bench.reading.problem is None
