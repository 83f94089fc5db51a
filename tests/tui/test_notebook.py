"""Notes, the log, agents' plans and other investigations, by keys."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from decodetop.core.clock import SECOND_NS
from decodetop.core.state import State
from decodetop.log.reading import AddNote, Entry, LogReading
from decodetop.todo.reading import (
    AddTodo,
    FollowedPlan,
    FollowedTodo,
    FollowReading,
    Investigation,
    InvestigationsReading,
    RestoreTodo,
    Switch,
)
from decodetop_tui.screens.choose import Choose
from support import states
from support.face import Desk, desk

PLAN = FollowedPlan(
    agent="Claude Code",
    session="s1",
    path="~/.claude/tasks/s1",
    changed_wall_ns=states.WALL_NS,
    todos=(
        FollowedTodo(content="Try [bold]fp8[/] KV", status="in_progress", priority="high"),
        FollowedTodo(content="break down  STEP: kernel, allreduce, scheduling", status="completed"),
        FollowedTodo(content="Old idea", status="pending", gone=True),
    ),
)
LOG = LogReading(
    path="/data/why/log.ndjson",
    entries=tuple(
        Entry(wall_ns=states.WALL_NS + at * 3600 * SECOND_NS, kind=kind, text=text)
        for at, kind, text in (
            (-20, "server", "SGLang restarted: disable_cuda_graph true -> default"),
            (-2, "run", "#4 single 51.7 tok/s"),
            (-1, "note", "reloaded the driver"),
        )
    ),
    total=103,
)


def with_notebook(**lanes: object) -> State:
    return states.put(states.box(), {"follow": FollowReading(plans=(PLAN,)), "log": LOG, **lanes}, 61)  # type: ignore[dict-item]


async def on_row(d: Desk, words: str) -> None:
    """The cursor on the row that shows these words."""
    await d.press("g")
    for _ in range(40):
        picture = d.face.pane._picture
        line = next(at for at, row in enumerate(picture.rows) if row == d.face.pane.cursor)
        if words in "".join(span.text for span in picture.lines[line]):
            return
        await d.press("j")
    raise AssertionError(f"no row with {words!r}")


async def test_agents_plans_stand_below_the_list_when_zoomed_and_are_counted_before() -> None:
    async with desk(with_notebook(), size=(117, 40)) as d:
        assert "2/5 closed · +1 agent" in "\n".join(d.screen())
        await d.press("3", "3")
        text = "\n".join(d.screen())
        assert "Profile SGLang decode" in text and "agents' plans" in text
        assert "Claude Code 1/2 closed, 1 m ago" in text and "Try [bold]fp8[/] KV" in text
        assert "Old idea  gone" in text


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
async def test_on_a_wide_screen_they_stand_beside_the_list(size: tuple[int, int]) -> None:
    async with desk(with_notebook(), size=size) as d:
        await d.press("3", "3")
        lines = d.screen()
        at = next(at for at, line in enumerate(lines) if "agents' plans" in line)
        assert at <= 3 and "│" in lines[at] and "→ leads there" in lines[at]
        own, theirs = (next(line for line in lines if words in line) for words in ("Try [bold]fp8", "Claude Code 1/2"))
        assert own.index("Try [bold]fp8") > size[0] // 2 and theirs.index("Claude Code") > size[0] // 2
        for _ in range(30):
            await d.press("j")
        assert not (d.face.pane.cursor or "").startswith("plan:"), "j stays in its column"
        await d.press("right")
        assert (d.face.pane.cursor or "").startswith("plan:")
        marked = next(line for line in d.screen() if "▌" in line)
        assert marked.index("▌") > marked.index("│"), "only that column is under the cursor"
        await on_row(d, "fp8")
        await d.press("A")
        assert [type(one) for one in d.sent] == [AddTodo]
        await d.press("left", "left")
        assert d.face.pane.cursor == next(one.id for one in states.TODOS if one.status == "in_progress")
        marked = next(line for line in d.screen() if "▌" in line)
        assert marked.index("▌") < marked.index("│")


async def test_one_key_takes_an_agents_item_over() -> None:
    async with desk(with_notebook(), size=(117, 40)) as d:
        await d.press("3", "A")
        assert d.sent == [] and "works on an agent's item" in d.footer
        await d.press("3")
        await on_row(d, "fp8")
        await d.press("A")
        taken = AddTodo(content="Try [bold]fp8[/] KV", priority="high", notes="from Claude Code's plan")
        assert d.sent == [taken] and "1 item taken" in d.footer
        await on_row(d, "closed,")
        await d.press("A")
        assert d.sent == [taken, taken], "the whole plan, without what is gone and what is in the list"
        assert "1 are in the list already" in d.footer


async def test_an_item_that_is_gone_is_put_back_by_the_same_key() -> None:
    gone = replace(states.todos(), gone=(replace(states.TODOS[0], id="t9", content="taken out"),))
    async with desk(with_notebook(todo=gone)) as d:
        await d.press("3", "3")
        await on_row(d, "taken out")
        await d.press("A")
        assert d.sent == [RestoreTodo(id="t9")]


async def test_keys_of_ones_own_items_leave_an_agents_alone() -> None:
    async with desk(with_notebook(), size=(117, 40)) as d:
        await d.press("3", "3")
        await on_row(d, "fp8")
        for key in ("x", "i", "e", "X", "t", "*", "J"):
            await d.press(key)
            assert not d.face.windowed and d.sent == [] and "no item under the cursor" in d.footer, key


async def test_the_log_newest_first_with_its_days_and_back() -> None:
    async with desk(with_notebook()) as d:
        await d.press("L")
        lines = [line.strip() for line in d.screen()]
        order = [
            next(at for at, line in enumerate(lines) if word in line) for word in ("reloaded", "#4 single", "Sun 2026")
        ]
        assert order == sorted(order) and "Mon 2026-11-30" in "\n".join(lines)
        assert "100 older: decodetop log" in "\n".join(lines)
        await d.press("/", *"driver", "enter")
        assert "reloaded" in "\n".join(d.screen()) and "#4 single" not in "\n".join(d.screen())
        await d.press("escape", "L")
        assert not d.face.zoomed and "Profile SGLang" in "\n".join(d.screen())


async def test_what_is_wrong_with_the_log_stands_on_top() -> None:
    broken = replace(LOG, unsaved="No space left on device", problem="2 lines can't be read")
    async with desk(with_notebook(log=broken)) as d:
        await d.press("L")
        text = "\n".join(d.screen())
        assert "not saved, kept in memory: No space left" in text and "2 lines can't be read" in text


async def test_a_note_is_about_the_item_under_the_cursor_or_about_nothing() -> None:
    async with desk() as d:
        await d.press("n", *" hot ", "enter")
        assert d.sent == [AddNote(text="hot")]
        await d.press("3", "n", *"slow", "enter")
        assert d.sent[-1] == AddNote(text="slow", item="t1")
        await d.press("n", "enter")
        assert len(d.sent) == 2


FOUND = InvestigationsReading(
    root="/data",
    found=(
        Investigation(name="why-51", path="/data/why-51", question="why 51 tok/s?", todos=5, closed=2, current=True),
        Investigation(name="ttft", path="/data/ttft", question="why is TTFT 2 s?", todos=3, closed=3),
        Investigation(name="old", path="/data/old", archived=True),
    ),
)


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        (("t", "t", "f", "t", "enter"), Switch(path="/data/ttft")),
        ((*"new", "enter", *"why slow?", "enter"), Switch(question="why slow?")),
        (("enter",), None),
        (("escape",), None),
    ],
)
async def test_another_investigation_is_chosen_or_begun(typed: tuple[str, ...], chosen: Switch | None) -> None:
    async with desk(with_notebook(investigations=FOUND), switchable=True) as d:
        await d.press("I")
        assert isinstance(d.face.screen, Choose)
        text = "\n".join(d.screen())
        assert "why is TTFT 2 s?" in text and "/data/old" not in text and "3/3" in text
        await d.press(*typed)
        assert d.face.chosen == chosen


async def test_a_running_benchmark_belongs_to_its_investigation() -> None:
    busy = with_notebook(investigations=FOUND, bench=states.bench(states.progress()))
    async with desk(busy, switchable=True) as d:
        await d.press("I")
        assert not d.face.windowed and "it belongs to this one" in d.footer
    async with desk(with_notebook(investigations=FOUND)) as d:
        await d.press("I")
        assert not d.face.windowed and "the demo has one" in d.footer
