"""The checklist in words: for the pane, the plain output and the report. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from decodetop.core.outside import escape, plain
from decodetop.core.words import UNKNOWN, utc_time
from decodetop.todo.reading import Attempt, Evidence, FollowReading, StatusChange, Todo, TodoReading

MARKS = {"in_progress": "▶", "pending": "○", "completed": "✓", "cancelled": "✗"}
BLOCKED_MARK = "◌"
"""Of an item to be done that waits for another one."""
UNKNOWN_MARK = "?"
"""Of a status nobody here knows; it is written out behind the words."""

_BOXES = {"completed": "[x]", "cancelled": "[x]"}


def mark(todo: Todo) -> str:
    if todo.blocked and todo.status == "pending":
        return BLOCKED_MARK
    return MARKS.get(todo.status, UNKNOWN_MARK)


def status_words(status: str) -> str:
    return status.replace("_", " ")


def counts(reading: TodoReading) -> str:
    """`3 open, 1 in progress, 2 closed`."""
    closed = sum(todo.status in ("completed", "cancelled") for todo in reading.todos)
    running = sum(todo.status == "in_progress" for todo in reading.todos)
    return f"{len(reading.todos) - closed - running} open, {running} in progress, {closed} closed"


def lines(reading: TodoReading, details: bool = True) -> list[str]:
    """Plain output: place, mark, id, words, priority; then what was tried and found."""
    head = [plain(reading.title)] if reading.title else []
    if not reading.todos:
        return [*head, "nothing to do yet: decodetop todo add TEXT, or decodetop todo import FILE"]
    id_width = max(len(plain(todo.id)) for todo in reading.todos)
    shown = list(head)
    for place, todo in enumerate(reading.todos, 1):
        priority = f"  {plain(todo.priority)}" if todo.priority else ""
        foreign = f" [{plain(todo.status)}]" if todo.status not in MARKS else ""
        indent = "  " * todo.depth
        words = plain(todo.content) or UNKNOWN
        shown.append(
            f"{'#' + str(place):>4} {mark(todo)} {plain(todo.id):<{id_width}}  {indent}{words}{foreign}{priority}"
        )
        if details:
            shown += [f"{'':>{id_width + 9}}{indent}{line}" for line in map(plain, _details(todo))]
    return [*shown, counts(reading)]


def markdown(reading: TodoReading) -> list[str]:
    """A section of the report: a GitHub checklist with attempts and evidence below each item."""
    section = ["## Checklist", ""]
    for word in (reading.problem, reading.unsaved and f"not saved: {reading.unsaved}"):
        section += [f"> {escape(word)}", ""] if word else []
    if not reading.todos:
        return [*section, "Empty."]
    for todo in reading.todos:
        indent = "  " * todo.depth
        section.append(f"{indent}- {_BOXES.get(todo.status, '[ ]')} {_item(todo)}")
        section += [f"{indent}  - {escape(line)}" for line in _details(todo)]
    return [*section, "", f"{counts(reading)}.".capitalize()]


def follow_lines(reading: FollowReading) -> list[str]:
    """Agents' plans as plain output."""
    shown: list[str] = []
    for plan in reading.plans:
        shown.append(f"{plain(plan.agent)} {plain(plan.session)}  {plain(plan.path)}")
        shown += [f"  {plain(plan.problem)}"] if plan.problem else []
        for todo in plan.todos:
            gone = "  (gone)" if todo.gone else ""
            foreign = f" [{plain(todo.status)}]" if todo.status not in MARKS else ""
            shown.append(f"  {MARKS.get(todo.status, UNKNOWN_MARK)} {plain(todo.content) or UNKNOWN}{foreign}{gone}")
    shown += [f"{plain(place)}: {plain(why)}" for place, why in reading.reasons.items()]
    return shown or [f"no agent's plan found in {', '.join(map(plain, reading.searched)) or 'any place'}"]


def when(wall_ns: int) -> str:
    """`2026-11-30 14:03Z`."""
    return utc_time(wall_ns)


def _item(todo: Todo) -> str:
    words = escape(todo.content) or UNKNOWN
    if todo.status == "cancelled":
        words = f"~~{words}~~"
    facts = [escape(todo.priority)] if todo.priority else []
    facts += [] if todo.status in ("pending", "completed") else [escape(status_words(todo.status))]
    return f"{words} ({', '.join(facts)})" if facts else words


def _details(todo: Todo) -> Iterator[str]:
    """What stands below an item, one line each, as external text."""
    for name in ("hypothesis", "expected", "reason"):
        if plain(getattr(todo, name) or ""):
            yield f"{name}: {getattr(todo, name)}"
    for line in (todo.notes or "").split("\n"):
        if plain(line):
            yield line
    if todo.blocked_by:
        yield f"blocked by {', '.join(todo.blocked_by)}"
    for attempt in todo.attempts:
        yield _attempt(attempt)
    for evidence in todo.evidence:
        yield _evidence(evidence)
    for conflict in todo.conflicts:
        yield f"an outside edit wanted {conflict}"
    if len(todo.status_history) > 1:
        yield ", ".join(map(_change, todo.status_history))


def _attempt(attempt: Attempt) -> str:
    reason = f": {attempt.reason}" if attempt.reason else ""
    aside = [*attempt.links, *([when(attempt.wall_ns)] if attempt.wall_ns is not None else [])]
    return f"tried {attempt.change}: {attempt.outcome}{reason}" + (f" ({', '.join(aside)})" if aside else "")


def _evidence(evidence: Evidence) -> str:
    summary = f": {evidence.summary}" if evidence.summary else ""
    return f"{evidence.kind} {evidence.ref}{summary}"


def _change(change: StatusChange) -> str:
    return f"{status_words(change.status)} {when(change.wall_ns)}"
