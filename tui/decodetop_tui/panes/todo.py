"""The checklist of the investigation: what is in progress, what is next, what failed and why."""

from __future__ import annotations

from decodetop.core.state import State
from decodetop.todo import text
from decodetop.todo.reading import CLOSED, Evidence, Todo, TodoReading
from decodetop_tui.paint import Filter, Picture, Span, View
from decodetop_tui.panes._cells import cells, clean, clip, clip_middle, exactly, pad, wrap
from decodetop_tui.panes._page import INDENT, Page, beside, note_of, trouble
from decodetop_tui.panes._todolog import draw_log, draw_tail
from decodetop_tui.panes._todoplans import PLAN, counts, draw_plans, plans, row_of

TITLE = "investigation"
KEY = "3"
SOURCES: tuple[str, ...] = ("todo", "follow", "log")
MODES: tuple[str, ...] = ("all", "open", "log", "agents")
FILTER: Filter | None = Filter("items")

_STYLES = {
    "in_progress": ("loud", "loud"),
    "pending": ("", ""),
    "completed": ("good", "dim"),
    "cancelled": ("warn", "dim"),
}
"""Status -> the style of its mark and of its words."""
_OUTCOMES = {"worked": "good", "failed": "bad", "regressed": "bad"}
_PRIORITIES = {"high": ("high", ""), "medium": ("med", "dim"), "low": ("low", "dim")}
_DONE = CLOSED
GONE = "gone:"
"""How the rows of items begin that an outside edit took out."""
REF_MOST = 24
"""Cells of what names a piece of evidence: a capture's id is long and says little."""
BESIDE_FROM = 118
"""Cells of a pane that has room for two columns: a screen of 120."""
LIST_SHARE = 0.58
SUBJECT_FREE = 40
"""Cells of the title row kept for the pane's own title and its notes."""


def want(state: State, width: int) -> tuple[int, int]:
    """Three items at least; wanted: all of them and a word below those in progress."""
    reading = state.last("todo", TodoReading)
    if reading is None or not reading.todos:
        return 1, 3
    below = sum(1 for todo in reading.todos if todo.status == "in_progress" and _latest(todo))
    wrong = len(_problems(reading))
    return min(3, len(reading.todos)) + wrong, len(reading.todos) + below + wrong


def draw(state: State, view: View) -> Picture:
    page = Page(view)
    mode = MODES[view.mode % len(MODES)]
    if mode in ("log", "agents"):
        return _other(page, state, view, mode)
    page.extend(trouble(state, "todo", view))
    reading = state.last("todo", TodoReading)
    if reading is None:
        return page.picture(note_of(state, "todo", view.width))
    page.extend(_problems(reading))
    shown = _shown(reading, view)
    head = len(page.lines)
    if not shown:
        page.extend(_nothing(reading, view))
    if view.cursor is None and not view.zoomed:
        shown = _window(shown, view.height - head)
    depth = len(_DEPTHS) - 1 if view.zoomed else _depth_that_fits(shown, view, view.height - head)
    if stands_beside(state, view):
        return _two_columns(page, state, view, reading, shown)
    _list(page, shown, view, depth)
    if view.zoomed:
        _gone(page, reading)
        _agents(page, state, view)
    elif shown and not view.filter:
        draw_tail(page, state, view)
    return _pictured(page, state, view, head)


def _list(page: Page, shown: list[Todo], view: View, depth: int) -> None:
    for todo in shown:
        _item(page, todo, view, why=depth < len(_DEPTHS) - 1)
        _below(page, todo, depth)


def stands_beside(state: State, view: View) -> bool:
    """Whether agents' plans have a column of their own beside the list."""
    listed = MODES[view.mode % len(MODES)] in ("all", "open")
    return listed and view.zoomed and view.width >= BESIDE_FROM and bool(plans(state))


def other_column(state: State, view: View) -> str | None:
    """The row to go to in the column the cursor is not in."""
    if (view.cursor or "").startswith(PLAN):
        reading = state.last("todo", TodoReading)
        shown = _shown(reading, view) if reading is not None else []
        return next((todo.id for todo in shown if todo.status == "in_progress"), shown[0].id if shown else None)
    return row_of(plans(state)[0])


