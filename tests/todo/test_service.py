"""The checklist as a source: edits, outside edits, trouble with the disk, and leaving."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine
from decodetop.core.sample import Command, Notice
from decodetop.errors import DataError
from decodetop.todo import model
from decodetop.todo import service as service_module
from decodetop.todo.reading import (
    AddAttempt,
    AddEvidence,
    AddTodo,
    EditTodo,
    ImportTodos,
    MoveTodo,
    RedoTodo,
    RestoreTodo,
    TodoReading,
    UndoTodo,
)
from decodetop.todo.service import BROKEN_GRACE_S, POLL_S, TodoService
from decodetop.todo.store import TodoStore
from support.clock import ManualClock, settle
from support.disk import Inline, Watched
from support.probes import HEADER, Sink


class Bench:
    """The service in an engine on a manual clock, its file and what it said."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "todo.json"
        self.clock = ManualClock()
        self.caller = Inline()
        self.watched = Watched()
        self.service = TodoService(folder, self.watched, lambda: self.caller)
        self.engine = Engine(HEADER, self.clock, services=[self.service])
        self.sink = Sink()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Bench]:
        task = asyncio.ensure_future(self.engine.run(self.sink))
        await settle()
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def do(self, *commands: Command) -> TodoReading:
        for command in commands:
            self.engine.submit(command)
        await settle()
        return self.reading

    async def outside(self, value: Any) -> TodoReading:
        """Another program writes the file, and the watch speaks."""
        self.write(value)
        self.watched.changed.set()
        await settle()
        return self.reading

    async def poll(self) -> TodoReading:
        await self.clock.advance(POLL_S)
        return self.reading

    def write(self, value: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())

    @property
    def reading(self) -> TodoReading:
        reading = self.engine.state.last("todo", TodoReading)
        assert reading is not None
        return reading

    @property
    def notices(self) -> list[str]:
        return [sample.reading.message for sample in self.sink.of("notice") if isinstance(sample.reading, Notice)]

    @property
    def on_disk(self) -> list[str]:
        return [item["content"] for item in json.loads(self.path.read_bytes())["todos"]]


def contents(reading: TodoReading) -> list[str]:
    return [todo.content for todo in reading.todos]


async def test_a_folder_that_is_not_there_is_an_empty_list(tmp_path: Path) -> None:
    async with Bench(tmp_path / "inv").running() as bench:
        assert bench.reading == TodoReading(path=str(bench.path))
    assert not bench.path.parent.exists()


