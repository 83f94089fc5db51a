"""The checklist as a source: edits, what is shown of them, soft words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine
from decodetop.todo import model
from decodetop.todo import service as service_module
from decodetop.todo.reading import (
    AddAttempt,
    AddEvidence,
    AddTodo,
    EditTodo,
    ImportTodos,
    MoveTodo,
    TodoReading,
)
from decodetop.todo.service import TodoService
from decodetop.todo.store import TodoStore
from support.clock import settle
from support.notebook import Notes, contents
from support.probes import HEADER, Sink
from support.running import running


async def test_a_folder_that_is_not_there_is_an_empty_list(tmp_path: Path) -> None:
    async with Notes(tmp_path / "inv").running() as bench:
        assert bench.reading == TodoReading(path=str(bench.path))
    assert not bench.path.parent.exists()


async def test_every_edit_is_shown_and_on_disk(tmp_path: Path) -> None:
    async with Notes(tmp_path).running() as bench:
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
    async with Notes(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a"))
        await bench.poll()
        await bench.do(AddEvidence(kind="run", ref="4"))
        bench.watched.changed.set()  # our own write
        await settle()
    seen = [sample.reading.revision for sample in bench.sink.of("todo") if isinstance(sample.reading, TodoReading)]
    assert seen == [0, 1]


async def test_a_pasted_block_is_merged_and_the_outcome_said(tmp_path: Path) -> None:
    async with Notes(tmp_path).running() as bench:
        await bench.do(ImportTodos(text='plan: [{"content": "a", "status": "pending"}, {"content": "b", "sta'))
        assert contents(bench.reading) == bench.on_disk == ["a"]
        await bench.do(ImportTodos(text="nothing"))
    assert bench.notices == [
        "import: 1 added, 0 changed, 0 as they were; the list is cut off: its first 1 whole items are read",
        "no checklist in the text",
    ]


async def test_soft_words(tmp_path: Path) -> None:
    async with Notes(tmp_path).running() as bench:
        await bench.do(AddTodo(content="a", status="in_progress"), AddTodo(content="b"))
        await bench.do(EditTodo(id="t2", status="in_progress"), EditTodo(id="t2", status="completed"))
        await bench.do(EditTodo(id="t1", status="cancelled", reason="no such kernel"), EditTodo(id="t9", content="x"))
    assert bench.notices == [
        "in progress beside a: b",
        "closed with no word of why: b",
        "no item 't9' in the checklist",
    ]


async def test_the_title_is_the_question_of_the_investigation(tmp_path: Path) -> None:
    question = tmp_path / "investigation.json"
    question.write_text('{"schema": 1, "question": "why 51 tok/s?"}')
    async with Notes(tmp_path).running() as bench:
        assert bench.reading.title == "why 51 tok/s?"
        question.write_text("{")
        assert (await bench.poll()).title is None
        assert bench.reading.problem is not None and "investigation.json is not JSON" in bench.reading.problem
        question.unlink()
        assert (await bench.poll()).problem is None
        assert (await bench.outside({"title": "why 10.5 tok/s?", "todos": []})).title == "why 10.5 tok/s?"


async def test_the_real_watch_and_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the real clock and disk: an atomic rename outside is seen by the watch, with the poll out of the way."""
    monkeypatch.setattr(service_module, "POLL_S", 600.0)
    engine = Engine(HEADER, SystemClock(), services=[TodoService(tmp_path)])
    seen: asyncio.Queue[TodoReading] = asyncio.Queue()
    engine.subscribe(
        lambda sample: seen.put_nowait(sample.reading) if isinstance(sample.reading, TodoReading) else None
    )

    async def until(condition: Callable[[TodoReading], bool]) -> TodoReading:
        while not condition(reading := await seen.get()):
            pass
        return reading

    async with asyncio.timeout(20), running(engine, Sink()):
        await until(lambda reading: True)
        engine.submit(AddTodo(content="a"))
        await until(lambda reading: contents(reading) == ["a"])
        TodoStore(tmp_path).update(lambda document: model.add(document, AddTodo(content="b"), 0)[0])
        assert sorted(contents(await until(lambda reading: len(reading.todos) == 2))) == ["a", "b"]