def _two_columns(page: Page, state: State, view: View, reading: TodoReading, shown: list[Todo]) -> Picture:
    """The list, and agents' plans beside it; rows are those of the column the cursor is in."""
    head = len(page.lines)
    left_view = view._replace(width=round(view.width * LIST_SHARE))
    right_view = view._replace(width=view.width - left_view.width - 1)
    left, right = Page(left_view), Page(right_view)
    _list(left, shown, left_view, len(_DEPTHS) - 1)
    _gone(left, reading)
    there = (view.cursor or "").startswith(PLAN)
    word = "  A takes a row over, ← leads back" if there else "  read-only; → leads there"
    right.heading("agents' plans", Span(word, "dim"))
    draw_plans(right, state, right_view, alone=False)
    column = beside(page, left, right, rows_of=right if there else left)
    return _pictured(page, state, view, head)._replace(column=column)


def _other(page: Page, state: State, view: View, mode: str) -> Picture:
    """The log, or agents' plans, in the place of the list."""
    if mode == "log":
        draw_log(page, state, view)
    else:
        draw_plans(page, state, view, alone=True)
    return _pictured(page, state, view, 0)


def _pictured(page: Page, state: State, view: View, head: int) -> Picture:
    """With the question behind the title, and how far the list is."""
    reading = state.last("todo", TodoReading)
    done = _note(reading) if reading is not None else ""
    picture = page.picture(note_of(state, "todo", view.width, done, counts(plans(state))), head)
    title = clean(reading.title or "") if reading is not None else ""
    return picture._replace(subject=clip(title, max(0, view.width - SUBJECT_FREE)) if title else "")


def _agents(page: Page, state: State, view: View) -> None:
    if plans(state):
        page.heading("agents' plans", Span("  read-only; A takes a row into the list", "dim"))
        draw_plans(page, state, view, alone=False)


_DEPTHS = ("words only", "a line below what is in progress", "all of what is in progress", "all of all")
"""How much stands below the items; a pane with rows to spare goes deeper."""


def _depth_that_fits(shown: list[Todo], view: View, room: int) -> int:
    best = 0
    for depth in range(1, len(_DEPTHS)):
        page = Page(view)
        for todo in shown:
            _below(page, todo, depth)
        if len(shown) + len(page.lines) > room:
            break
        best = depth
    return best


def _below(page: Page, todo: Todo, depth: int) -> None:
    running = todo.status == "in_progress"
    if depth == len(_DEPTHS) - 1 or (depth == 2 and running):
        _details(page, todo)
    elif depth == 1 and running and _latest(todo):
        page.add(Span("    " + "  " * min(todo.depth, 8)), Span(_latest(todo), "dim"), row=todo.id)


def _problems(reading: TodoReading) -> list[list[Span]]:
    lines = []
    if reading.problem is not None:
        lines.append([INDENT, Span("file not used", "bad"), Span(f": {reading.problem}")])
    if reading.unsaved is not None:
        lines.append([INDENT, Span("not saved", "bad"), Span(f", kept in memory: {reading.unsaved}")])
    return lines


def _shown(reading: TodoReading, view: View) -> list[Todo]:
    wanted = view.filter.lower()
    open_only = MODES[view.mode % len(MODES)] == "open"
    return [todo for todo in reading.todos if not (open_only and todo.status in _DONE) and wanted in _searched(todo)]


def _searched(todo: Todo) -> str:
    """All words of an item, shown or not."""
    attempts = [f"{one.change} {one.outcome} {one.reason or ''}" for one in todo.attempts]
    evidence = [_evidence(one) for one in todo.evidence]
    fields = (todo.content, todo.notes, todo.status, todo.priority, todo.hypothesis, todo.expected, todo.reason)
    parts = [*(field or "" for field in fields), *todo.blocked_by, *attempts, *evidence, *todo.conflicts]
    return " ".join(parts).lower()


def _nothing(reading: TodoReading, view: View) -> list[list[Span]]:
    if reading.todos and view.filter:
        return [[INDENT, Span(f"none of {len(reading.todos)} items matches /{view.filter}", "dim")]]
    if reading.todos:
        return [[INDENT, Span("✓ ", "good"), Span(f"all {len(reading.todos)} items are closed")]]
    return [
        [INDENT, Span("nothing to do yet")],
        [INDENT, Span("a", "key"), Span(" adds an item")],
        [INDENT, Span("decodetop todo import FILE takes a todowrite block", "dim")],
    ]


def _window(shown: list[Todo], room: int) -> list[Todo]:
    """In file order, the stretch of `room` items that holds the work in progress: seen without a key."""
    at = next((at for at, todo in enumerate(shown) if todo.status == "in_progress"), None)
    if at is None:
        at = next((at for at, todo in enumerate(shown) if todo.status not in _DONE), 0)
    start = max(0, min(at - (room > 2), len(shown) - room))
    return shown[start:]


