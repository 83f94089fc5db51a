"""The checklist of the investigation: what is in progress, what is next, what failed and why."""

from __future__ import annotations

from decodetop.core.state import State
from decodetop.todo.reading import Todo, TodoReading
from decodetop_tui.paint import Picture, Span, View
from decodetop_tui.panes._cells import cells, clip, pad, wrap
from decodetop_tui.panes._page import INDENT, Page, note_of, trouble

TITLE = "investigation"
KEY = "3"
SOURCES: tuple[str, ...] = ("todo",)
MODES: tuple[str, ...] = ("all", "open")

_MARKS = {
    "in_progress": ("▶", "loud", "loud"),
    "pending": ("○", "", ""),
    "completed": ("✓", "good", "dim"),
    "cancelled": ("✗", "warn", "dim"),
}
"""Status -> mark, its style, the style of the words."""
_PRIORITIES = {"high": ("high", "warn"), "medium": ("med", "dim"), "low": ("low", "dim")}
_DONE = ("completed", "cancelled")


def want(state: State, width: int) -> tuple[int, int]:
    """Three items at least; wanted: all of them and the notes of those in progress."""
    reading = state.last("todo", TodoReading)
    if reading is None or not reading.todos:
        return 1, 3
    notes = sum(1 for todo in reading.todos if todo.status == "in_progress" and todo.notes)
    return min(3, len(reading.todos)), len(reading.todos) + notes + len(_problems(reading))


def draw(state: State, view: View) -> Picture:
    page = Page(view)
    page.extend(trouble(state, "todo"))
    reading = state.last("todo", TodoReading)
    if reading is None:
        return page.picture(note_of(state, "todo", view.width))
    page.extend(_problems(reading))
    shown = _shown(reading, view)
    if not shown:
        page.extend(_nothing(reading, view))
        return page.picture(note_of(state, "todo", view.width, *_note(reading)))
    head = len(page.lines)
    room = view.height - head
    notes = view.zoomed or len(shown) + sum(todo.status == "in_progress" for todo in shown) <= room
    if view.cursor is None and not view.zoomed:
        shown = _window(shown, room)
    for todo in shown:
        _item(page, todo, view, notes=view.zoomed or (notes and todo.status == "in_progress"))
    return page.picture(note_of(state, "todo", view.width, *_note(reading)), head if view.focused else 0)


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
    return [
        todo
        for todo in reading.todos
        if not (open_only and todo.status in _DONE)
        and wanted in f"{todo.content}\n{todo.notes or ''}\n{todo.status}\n{todo.priority or ''}".lower()
    ]


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


def _note(reading: TodoReading) -> list[str]:
    done = sum(todo.status in _DONE for todo in reading.todos)
    return [f"{done}/{len(reading.todos)} closed" if reading.todos else "", clip(reading.title or "", 40)]


def _item(page: Page, todo: Todo, view: View, *, notes: bool) -> None:
    """Mark, words, priority at the right; zoomed, long words wrap and the notes follow."""
    mark, mark_style, style = _MARKS.get(todo.status, ("?", "warn", ""))
    tag, tag_style = _PRIORITIES.get(todo.priority or "", (clip(todo.priority or "", 8), "dim"))
    if todo.status in _DONE:
        tag_style = "dim"
    foreign = f" [{todo.status}]" if todo.status not in _MARKS else ""
    tag_room = max(4, cells(tag)) if view.width >= 24 else 0
    room = max(1, view.width - 4 - tag_room - 2)
    marked = Span("*", "key") if todo.id in view.marks else Span(" ")
    lines = wrap(todo.content + foreign, room, 8 if view.zoomed else 1) or ["(no words)"]
    for at, text in enumerate(lines):
        lead = Span(f"{mark} ", mark_style) if at == 0 else Span("  ")
        last = Span("  " + pad(tag, tag_room, ">"), tag_style) if at == 0 and tag_room else Span("")
        page.add(Span(" "), marked, lead, Span(pad(text, room), style), last, row=todo.id)
    if notes and todo.notes:
        for text in wrap(todo.notes, room, 12 if view.zoomed else 1):
            page.add(Span("    "), Span(text, "dim"), row=todo.id)
