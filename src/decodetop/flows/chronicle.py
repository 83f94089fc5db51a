"""What the stores of an investigation tell of its past, as entries of the log. Pure: the same readings, the same keys.

What was done while no decodetop watched (`decodetop todo done`, `bench run`) stands in those stores with its time, so
the log can take it in later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from decodetop.bench.reading import Run
from decodetop.bench.text import one_line
from decodetop.core.clock import SECOND_NS
from decodetop.flows.delta import capture_summary
from decodetop.log.reading import Entry
from decodetop.steps.reading import Capture
from decodetop.todo.reading import StatusChange, Todo, TodoReading

STATUS_WORDS = {"in_progress": "started", "completed": "done", "cancelled": "given up", "pending": "to do again"}


def of_todos(todos: Iterable[Todo]) -> Iterator[Entry]:
    """Every status with a time, and every attempt."""
    for todo in todos:
        for number, change in enumerate(todo.status_history):
            yield _status(todo, change, first=number == 0)
        for attempt in todo.attempts:
            if attempt.wall_ns is not None:
                why = f": {attempt.reason}" if attempt.reason else ""
                yield Entry(
                    wall_ns=attempt.wall_ns,
                    kind="attempt",
                    text=f"{attempt.outcome}: {attempt.change}{why} (for: {todo.content})",
                    ref=todo.id,
                    key=f"attempt:{todo.id}:{attempt.wall_ns}:{attempt.change}",
                )


def of_runs(runs: Iterable[Run]) -> Iterator[Entry]:
    """Stored runs, at the time they ended."""
    for run in runs:
        if run.id is not None:
            ended_ns = run.started_wall_ns + int(run.duration_s * SECOND_NS)
            key = f"run:{run.id}:{run.started_wall_ns}"  # a store that is begun anew counts from 1 again
            yield Entry(wall_ns=ended_ns, kind="run", text=one_line(run), ref=str(run.id), key=key)


def of_captures(captures: Iterable[Capture]) -> Iterator[Entry]:
    for capture in captures:
        if capture.made_wall_ns is not None:
            yield Entry(
                wall_ns=capture.made_wall_ns,
                kind="capture",
                text=f"{capture.id}: {capture_summary(capture, ())}",
                ref=capture.id,
                key=f"capture:{capture.id}",
            )


def edited_outside(before: TodoReading, now: TodoReading, wall_ns: int) -> Iterator[Entry]:
    """Statuses that changed without leaving a time: by another tool's edit of the file, or taken back by undo."""
    was = {todo.id: todo for todo in before.todos}
    for todo in now.todos:
        old = was.get(todo.id)
        if old is None or old.status == todo.status or set(todo.status_history) - set(old.status_history):
            continue
        word = STATUS_WORDS.get(todo.status, todo.status)
        yield Entry(
            wall_ns=wall_ns,
            kind="changed",
            text=f"{word}: {todo.content} (outside edit, or undone)",
            ref=todo.id,
            key=f"changed:{todo.id}:{todo.status}",
        )


def _status(todo: Todo, change: StatusChange, *, first: bool) -> Entry:
    word = STATUS_WORDS.get(change.status, change.status)
    if first:
        word = "added" if change.status == "pending" else f"added, {word}"
    closed = change.status in ("completed", "cancelled") and change == todo.status_history[-1]
    why = f" ({todo.reason})" if closed and todo.reason else ""
    return Entry(
        wall_ns=change.wall_ns,
        kind="status",
        text=f"{word}: {todo.content}{why}",
        ref=todo.id,
        key=f"status:{todo.id}:{change.wall_ns}:{change.status}",
    )
