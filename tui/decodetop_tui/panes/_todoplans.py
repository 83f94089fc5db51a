"""Agents' plans beside one's own list: read-only rows that can be taken over."""

from __future__ import annotations

from collections.abc import Iterator

from decodetop.core import words
from decodetop.core.clock import SECOND_NS
from decodetop.core.state import State
from decodetop.todo.reading import CLOSED, FollowedPlan, FollowedTodo, FollowReading
from decodetop.todo.text import MARKS, UNKNOWN_MARK, status_words
from decodetop_tui.paint import Span, View
from decodetop_tui.panes._cells import cells, wrap
from decodetop_tui.panes._page import INDENT, Page

PLAN = "plan:"
"""How the rows of agents' plans begin."""

_STYLES = {"in_progress": "loud", "completed": "dim", "cancelled": "dim"}
_LEAD = 4


def row_of(plan: FollowedPlan, number: int | None = None) -> str:
    """The row of a plan, or of its item; numbers count within the plan."""
    row = f"{PLAN}{plan.agent}\0{plan.session}"
    return row if number is None else f"{row}\0{number}"


def found_at(reading: FollowReading | None, row: str | None) -> tuple[FollowedPlan, tuple[FollowedTodo, ...]] | None:
    """What a row means: a plan's whole list, or one item of it."""
    for plan in reading.plans if reading is not None and row and row.startswith(PLAN) else ():
        if row == row_of(plan):
            return plan, tuple(todo for todo in plan.todos if not todo.gone)
        for number, todo in enumerate(plan.todos):
            if row == row_of(plan, number):
                return plan, (todo,)
    return None


def plans(state: State) -> tuple[FollowedPlan, ...]:
    reading = state.last("follow", FollowReading)
    return reading.plans if reading is not None else ()


def counts(found: tuple[FollowedPlan, ...]) -> str:
    """`+2 agents`: how many plans stand beside the list; nothing when none does."""
    return f"+{len(found)} agent{'s' if len(found) > 1 else ''}" if found else ""


def draw_plans(page: Page, state: State, view: View, *, alone: bool) -> None:
    """`alone`: the pane shows nothing else, so that it says also what was looked for and not found."""
    reading = state.last("follow", FollowReading)
    failure = state.lane("follow").failure
    if failure is not None and alone:
        page.add(INDENT, Span("agents' plans", "bad"), Span(f": {failure.message}"))
    if reading is None:
        if alone and failure is None:
            page.add(INDENT, Span("no agent's plan was looked for yet", "dim"))
        return
    wanted = view.filter.lower()
    for plan in reading.plans:
        _plan(page, plan, state, view, wanted)
    for place, why in reading.reasons.items():
        page.add(INDENT, Span(f"{place}: ", "dim"), Span(why, "warn"))
    if alone and not reading.plans and not reading.reasons:
        page.add(INDENT, Span("no agent has a plan here", "dim"))
        for line in _places(reading, view):
            page.add(INDENT, Span(line, "dim"))


def _plan(page: Page, plan: FollowedPlan, state: State, view: View, wanted: str) -> None:
    done = sum(todo.status in CLOSED for todo in plan.todos if not todo.gone)
    age = (
        ""
        if plan.changed_wall_ns is None
        else f", {words.duration((state.wall_ns - plan.changed_wall_ns) / SECOND_NS)} ago"
    )
    whole = sum(not todo.gone for todo in plan.todos)
    page.blank()
    title = Span(f"{plan.agent} ", "title")
    page.add(INDENT, title, Span(f"{done}/{whole} closed{age}  {plan.path}", "dim"), row=row_of(plan))
    if plan.problem:
        page.add(INDENT, Span(plan.problem, "warn"))
    for number, todo in enumerate(plan.todos):
        if wanted in f"{todo.content} {todo.status}".lower():
            _item(page, todo, row_of(plan, number), view)


def _item(page: Page, todo: FollowedTodo, row: str, view: View) -> None:
    tail = "  gone" if todo.gone else "" if todo.status in MARKS else f"  {status_words(todo.status)}"
    room = max(1, view.width - _LEAD - cells(tail) - 1)
    style = "dim" if todo.gone else _STYLES.get(todo.status, "")
    for at, line in enumerate(wrap(todo.content, room, 3 if view.zoomed else 1) or ["(no words)"]):
        lead = f"{MARKS.get(todo.status, UNKNOWN_MARK)} " if at == 0 else "  "
        end = Span(tail if at == 0 else "", "warn" if todo.gone else "dim")
        page.add(INDENT, Span(lead, "dim" if todo.gone else style), Span(line, style), end, row=row)


def _places(reading: FollowReading, view: View) -> Iterator[str]:
    looked = ", ".join(reading.searched)
    yield from wrap(f"looked in {looked}; --follow PATH names another", max(1, view.width - 3), 4)
