"""The keys of the checklist: each edit is a command, and what needs a word asks for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from decodetop.core.clock import SECOND_NS
from decodetop.core.state import State
from decodetop.log.reading import Entry, LogReading
from decodetop.todo.reading import (
    AddAttempt,
    AddTodo,
    Attempt,
    EditTodo,
    Evidence,
    MoveTodo,
    RedoTodo,
    StatusChange,
    Todo,
    UndoTodo,
)
from decodetop_tui.screens.choose import Choose
from decodetop_tui.screens.confirm import Confirm
from decodetop_tui.screens.line import AskLine
from decodetop_tui.screens.modal import Entry as Line_
from support import states
from support.face import Desk, desk


def with_todos(*todos: Todo) -> State:
    return states.put(states.box(), {"todo": states.todos(todos)}, 61)


async def test_todo_keys_send_commands_for_the_item_under_the_cursor() -> None:
    async with desk() as d:
        await d.press("3", "j")
        await d.press("*", "J", "K", "u")
        assert d.sent == [
            EditTodo(id="t2", priority="medium"),
            MoveTodo(id="t2", by=1),
            MoveTodo(id="t2", by=-1),
            UndoTodo(),
        ]


async def test_redo_needs_something_taken_back() -> None:
    async with desk() as d:
        await d.press("U")
        assert d.sent == [] and "nothing to redo" in d.footer
        await d.show(states.put(d.feed.latest, {"todo": replace(states.todos(), redo_depth=1)}, 61))
        await d.press("U")
        assert d.sent == [RedoTodo()]


async def test_the_same_status_again_is_pending() -> None:
    async with desk() as d:
        await d.press("3", "G", "x", "g", "i")
        assert d.sent == [EditTodo(id="t5", status="pending"), EditTodo(id="t1", status="pending")]


async def test_todo_keys_need_the_pane_and_say_so() -> None:
    async with desk() as d:
        await d.press("x")
        assert d.sent == [] and "works on an item of the investigation" in d.footer


async def test_add_and_edit_ask_for_the_words() -> None:
    async with desk() as d:
        await d.press("a")
        await d.type(" try [fp8] ")
        await d.press("enter")
        assert d.sent == [AddTodo(content="try [fp8]")] and d.face.focused_name == "todo"
        await d.press("e")
        assert "Profile SGLang decode" in "".join(d.screen())
        await d.press("end", *" now", "enter")
        assert d.sent[-1] == EditTodo(id="t1", content="Profile SGLang decode: identify bottlenecks now")


async def test_the_cursor_goes_to_the_item_just_added() -> None:
    async with desk() as d:
        await d.press("3", "a", *"new", "enter")
        seen = states.todos()
        added = replace(seen, todos=(*seen.todos[:2], replace(seen.todos[0], id="t9", content="new"), *seen.todos[2:]))
        await d.show(states.put(d.feed.latest, {"todo": added}, 61))
        assert d.face.pane.cursor == "t9"


RUN = Evidence(kind="run", ref="4", summary="51.7 tok/s", wall_ns=20)
OLD_RUN = Evidence(kind="run", ref="3", summary="50.1 tok/s", wall_ns=5)


@pytest.mark.parametrize(("key", "status"), [("x", "completed"), ("X", "cancelled")])
async def test_closing_an_item_of_which_nothing_says_what_came_of_it_asks_why(key: str, status: str) -> None:
    async with desk() as d:
        await d.press("3", "j", key)
        assert isinstance(d.face.screen, AskLine) and "Break down step" in "".join(d.screen())
        await d.press("escape")
        assert d.sent == []
        await d.press(key, *" one cast ", "enter")
        assert d.sent == [EditTodo(id="t2", status=status, reason="one cast")]
        await d.press(key, "enter")
        assert d.sent[-1] == EditTodo(id="t2", status=status)


@pytest.mark.parametrize(
    "todo",
    [
        Todo(id="t1", content="a", evidence=(RUN,)),
        Todo(id="t1", content="a", attempts=(Attempt(change="x", outcome="failed"),)),
        Todo(id="t1", content="a", reason="known before"),
    ],
)
async def test_an_item_with_evidence_is_closed_at_once(todo: Todo) -> None:
    async with desk(with_todos(todo)) as d:
        await d.press("3", "x")
        assert d.sent == [EditTodo(id="t1", status="completed")]


async def start_second(d: Desk, answer: str) -> None:
    await d.press("3", "j", "i")
    assert isinstance(d.face.screen, Confirm) and "Profile SGLang decode" in "".join(d.screen())
    await d.press(answer)


async def test_a_second_item_in_progress_asks() -> None:
    both = EditTodo(id="t2", status="in_progress")
    async with desk() as d:
        await start_second(d, "escape")
        assert d.sent == []
    async with desk() as d:
        await start_second(d, "y")
        assert d.sent == [both]
    async with desk() as d:
        await start_second(d, "n")
        assert d.sent == [EditTodo(id="t1", status="pending"), both]
    async with desk(with_todos(Todo(id="t1", content="a"))) as d:
        await d.press("3", "i")
        assert d.sent == [EditTodo(id="t1", status="in_progress")]


async def test_an_attempt_is_three_questions_and_takes_along_what_was_measured_for_it() -> None:
    earlier = Attempt(change="before", outcome="worked", wall_ns=10)
    todo = Todo(id="t1", content="backend", evidence=(OLD_RUN, RUN), attempts=(earlier,))
    async with desk(with_todos(todo)) as d:
        await d.press("3", "t", *"--kv fp8", "enter")
        assert isinstance(d.face.screen, Choose)
        await d.press(*"fail", "enter")
        assert isinstance(d.face.screen, AskLine)
        await d.press(*"page_size == 64", "enter")
        assert d.sent == [
            AddAttempt(id="t1", change="--kv fp8", outcome="failed", reason="page_size == 64", links=("run 4",))
        ]
        assert not d.face.windowed and "PAUSED" not in d.top


@pytest.mark.parametrize(
    "typed", [("escape",), ("x", "enter", "escape"), ("x", "enter", "enter", "escape"), ("enter",)]
)
async def test_an_attempt_left_half_way_is_forgotten(typed: tuple[str, ...]) -> None:
    async with desk() as d:
        await d.press("3", "t", *typed)
        assert d.sent == [] and not d.face.windowed


async def test_details_are_chosen_by_name() -> None:
    async with desk() as d:
        await d.press("3", "E", *"hypo", "enter", *"the cast", "enter")
        assert d.sent == [EditTodo(id="t1", hypothesis="the cast")]
        await d.press("j", "j", "E", *"notes", "enter")
        assert "qk_nope_head_dim" in "".join(d.screen())
        await d.press("enter")
        assert len(d.sent) == 1, "nothing was changed"


async def test_blocked_by_is_set_and_taken_away() -> None:
    waiting = Todo(id="t2", content="b", blocked_by=("t1",), blocked=True)
    async with desk(with_todos(Todo(id="t1", content="a"), waiting, Todo(id="t3", content="c"))) as d:
        await d.press("3", "j", "E", *"blocked", "enter")
        assert "waits for it" in "".join(d.screen())
        await d.press("down", "enter")
        assert d.sent == [EditTodo(id="t2", blocked_by=("t1", "t3"))]
        await d.press("E", *"blocked", "enter", "enter")
        assert d.sent[-1] == EditTodo(id="t2", blocked_by=())


async def test_sub_items_go_below_the_one_above_and_out_again() -> None:
    part = Todo(id="t2", content="b", parent="t1", depth=1)
    async with desk(with_todos(Todo(id="t1", content="a"), part, Todo(id="t3", content="c"))) as d:
        await d.press("3", "G", ">")
        assert d.sent == [EditTodo(id="t3", parent="t1")]
        await d.press("k", "<")
        assert d.sent[-1] == EditTodo(id="t2", parent="")
        await d.press(">")
        assert len(d.sent) == 2 and "no item above it" in d.footer
        await d.press("g", "<")
        assert len(d.sent) == 2 and "no part of another" in d.footer


@pytest.mark.parametrize(("hour", "offered"), [(1, "kv_cache_dtype auto -> fp8"), (-3, "")])
async def test_an_attempt_begins_with_what_differed_at_the_servers_last_restart(hour: int, offered: str) -> None:
    started = StatusChange(status="in_progress", wall_ns=states.WALL_NS)
    restart = Entry(
        wall_ns=states.WALL_NS + hour * 3600 * SECOND_NS,
        kind="server",
        text="SGLang 0.5.15 dense-8b at http://x restarted: kv_cache_dtype auto -> fp8",
    )
    state = with_todos(Todo(id="t1", content="a", status="in_progress", status_history=(started,)))
    state = states.put(state, {"log": LogReading(path="log.ndjson", entries=(restart,))}, 61)
    async with desk(state) as d:
        await d.press("3", "t")
        assert d.face.screen.query_one(Line_).value == offered
