"""A diagnosis of a server on another host, and what a diagnosis leaves on the checklist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.cli import main
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine
from decodetop.core.sample import Header
from decodetop.diagnosis.reading import Diagnose
from decodetop.errors import UsageError
from decodetop.floor.reading import FloorReading, WhatIf
from decodetop.server.reading import Server
from decodetop.todo.reading import AddTodo, RedoTodo, TodoReading, UndoTodo
from decodetop.todo.service import TodoService
from decodetop.todo.store import TodoStore
from support.diagnose_desk import SERVER, Desk

FAR = msgspec.structs.replace(SERVER, endpoint="http://far.example:30000", local=False)


def unknown_card(server: Server | None, gpus: Any, problem: str | None) -> Any:
    raise UsageError("http://far.example:30000 runs on another host: its GPU is not known", "give its name: --gpu NAME")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_a_server_on_another_host_is_measured_and_what_can_not_be_done_is_said(desk: Desk) -> None:
    desk.told.server, desk.service.card = FAR, unknown_card

    async def work() -> None:
        desk.submit(Diagnose(endpoint=FAR.endpoint))
        await desk.until(lambda: not desk.reading.running and "skipped" in desk.statuses()[2:])

    await desk.play(work)
    assert desk.statuses() == ["done", "skipped", "skipped", "skipped"]
    assert (desk.bench.calls, desk.captures.calls) == (1, 0), "a trace that can't be read is not made"
    assert desk.reading.latest is not None and desk.reading.error is None
    steps, judge = desk.reading.latest.stages[1].words, desk.reading.latest.stages[2].words
    assert "copy them here and open them (o), or give --steps FILE" in steps
    assert "its GPU is not known" in judge and "--gpu NAME --model PATH" in judge
    said = desk.notices()[-1]
    assert said.message.startswith("run 1: 19.3 ms a token, one stream; not judged: ") and said.ring


async def test_a_server_on_another_host_is_judged_by_the_card_that_was_chosen(desk: Desk) -> None:
    desk.told.server, desk.service.card = FAR, unknown_card

    async def work() -> None:
        desk.engine.emit("floor", FloorReading(asked=WhatIf(gpu="H200")))
        desk.submit(Diagnose(endpoint=FAR.endpoint))
        await desk.until(lambda: desk.reading.latest is not None and desk.reading.latest.finished)

    await desk.play(work)
    assert desk.statuses() == ["done", "skipped", "done", "done"]
    assert desk.reading.latest is not None and desk.reading.latest.report is not None
    assert desk.reading.latest.report.hardware.name.startswith("H200")


async def test_the_command_refuses_a_card_that_is_not_known_before_it_measures(desk: Desk) -> None:
    desk.told.server, desk.service.card = FAR, unknown_card

    async def work() -> None:
        with pytest.raises(UsageError, match="its GPU is not known"):
            await desk.ask(endpoint=FAR.endpoint)

    await desk.play(work)
    assert desk.bench.calls == 0


async def test_what_a_diagnosis_put_on_the_list_is_taken_back_as_one_edit(desk: Desk, tmp_path: Path) -> None:
    """Where a screen shows the list by `u`, and what was edited since stays."""
    todo = TodoService(tmp_path)
    desk.engine = Engine(
        Header(version="0", host="box", started_wall_ns=0), SystemClock(), [desk.told], [desk.service, todo]
    )

    def listed() -> TodoReading:
        return desk.engine.state.last("todo", TodoReading) or TodoReading(path="")

    async def work() -> None:
        await desk.until(lambda: listed().revision >= 0)
        await desk.ask()
        await desk.until(lambda: len(listed().todos) > 1 and listed().undo_depth == 1)
        desk.submit(AddTodo(content="of the operator"))
        await desk.until(lambda: listed().undo_depth == 2)
        desk.submit(UndoTodo())
        desk.submit(UndoTodo())
        await desk.until(lambda: not listed().todos)
        desk.submit(RedoTodo())
        await desk.until(lambda: len(listed().todos) > 1)

    await desk.play(work)


async def test_without_a_screen_the_command_takes_it_back(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        await desk.ask()

    await desk.play(work)
    assert len(TodoStore(tmp_path).read().items) > 1
    assert main(["todo", "--investigation", str(tmp_path), "undo"]) == 0
    assert TodoStore(tmp_path).read().items == () and "is gone" in capsys.readouterr().out


async def test_a_checklist_that_can_not_be_written_costs_the_items_only(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "todo.json").mkdir()

    async def work() -> None:
        found = await desk.ask()
        assert found is not None and found.report is not None
        assert [one.status for one in found.stages] == ["done", "done", "done", "failed"]
        assert "todo.json" in found.stage("checklist").words
        (tmp_path / "todo.json").rmdir()
        again = await desk.ask()
        assert again is not None and [one.status for one in again.stages] == ["done"] * 4

    await desk.play(work)
    assert (desk.bench.calls, desk.captures.calls) == (1, 1), "the next start tries the items again, and nothing else"
