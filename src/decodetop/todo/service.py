"""The checklist as a source of the engine: shows the file, follows it, makes edits and never loses one.

An edit is made in memory, shown, and written on a thread of its own. What can't be written stays in memory, says why,
and is tried again. Each reading of the file is merged with what is in memory, item by item.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from decodetop.core.clock import SECOND_NS, Late, within
from decodetop.core.engine import Context
from decodetop.core.sample import Command, Notice
from decodetop.core.thread import CallThread
from decodetop.errors import DataError, DecodetopError
from decodetop.todo import formats, model, question
from decodetop.todo.document import Document, Item, same
from decodetop.todo.importing import import_block
from decodetop.todo.merge import merge3
from decodetop.todo.reading import (
    AddAttempt,
    AddEvidence,
    AddTodo,
    EditTodo,
    ImportTodos,
    MoveTodo,
    RedoTodo,
    RestoreTodo,
    TodoReading,
    UndoTodo,
)
from decodetop.todo.store import FILE_NAME, BrokenFileError, NewerSchemaError, Seen, TodoStore, salvaged
from decodetop.todo.view import todo_of, todos_of
from decodetop.todo.watch import watch_folder

T = TypeVar("T")

POLL_S = 2.0
"""The file is looked at this often even if no watch says a word (network file systems, links to other folders)."""
BROKEN_GRACE_S = 5.0
"""A file that has been no JSON for as long is not being written any more: an edit may take its place."""
DISK_DEADLINE_S = 5.0
GONE_KEPT = 50
VERSIONS_KEPT = 12
"""Of what the file held: as far back as another program may have read it and still write it now."""

Watch = Callable[[Path, frozenset[str]], AsyncIterator[None]]


class Caller(Protocol):
    """Makes blocking calls off the loop, one after the other."""

    @property
    def busy(self) -> bool: ...

    def call(self, function: Callable[[], T]) -> Awaitable[T]: ...

    def close(self) -> None: ...


class TodoService:
    """Engine service of the investigation in `folder`, which need not exist."""

    source = "todo"
    commands: tuple[type[Command], ...] = (
        AddTodo,
        EditTodo,
        MoveTodo,
        UndoTodo,
        RedoTodo,
        AddAttempt,
        AddEvidence,
        RestoreTodo,
        ImportTodos,
    )

    def __init__(
        self,
        folder: Path,
        watch: Watch = watch_folder,
        caller: Callable[[], Caller] = lambda: CallThread("decodetop-todo"),
    ) -> None:
        self._folder = folder
        self._store = TodoStore(folder)
        self._watch = watch
        self._new_caller = caller
        self._caller: Caller | None = None
        self._waiting: list[Command] = []
        self._turn = asyncio.Lock()
        self._versions: deque[Document] = deque(maxlen=VERSIONS_KEPT)
        self._now = Document()
        self._undo = model.Undo()
        self._gone: dict[str, Item] = {}
        self._question: str | None = None
        self._bytes: bytes | None = None
        self._broken_since_ns: int | None = None
        self._shown = TodoReading(path=str(self._store.path), revision=-1)

    async def run(self, context: Context) -> None:
        """Until cancelled; what is still in memory then is written first."""
        async with self._turn:
            await self._refresh(context)
        self._say(context, always=True)
        tasks = [asyncio.ensure_future(self._poll(context)), asyncio.ensure_future(self._follow(context))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._finish(context)

    async def handle(self, command: Command, context: Context) -> None:
        """Raises UsageError for what can't be done, and DataError if a newer decodetop owns the file."""
        self._waiting.append(command)
        async with self._turn:
            await self._refresh(context)
            self._waiting.remove(command)
            self._store.refuse_newer(self._base)
            if (notice := self._edit(command, context)) is not None:
                context.notify(notice)
            self._say(context)
            await self._save(context)
            self._say(context)

    async def _finish(self, context: Context) -> None:
        """An edit whose handler was cancelled on the way out is made all the same."""
        for command in self._waiting:
            with contextlib.suppress(DecodetopError):
                self._edit(command, context)
        self._waiting.clear()
        await self._save(context)
        if self._caller is not None:
            self._caller.close()
            self._caller = None

    def _edit(self, command: Command, context: Context) -> Notice | None:
        before = self._now
        notice = self._apply(command, context.clock.wall_ns())
        if not isinstance(command, (UndoTodo, RedoTodo)) and not same(before.items, self._now.items):
            self._undo = self._undo.record(before, self._now)
        return notice

    @property
    def _base(self) -> Document:
        """What the file holds, as far as we know."""
        return self._versions[-1] if self._versions else Document()

    def _apply(self, command: Command, wall_ns: int) -> Notice | None:
        """Change what is in memory; the result is a word to the operator."""
        match command:
            case AddTodo():
                self._now, _ = model.add(self._now, command, wall_ns)
            case EditTodo():
                self._now = model.edit(self._now, command, wall_ns)
                return _advice(self._now, command)
            case MoveTodo():
                self._now = model.move(self._now, command)
            case AddAttempt():
                self._now = model.attempt(self._now, command, wall_ns)
            case AddEvidence():
                self._now = model.evidence(self._now, command, wall_ns)
            case UndoTodo():
                self._undo, self._now = self._undo.undo(self._now)
            case RedoTodo():
                self._undo, self._now = self._undo.redo(self._now)
            case RestoreTodo():
                if command.id in self._gone:
                    self._now = model.restore(self._now, self._gone.pop(command.id))
            case ImportTodos():
                self._now, imported = import_block(self._now, formats.parse(command.text), wall_ns)
                return Notice(message=f"import: {imported}")
        return None

    async def _poll(self, context: Context) -> None:
        while True:
            await context.clock.sleep_until(context.clock.now_ns() + int(POLL_S * SECOND_NS))
            await self._look(context)

    async def _follow(self, context: Context) -> None:
        names = frozenset({FILE_NAME, question.FILE_NAME})
        while True:
            async for _ in self._watch(self._folder, names):
                await self._look(context)
            await context.clock.sleep_until(context.clock.now_ns() + int(POLL_S * SECOND_NS))

    async def _look(self, context: Context) -> None:
        async with self._turn:
            await self._refresh(context)
            self._say(context)

    async def _refresh(self, context: Context) -> None:
        """Take in what is on the disk, and write what is still only in memory."""
        due = self._shown.unsaved is not None
        versions, known = tuple(self._versions), None if due else self._bytes
        try:
            data, seen, self._question, trouble = await self._call(context, lambda: self._read(versions, known))
        except BrokenFileError as error:
            self._broken(context, error)
        except DataError as error:
            self._trouble(context, str(error))
            return
        else:
            self._bytes, self._broken_since_ns = data, None
            if seen is not None:
                now = self._now if self._versions else seen.document
                self._take(seen.document, merge3(seen.base, now, seen.document))
                due = due or (data is not None and not (seen.whole and same(self._now.items, seen.document.items)))
            self._trouble(context, self._missing(data, due) or self._newer() or trouble)
        if due:
            await self._save(context, due)

    def _read(
        self, versions: Sequence[Document], known: bytes | None
    ) -> tuple[bytes | None, Seen | None, str | None, str | None]:
        """On the thread: the file's bytes, what is in them if they are not the `known` ones, the investigation's
        question, and what is wrong with the question's file. Raises DataError.
        """
        try:
            asked, trouble = question.read_question(self._folder), None
        except DataError as error:
            asked, trouble = None, str(error)
        data = self._store.read_bytes()
        seen = None if versions and known is not None and data == known else self._store.parse(data, versions)
        return data, seen, asked, trouble

    def _missing(self, data: bytes | None, due: bool) -> str | None:
        if data is not None or due or not self._now.items:
            return None
        return f"{self._store.path} is gone from disk; the list is kept here and written again by the next edit"

    def _newer(self) -> str | None:
        try:
            self._store.refuse_newer(self._base)
        except NewerSchemaError as error:
            return str(error)
        return None

    def _broken(self, context: Context, error: BrokenFileError) -> None:
        words = error.message
        self._bytes = None
        if not self._versions:
            document = salvaged(error.data)
            self._take(document, document)
            words += f"; {len(document.items)} whole items are shown"
        if self._broken_since_ns is None:
            self._broken_since_ns = context.clock.now_ns()
            self._trouble(context, words)

    async def _save(self, context: Context, due: bool = False) -> None:
        """Write what is only in memory, merged with what the file holds. What can't be written is kept and said."""
        now, versions = self._now, tuple(self._versions)
        if same(self._base.items, now.items) and not due:
            return
        over = None
        if self._broken_since_ns is not None:
            if context.clock.now_ns() - self._broken_since_ns < BROKEN_GRACE_S * SECOND_NS:
                self._shown = msgspec.structs.replace(
                    self._shown, unsaved="the file is broken; tried again in a moment"
                )
                return
            over = self._base
        try:
            saved = await self._call(context, lambda: self._store.save(now, versions, over))
        except DataError as error:
            self._shown = msgspec.structs.replace(self._shown, unsaved=str(error))
            return
        self._take(saved, saved)
        self._bytes = None
        self._broken_since_ns = None
        self._shown = msgspec.structs.replace(self._shown, unsaved=None, problem=None, problem_since_wall_ns=None)

    def _take(self, base: Document, now: Document) -> None:
        """Go on with these, and remember the items that somebody else removed."""
        for item in self._now.items:
            if now.get(item["id"]) is None:
                self._gone[item["id"]] = item
        for id in [id for id in self._gone if now.get(id) is not None] + list(self._gone)[:-GONE_KEPT]:
            self._gone.pop(id, None)
        self._now = now
        if not self._versions or not same(base.items, self._base.items):
            self._versions.append(base)

    def _trouble(self, context: Context, problem: str | None) -> None:
        if problem != self._shown.problem:
            since = context.clock.wall_ns() if problem else None
            self._shown = msgspec.structs.replace(self._shown, problem=problem, problem_since_wall_ns=since)

    def _say(self, context: Context, always: bool = False) -> None:
        """Show what there is, if it differs from what was shown."""
        reading = msgspec.structs.replace(
            self._shown,
            title=self._question or self._now.title,
            todos=todos_of(self._now.items),
            gone=tuple(map(todo_of, self._gone.values())),
            undo_depth=len(self._undo.done),
            redo_depth=len(self._undo.undone),
        )
        last = context.state.last(self.source, TodoReading)
        if always or last is None or msgspec.structs.replace(reading, revision=last.revision) != last:
            self._shown = msgspec.structs.replace(reading, revision=self._shown.revision + 1)
            context.emit(self.source, self._shown)

    async def _call(self, context: Context, work: Callable[[], T]) -> T:
        """`work` on the thread. Raises DataError if the disk does not answer in time; the work may still be done."""
        message = f"{self._folder}: the disk does not answer"
        hint = "a network file system may be down; the edit is kept and tried again"
        if self._caller is None:
            self._caller = self._new_caller()
        if self._caller.busy:
            raise DataError(message, hint)
        try:
            return await within(context.clock, DISK_DEADLINE_S, self._caller.call(work))
        except Late as late:
            late.task.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise DataError(message, hint) from late


def _advice(document: Document, command: EditTodo) -> Notice | None:
    """A soft word: more than one item in progress, or one closed without a reason."""
    if command.status == "in_progress" and len(model.in_progress(document)) > 1:
        others = ", ".join(id for id in model.in_progress(document) if id != command.id)
        return Notice(level="warning", message=f"{command.id} is in progress beside {others}", hint="one at a time")
    if command.status in model.CLOSED and model.closed_without_why(model.item_of(document, command.id)):
        hint = "add a note, an attempt or a benchmark run to it, so that it can be read tomorrow"
        return Notice(level="info", message=f"{command.id} closed with no word of why", hint=hint)
    return None
