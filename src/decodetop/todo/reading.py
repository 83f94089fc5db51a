"""The checklist of the investigation, in the todowrite shape, what may be asked of it, and the plans of agents."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from decodetop.core.sample import Command, Reading

STATUSES = ("pending", "in_progress", "completed", "cancelled")
CLOSED = ("completed", "cancelled")
PRIORITIES = ("high", "medium", "low")
OUTCOMES = ("worked", "failed", "no change", "regressed")
Outcome = Literal["worked", "failed", "no change", "regressed"]
EvidenceKind = Literal["run", "capture", "finding", "move", "report", "note"]


class StatusChange(msgspec.Struct, frozen=True, kw_only=True):
    """`wall_ns` is epoch ns. The first one is the status the item was added with."""

    status: str
    wall_ns: int


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What was tried for an item. `links` names runs, captures, commits or files; `wall_ns` is epoch ns."""

    change: str
    outcome: str
    reason: str | None = None
    links: tuple[str, ...] = ()
    wall_ns: int | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """`ref` names the thing in its own store (a run's number, a capture's folder); `summary` is its number in words."""

    kind: str
    ref: str
    summary: str | None = None
    wall_ns: int | None = None


class Todo(msgspec.Struct, frozen=True, kw_only=True):
    """One item. A foreign `status` or `priority` is kept verbatim; `extra` holds the fields we don't know.

    `reason` = why it was closed. `parent` and `blocked_by` are ids. `conflicts` says, in words, what an outside edit
    wanted where the edit made here won. `blocked` = an item of `blocked_by` is still open.
    """

    id: str
    content: str
    status: str = "pending"
    priority: str | None = None
    notes: str | None = None
    hypothesis: str | None = None
    expected: str | None = None
    reason: str | None = None
    parent: str | None = None
    depth: int = 0
    blocked_by: tuple[str, ...] = ()
    blocked: bool = False
    attempts: tuple[Attempt, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    status_history: tuple[StatusChange, ...] = ()
    conflicts: tuple[str, ...] = ()
    extra: dict[str, Any] = {}


class TodoReading(Reading, frozen=True, kw_only=True):
    """`path` is the file, `title` the investigation's question. `unsaved` = why the last edit is only in memory.

    `todos` are in tree order (a child follows its parent; `depth` 0 = top). `gone` = removed by an outside edit while
    we looked. `problem` = what is wrong with the file, and since when. `revision` counts the lists shown.
    """

    path: str
    title: str | None = None
    todos: tuple[Todo, ...] = ()
    gone: tuple[Todo, ...] = ()
    revision: int = 0
    undo_depth: int = 0
    redo_depth: int = 0
    unsaved: str | None = None
    problem: str | None = None
    problem_since_wall_ns: int | None = None


class AddTodo(Command, frozen=True, kw_only=True):
    """`after_id` None = at the end; `parent` None = at the top level. `evidence` = what it comes from."""

    title = "add an item"

    content: str
    priority: str | None = "medium"
    status: str = "pending"
    notes: str | None = None
    after_id: str | None = None
    parent: str | None = None
    hypothesis: str | None = None
    expected: str | None = None
    evidence: tuple[Evidence, ...] = ()


class EditTodo(Command, frozen=True, kw_only=True):
    """Change what is not None; "" takes a field away (not `content` or `status`; `parent` "" = to the top level)."""

    title = "change the item"

    id: str
    content: str | None = None
    status: str | None = None
    priority: str | None = None
    notes: str | None = None
    hypothesis: str | None = None
    expected: str | None = None
    reason: str | None = None
    blocked_by: tuple[str, ...] | None = None
    parent: str | None = None


class MoveTodo(Command, frozen=True, kw_only=True):
    """`by` places down among its siblings (negative = up); its children go along."""

    title = "move the item"

    id: str
    by: int


class UndoTodo(Command, frozen=True, kw_only=True):
    """Take back the last edit made here."""

    title = "undo"


class RedoTodo(Command, frozen=True, kw_only=True):
    """Make the last edit taken back again."""

    title = "redo"


class AddAttempt(Command, frozen=True, kw_only=True):
    """Record what was tried for an item and what came of it."""

    title = "record an attempt"

    id: str
    change: str
    outcome: Outcome
    reason: str | None = None
    links: tuple[str, ...] = ()


class AddEvidence(Command, frozen=True, kw_only=True):
    """Link a run, capture, finding or move to an item (`id` None = the item in progress; none in progress: nothing)."""

    title = "link evidence"

    id: str | None = None
    kind: EvidenceKind
    ref: str
    summary: str | None = None


class RestoreTodo(Command, frozen=True, kw_only=True):
    """Put an item of `gone` back."""

    title = "put the item back"

    id: str


class ImportTodos(Command, frozen=True, kw_only=True):
    """Merge a pasted block (todowrite JSON, markdown checklist, todo.txt or Taskwarrior JSON) into the list."""

    title = "import items"

    text: str


class FollowedTodo(msgspec.Struct, frozen=True, kw_only=True):
    """One item of an agent's plan. `gone` = it vanished from the store while we looked."""

    content: str
    status: str = "pending"
    priority: str | None = None
    id: str | None = None
    gone: bool = False


class FollowedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One plan of one agent session; the newest first. `changed_wall_ns` is the store's, epoch ns."""

    agent: str
    session: str
    path: str
    changed_wall_ns: int | None = None
    todos: tuple[FollowedTodo, ...] = ()
    problem: str | None = None


class FollowReading(Reading, frozen=True, kw_only=True):
    """Agents' plans, read-only. `searched` names the places looked at; `reasons` says why one could not be read."""

    plans: tuple[FollowedPlan, ...] = ()
    searched: tuple[str, ...] = ()
    reasons: dict[str, str] = {}


class Investigation(msgspec.Struct, frozen=True, kw_only=True):
    """One folder with a question and its notebook. `todos` None = its checklist can't be read (`problem`)."""

    name: str
    path: str
    question: str | None = None
    todos: int | None = None
    closed: int | None = None
    changed_wall_ns: int | None = None
    current: bool = False
    archived: bool = False
    problem: str | None = None


class InvestigationsReading(Reading, frozen=True, kw_only=True):
    """The user's investigations, the last changed first. `root` is where new ones go."""

    root: str
    found: tuple[Investigation, ...] = ()


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """Go on with another investigation: the one at `path`, or a new one that asks `question`."""

    path: str | None = None
    question: str | None = None