def _note(reading: TodoReading) -> str:
    done = sum(todo.status in _DONE for todo in reading.todos)
    return f"{done}/{len(reading.todos)} closed" if reading.todos else ""


def _latest(todo: Todo) -> str:
    """The newest evidence, else the first line of the notes: one line below what is in progress."""
    if todo.evidence:
        return " · ".join(_evidence(one) for one in reversed(todo.evidence[-2:]))
    return (todo.notes or "").partition("\n")[0]


def _evidence(one: Evidence) -> str:
    """A capture with figures needs no name: its id is long, says little, and stands in the log and the report."""
    named = f"{one.kind} {clip_middle(one.ref, REF_MOST)}"
    return named if not one.summary else f"{one.kind if one.kind == 'capture' else named} {one.summary}"


def _why(todo: Todo) -> str:
    """Why a closed item was closed: its reason, its last failure, or the first line of its notes."""
    if todo.status not in _DONE:
        return ""
    failed = next((one.reason for one in reversed(todo.attempts) if one.reason), None)
    return todo.reason or failed or (todo.notes or "").partition("\n")[0]


def _item(page: Page, todo: Todo, view: View, *, why: bool) -> None:
    """Mark, words, priority at the right; a closed one says why. Zoomed, long words wrap."""
    mark_style, style = _STYLES.get(todo.status, ("warn", ""))
    tag, tag_style = _PRIORITIES.get(todo.priority or "", (clip(clean(todo.priority or ""), 8), "dim"))
    tag_style = "dim" if todo.status in _DONE else tag_style
    tag_room = max(4, cells(tag)) if view.width >= 24 else 0
    indent = "  " * min(todo.depth, 8)
    room = max(1, view.width - 6 - len(indent) - tag_room)
    words = todo.content + (f" [{todo.status}]" if todo.status not in _STYLES else "")
    lines = wrap(words, room, 8 if view.zoomed else 1) or ["(no words)"]
    for at, line in enumerate(lines):
        first = at == 0
        lead = Span(f"{text.mark(todo)} " if first else "  ", mark_style)
        marked = Span("*" if first and todo.id in view.marks else " ", "key")
        body = [Span(line, style)]
        if why and at == len(lines) - 1 and _why(todo):
            body = _with_why(line, style, clean(_why(todo)), room)
        last = Span("  " + pad(tag, tag_room, ">"), tag_style) if first and tag_room else Span("")
        page.add(Span(" "), marked, Span(indent), lead, *exactly(body, room), last, row=todo.id)


def _with_why(line: str, style: str, why: str, room: int) -> list[Span]:
    """Words and reason in one line; when both can't stand whole, the reason gets up to half of it."""
    kept = max(room - cells(why) - 2, room // 2)
    return [Span(clip(line, kept), style), Span(f": {why}", "dim")]


def _details(page: Page, todo: Todo) -> None:
    """What stands behind an item: what was expected, tried and found."""
    indent = "    " + "  " * min(todo.depth, 8)
    lines: list[tuple[str, str, str]] = [
        (name, getattr(todo, name) or "", "") for name in ("hypothesis", "expected", "reason")
    ]
    lines.append(("", todo.notes or "", "dim"))
    lines.append(("waits for", ", ".join(todo.blocked_by), "warn" if todo.blocked else "dim"))
    for attempt in todo.attempts:
        when = "" if attempt.wall_ns is None else f" ({text.when(attempt.wall_ns)})"
        why = f": {attempt.reason}" if attempt.reason else ""
        lines.append(("tried", f"{attempt.change}: {attempt.outcome}{why}{when}", _OUTCOMES.get(attempt.outcome, "")))
    lines += [("evidence", _evidence(one), "") for one in todo.evidence]
    lines += [("conflict", f"an outside edit wanted {one}", "warn") for one in todo.conflicts]
    for label, words, style in lines:
        lead = f"{label:<11}" if label else ""
        for at, line in enumerate(wrap(words, max(1, page.width - len(indent) - len(lead) - 1), 6)):
            page.add(Span(indent), Span(lead if at == 0 else " " * len(lead), "dim"), Span(line, style), row=todo.id)


def _gone(page: Page, reading: TodoReading) -> None:
    if not reading.gone:
        return
    page.heading("gone", Span("  taken out of the file by an outside edit", "dim"))
    for todo in reading.gone:
        page.add(INDENT, Span(f"{text.mark(todo)} {todo.content}", "dim"), row=f"{GONE}{todo.id}")