async def test_every_edit_is_shown_and_on_disk(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"), AddTodo(content="b"), AddTodo(content="c"))
        await bench.do(EditTodo(id="t1", status="in_progress"), MoveTodo(id="t3", by=-2))
        await bench.do(AddAttempt(id="t1", change="x", outcome="failed"), AddEvidence(kind="run", ref="4"))
        assert contents(bench.reading) == bench.on_disk == ["c", "a", "b"]
        todo = bench.reading.todos[1]
        assert (todo.status, todo.attempts[0].outcome, todo.evidence[0].ref) == ("in_progress", "failed", "4")
        assert [change.wall_ns for change in todo.status_history] == [bench.clock.wall_ns()] * 2
        assert (bench.reading.unsaved, bench.reading.problem, bench.reading.undo_depth) == (None, None, 7)
    assert bench.notices == []


async def test_revisions_count_up_and_a_reading_comes_only_when_something_changed(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"))
        await bench.poll()
        await bench.do(AddEvidence(kind="run", ref="4"))
        bench.watched.changed.set()  # our own write
        await settle()
    seen = [sample.reading.revision for sample in bench.sink.of("todo") if isinstance(sample.reading, TodoReading)]
    assert seen == [0, 1]


async def test_an_outside_edit_is_seen_by_the_watch_and_by_the_poll(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as bench:
        assert contents(await bench.outside([{"content": "a"}])) == ["a"]
        bench.write([{"content": "a", "status": "completed"}, {"content": "b"}])
        assert contents(await bench.poll()) == ["a", "b"]
        assert bench.reading.todos[0].status == "completed"


async def test_outside_and_own_edits_come_together(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as bench:
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
    async with Bench(tmp_path).running() as bench:
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
    async with Bench(tmp_path).running() as bench:
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
    async with Bench(tmp_path).running() as bench:
        await bench.outside(plan)
        await bench.do(AddTodo(content="c, ours"))
        TodoStore(tmp_path).update(lambda document: model.add(document, AddTodo(content="d, cli"), 0)[0])
        plan[0]["status"] = "completed"
        await bench.outside(plan)
        assert sorted(bench.on_disk) == sorted(contents(bench.reading)) == ["a", "b", "c, ours", "d, cli"]
        assert bench.reading.todos[0].status == "completed"


async def test_an_editor_with_an_old_buffer_does_not_take_our_edits_back(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as bench:
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
    async with Bench(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"))
        backup = bench.path.read_bytes()
        await bench.do(EditTodo(id="t1", status="completed"), AddTodo(content="b"))
        await bench.outside(backup)
        assert [(todo.content, todo.status) for todo in bench.reading.todos] == [("a", "pending")]
        assert [todo.content for todo in bench.reading.gone] == ["b"]


async def test_undo_and_redo_keep_edits_made_outside(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as bench:
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


async def test_a_pasted_block_is_merged_and_the_outcome_said(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as bench:
        await bench.do(ImportTodos(text='plan: [{"content": "a", "status": "pending"}, {"content": "b", "sta'))
        assert contents(bench.reading) == bench.on_disk == ["a"]
        await bench.do(ImportTodos(text="nothing"))
    assert bench.notices == [
        "import: 1 added, 0 changed, 0 as they were; the list is cut off: its first 1 whole items are read",
        "no checklist in the text",
    ]


async def test_soft_words(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a", status="in_progress"), AddTodo(content="b"))
        await bench.do(EditTodo(id="t2", status="in_progress"), EditTodo(id="t2", status="completed"))
        await bench.do(EditTodo(id="t1", status="cancelled", reason="no such kernel"), EditTodo(id="t9", content="x"))
    assert bench.notices == [
        "in progress beside a: b",
        "closed with no word of why: b",
        "no item 't9' in the checklist",
    ]


async def test_a_half_written_file_keeps_the_last_good_list(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as bench:
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
    bench = Bench(tmp_path)
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
    async with Bench(tmp_path).running() as bench:
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
    bench = Bench(tmp_path)
    bench.write({"schema": 2, "todos": [{"id": "t1", "content": "later", "status": "pending"}]})
    data = bench.path.read_bytes()
    async with bench.running():
        assert contents(bench.reading) == ["later"]
        assert bench.reading.problem is not None and "schema 2" in bench.reading.problem
        await bench.do(EditTodo(id="t1", status="completed"))
        assert bench.reading.todos[0].status == "pending" and bench.reading.unsaved is None
    assert bench.path.read_bytes() == data
    assert "leaves it alone" in bench.notices[0]


async def test_a_file_gone_from_disk_keeps_the_list(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"))
        bench.path.unlink()
        reading = await bench.poll()
        assert contents(reading) == ["a"]
        assert reading.problem is not None and "is gone from disk" in reading.problem
        assert not bench.path.exists()
        await bench.do(AddTodo(content="b"))
        assert bench.on_disk == ["a", "b"] and bench.reading.problem is None


async def test_a_disk_that_does_not_answer_is_a_word(tmp_path: Path) -> None:
    async with Bench(tmp_path).running() as bench:
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


async def test_the_title_is_the_question_of_the_investigation(tmp_path: Path) -> None:
    question = tmp_path / "investigation.json"
    question.write_text('{"schema": 1, "question": "why 51 tok/s?"}')
    async with Bench(tmp_path).running() as bench:
        assert bench.reading.title == "why 51 tok/s?"
        question.write_text("{")
        assert (await bench.poll()).title is None
        assert bench.reading.problem is not None and "investigation.json is not JSON" in bench.reading.problem
        question.unlink()
        assert (await bench.poll()).problem is None
        assert (await bench.outside({"title": "why 10.5 tok/s?", "todos": []})).title == "why 10.5 tok/s?"


async def test_halves_of_surrogates_break_neither_tape_nor_file(tmp_path: Path) -> None:
    odd = "a\ud83d"
    async with Bench(tmp_path).running() as bench:
        await bench.outside({"title": odd, "todos": [{"content": odd, "mine": [odd], "attempts": [{"change": odd}]}]})
        await bench.do(EditTodo(id="t1", status="completed"))
        assert msgspec.json.decode(msgspec.json.encode(bench.reading), type=TodoReading) == bench.reading
        assert (bench.reading.title, bench.reading.todos[0].content) == ("a?", "a?")
    assert json.loads(bench.path.read_bytes())["todos"][0]["mine"] == [odd]


async def test_an_edit_is_on_disk_when_leaving_at_once(tmp_path: Path) -> None:
    """A key press and then quit in one breath: the command's handler has not even begun."""
    bench = Bench(tmp_path)
    async with bench.running():
        bench.engine.submit(AddTodo(content="a"))
        await asyncio.sleep(0)
    assert bench.on_disk == ["a"]


async def test_leaving_waits_for_a_write_under_way_and_writes_what_is_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
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
    async with Bench(tmp_path).running() as bench:
        assert bench.reading.problem == "can't read todo.json: Permission denied"
        await bench.do(AddTodo(content="new"))
        denied.clear()
        reading = await bench.poll()
        assert (reading.problem, reading.unsaved) == (None, None)
        assert sorted(contents(reading)) == sorted(bench.on_disk) == ["held", "new"]
        assert len({todo.id for todo in reading.todos}) == 2


async def test_the_real_watch_and_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the real clock and disk: an atomic rename outside is seen by the watch, with the poll out of the way."""
    monkeypatch.setattr(service_module, "POLL_S", 600.0)
    engine = Engine(HEADER, SystemClock(), services=[TodoService(tmp_path)])
    seen: asyncio.Queue[TodoReading] = asyncio.Queue()
    engine.subscribe(
        lambda sample: seen.put_nowait(sample.reading) if isinstance(sample.reading, TodoReading) else None
    )
    task = asyncio.ensure_future(engine.run(Sink()))

    async def until(condition: Callable[[TodoReading], bool]) -> TodoReading:
        while not condition(reading := await seen.get()):
            pass
        return reading

    async with asyncio.timeout(20):
        await until(lambda reading: True)
        engine.submit(AddTodo(content="a"))
        await until(lambda reading: contents(reading) == ["a"])
        TodoStore(tmp_path).update(lambda document: model.add(document, AddTodo(content="b"), 0)[0])
        assert sorted(contents(await until(lambda reading: len(reading.todos) == 2))) == ["a", "b"]
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
