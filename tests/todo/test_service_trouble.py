"""The checklist when its file is broken, its disk refuses or hangs, and when decodetop leaves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.errors import DataError
from decodetop.todo import model
from decodetop.todo.reading import (
    AddTodo,
    EditTodo,
    TodoReading,
)
from decodetop.todo.service import BROKEN_GRACE_S, POLL_S
from decodetop.todo.store import TodoStore
from support.notebook import Notes, contents


async def test_a_half_written_file_keeps_the_last_good_list(tmp_path: Path) -> None:
    async with Notes(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"))
        data = bench.path.read_bytes()
        since = bench.clock.wall_ns()
        for half in (b"", data[:20]):
            reading = await bench.outside(half)
            assert contents(reading) == ["a"]
            assert reading.problem is not None and "is not a checklist" in reading.problem
            assert reading.problem_since_wall_ns == since
        assert (await bench.outside(data)).problem is None
        await bench.outside(data[:20])
        reading = await bench.do(AddTodo(content="b"))
        assert contents(reading) == ["a", "b"] and reading.unsaved == "the file is broken; tried again in a moment"
        assert bench.path.read_bytes() == data[:20], "whoever writes it may still be at it"
        reading = await bench.outside(data.replace(b'"a"', b'"a2"'))
        assert contents(reading) == bench.on_disk == ["a2", "b"]
        assert (reading.problem, reading.problem_since_wall_ns, reading.unsaved) == (None, None, None)
    assert not list(tmp_path.glob("*.broken-*"))


async def test_a_file_that_stays_broken_is_put_aside_before_an_edit_takes_its_place(tmp_path: Path) -> None:
    bench = Notes(tmp_path)
    broken = b'[{"content": "a", "id": "t7", "status": "pending"}, {"content"'
    bench.write(broken)
    async with bench.running():
        assert contents(bench.reading) == ["a"]
        assert bench.reading.problem is not None and bench.reading.problem.endswith("1 whole items are shown")
        await bench.do(AddTodo(content="b"))
        assert bench.path.read_bytes() == broken
        for _ in range(int(BROKEN_GRACE_S / POLL_S) + 1):
            await bench.poll()
        assert contents(bench.reading) == bench.on_disk == ["a", "b"]
        assert (bench.reading.problem, bench.reading.unsaved) == (None, None)
    assert (tmp_path / "todo.json.broken-1").read_bytes() == broken


async def test_what_cannot_be_written_stays_in_memory_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Notes(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"))

        def full(*args: Any, **more: Any) -> Any:
            raise DataError("can't write todo.json: No space left on device", "free some space")

        monkeypatch.setattr(TodoStore, "save", full)
        reading = await bench.do(AddTodo(content="b"))
        assert contents(reading) == ["a", "b"] and bench.on_disk == ["a"]
        assert reading.unsaved == "can't write todo.json: No space left on device (free some space)"
        whole = json.loads(bench.path.read_bytes())
        whole["todos"].append({"id": "t2", "content": "outside", "status": "pending"})
        await bench.outside(whole)
        monkeypatch.undo()
        reading = await bench.poll()
        assert reading.unsaved is None
        assert contents(reading) == bench.on_disk == ["a", "outside", "b"]


async def test_a_newer_schema_is_shown_and_edits_are_refused(tmp_path: Path) -> None:
    bench = Notes(tmp_path)
    bench.write({"schema": 2, "todos": [{"id": "t1", "content": "later", "status": "pending"}]})
    data = bench.path.read_bytes()
    async with bench.running():
        assert contents(bench.reading) == ["later"]
        assert bench.reading.problem is not None and "schema 2" in bench.reading.problem
        await bench.do(EditTodo(id="t1", status="completed"))
        assert bench.reading.todos[0].status == "pending" and bench.reading.unsaved is None
    assert bench.path.read_bytes() == data
    assert "leaves it alone" in bench.notices[0]


async def test_a_disk_that_does_not_answer_is_a_word(tmp_path: Path) -> None:
    async with Notes(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"))
        bench.caller.stuck = True
        await bench.do(AddTodo(content="b"))
        await bench.clock.advance(6)
        assert bench.reading.problem is not None and "does not answer" in bench.reading.problem
        await bench.clock.advance(6)
        assert contents(bench.reading) == ["a", "b"] and bench.reading.unsaved is not None
        bench.caller.stuck = False
        await bench.clock.advance(12)
        assert bench.on_disk == ["a", "b"] and bench.reading.unsaved is None and bench.reading.problem is None


async def test_halves_of_surrogates_break_neither_tape_nor_file(tmp_path: Path) -> None:
    odd = "a\ud83d"
    async with Notes(tmp_path).running() as bench:
        await bench.outside({"title": odd, "todos": [{"content": odd, "mine": [odd], "attempts": [{"change": odd}]}]})
        await bench.do(EditTodo(id="t1", status="completed"))
        assert msgspec.json.decode(msgspec.json.encode(bench.reading), type=TodoReading) == bench.reading
        assert (bench.reading.title, bench.reading.todos[0].content) == ("a?", "a?")
    assert json.loads(bench.path.read_bytes())["todos"][0]["mine"] == [odd]


async def test_an_edit_is_on_disk_when_leaving_at_once(tmp_path: Path) -> None:
    """A key press and then quit in one breath: the command's handler has not even begun."""
    bench = Notes(tmp_path)
    async with bench.running():
        bench.engine.submit(AddTodo(content="a"))
        await asyncio.sleep(0)
    assert bench.on_disk == ["a"]


async def test_leaving_waits_for_a_write_under_way_and_writes_what_is_left(tmp_path: Path) -> None:
    bench = Notes(tmp_path)
    async with bench.running():
        await bench.do(AddTodo(content="a"))
        bench.caller.busy = True
        await bench.do(AddTodo(content="b"))
        assert bench.on_disk == ["a"] and bench.reading.unsaved is not None
    assert bench.on_disk == ["a", "b"]


@pytest.mark.parametrize("first", ["poll", "save"])
async def test_an_edit_made_before_the_file_could_be_read_joins_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The file becomes readable again, and the poll or the edit's own save is the first to find out."""
    TodoStore(tmp_path).update(lambda document: model.add(document, AddTodo(content="held"), 0)[0])
    read, save, denied = TodoStore.read_bytes, TodoStore.save, [True]

    def read_bytes(self: TodoStore) -> bytes | None:
        if denied:
            raise DataError("can't read todo.json: Permission denied")
        return read(self)

    def save_at_last(self: TodoStore, *args: Any) -> Any:
        denied.clear()
        return save(self, *args)

    monkeypatch.setattr(TodoStore, "read_bytes", read_bytes)
    if first == "save":
        monkeypatch.setattr(TodoStore, "save", save_at_last)
    async with Notes(tmp_path).running() as bench:
        assert bench.reading.problem == "can't read todo.json: Permission denied"
        await bench.do(AddTodo(content="new"))
        denied.clear()
        reading = await bench.poll()
        assert (reading.problem, reading.unsaved) == (None, None)
        assert sorted(contents(reading)) == sorted(bench.on_disk) == ["held", "new"]
        assert len({todo.id for todo in reading.todos}) == 2
