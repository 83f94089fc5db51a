"""The checklist as a source of the engine: shows the file, follows it, makes edits and never loses one.

An edit is made in memory, shown, and written on a thread of its own. What can't be written stays in memory, says why,
and is tried again. Each reading of the file is merged with what is in memory, item by item.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from decodetop.core.clock import SECOND_NS, Late, within
from decodetop.core.encode import encodable
from decodetop.core.engine import Context
from decodetop.core.sample import Command
from decodetop.core.thread import CallThread
from decodetop.errors import DataError, DecodetopError
from decodetop.todo import question
from decodetop.todo.document import Item
from decodetop.todo.edit import EditMade
from decodetop.todo.notebook import Notebook
from decodetop.todo.reading import (
    AddAttempt,
    AddEvidence,
    AddTodo,
    EditTodo,
    ImportTodos,
    MoveTodo,
    RedoTodo,
    RestoreTodo,
    Todo,
    TodoReading,
    UndoTodo,
)
from decodetop.todo.store import FILE_NAME, BrokenFileError, Known, NewerSchemaError, Seen, TodoStore, salvaged
from decodetop.todo.view import todo_of, todos_of
from decodetop.todo.watch import watch_folder

T = TypeVar("T")

POLL_S = 2.0
"""The file is looked at this often even if no watch says a word (network file systems, links to other folders)."""
BROKEN_GRACE_S = 5.0
"""A file that has been no JSON for as long is not being written any more: an edit may take its place."""
DISK_DEADLINE_S = 5.0
LEAVING_DEADLINE_S = 0.7
"""What leaving may wait for a disk; a program that is told to end is gone within a second."""

Watch = Callable[[Path, frozenset[str]], AsyncIterator[None]]


class Caller(Protocol):
    """Makes blocking calls off the loop, one after the other."""

    @property
    def busy(self) -> bool: ...

    def call(self, function: Callable[[], T]) -> Awaitable[T]: ...

    def close(self) -> None: ...


class _Disk(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the folder. `seen` is None if the file is as it was."""

    data: bytes | None
    seen: Seen | None
    question: str | None
    trouble: str | None


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
        EditMade,
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
        self._leaving = False
        self._turn = asyncio.Lock()
        self._book = Notebook()
        self._question: str | None = None
        self._bytes: bytes | None = None
        self._broken_since_ns: int | None = None
        self._shown = TodoReading(path=str(self._store.path), revision=-1)
        self._made: tuple[tuple[Item, ...], tuple[Todo, ...]] = (), ()

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
            self._store.refuse_newer(self._book.agreed)
            notice = self._book.edit(command, context.clock.wall_ns())
            if notice is not None:
                context.notify(notice)
            self._say(context)
            await self._save(context)
            self._say(context)

    async def _finish(self, context: Context) -> None:
        """An edit whose handler was cancelled on the way out is made all the same."""
        for command in self._waiting:
            with contextlib.suppress(DecodetopError):
                self._book.edit(command, context.clock.wall_ns())
        self._waiting.clear()
        self._leaving = True
        await self._save(context)
        self._leaving = False
        if self._caller is not None:
            self._caller.close()
            self._caller = None

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
        known, read = self._book.known, None if due else self._bytes
        try:
            disk = await self._call(context, lambda: self._read(known, read))
        except BrokenFileError as error:
            self._broken(context, error)
        except DataError as error:
            self._trouble(context, str(error))
            return
        else:
            self._question, self._bytes, self._broken_since_ns = disk.question, disk.data, None
            if disk.seen is not None:
                self._book.look(disk.seen)
                due = due or (disk.data is not None and (self._book.owes or not disk.seen.whole))
            self._trouble(context, self._missing(disk.data, due) or self._newer() or disk.trouble)
        if due:
            await self._save(context, due)

    def _read(self, known: Known | None, read: bytes | None) -> _Disk:
        """On the thread. `read` are the bytes that need not be looked at again. Raises DataError."""
        try:
            asked, trouble = question.read_question(self._folder), None
        except DataError as error:
            asked, trouble = None, str(error)
        memory = self._store.memory()  # before the file: what is written in between is news then, and not known already
        data = self._store.read_bytes()
        if known is not None and read is not None and data == read:
            return _Disk(data=data, seen=None, question=asked, trouble=trouble)
        return _Disk(data=data, seen=self._store.parse(data, known, memory), question=asked, trouble=trouble)

    def _missing(self, data: bytes | None, due: bool) -> str | None:
        if data is not None or due or not self._book.now.items:
            return None
        return f"{self._store.path} is gone from disk; the list is kept here and written again by the next edit"

    def _newer(self) -> str | None:
        try:
            self._store.refuse_newer(self._book.agreed)
        except NewerSchemaError as error:
            return str(error)
        return None

    def _broken(self, context: Context, error: BrokenFileError) -> None:
        words = error.message
        self._bytes = None
        if not self._book.versions:
            document = salvaged(error.data)
            self._book.begin(document)
            words += f"; {len(document.items)} whole items are shown"
        if self._broken_since_ns is None:
            self._broken_since_ns = context.clock.now_ns()
            self._trouble(context, words)

    async def _save(self, context: Context, due: bool = False) -> None:
        """Write what is only in memory, merged with what the file holds. What can't be written is kept and said."""
        now, known = self._book.now, self._book.known
        if not due and not self._book.owes:
            return
        since_ns = self._broken_since_ns
        broken = since_ns is not None
        if since_ns is not None and context.clock.now_ns() - since_ns < BROKEN_GRACE_S * SECOND_NS:
            self._shown = msgspec.structs.replace(self._shown, unsaved="the file is broken; tried again in a moment")
            return
        try:
            saved, seen = await self._call(context, lambda: self._store.save(now, known, broken))
        except DataError as error:
            self._shown = msgspec.structs.replace(self._shown, unsaved=str(error))
            return
        self._book.saved(saved, seen)
        self._bytes = None
        self._broken_since_ns = None
        self._shown = msgspec.structs.replace(self._shown, unsaved=None, problem=None, problem_since_wall_ns=None)

    def _trouble(self, context: Context, problem: str | None) -> None:
        if problem != self._shown.problem:
            since = context.clock.wall_ns() if problem else None
            self._shown = msgspec.structs.replace(self._shown, problem=problem, problem_since_wall_ns=since)

    def _say(self, context: Context, always: bool = False) -> None:
        """Show what there is, if it differs from what was shown."""
        reading = msgspec.structs.replace(
            self._shown,
            title=encodable(self._question or self._book.now.title),
            todos=self._todos(),
            gone=tuple(map(todo_of, self._book.gone.values())),
            undo_depth=len(self._book.undo.done),
            redo_depth=len(self._book.undo.undone),
        )
        last = context.state.last(self.source, TodoReading)
        if always or last is None or msgspec.structs.replace(reading, revision=last.revision) != last:
            self._shown = msgspec.structs.replace(reading, revision=self._shown.revision + 1)
            context.emit(self.source, self._shown)

    def _todos(self) -> tuple[Todo, ...]:
        """Made anew only when the items are others: it takes some 20 us an item."""
        items, todos = self._made
        if items is not self._book.now.items:
            todos = todos_of(self._book.now.items)
            self._made = self._book.now.items, todos
        return todos

    async def _call(self, context: Context, work: Callable[[], T]) -> T:
        """`work` on the thread. Raises DataError if the disk does not answer in time; the work may still be done."""
        message = f"{self._folder}: the disk does not answer"
        hint = "a network file system may be down; the edit is kept and tried again"
        if self._caller is None:
            self._caller = self._new_caller()
        if self._caller.busy and not self._leaving:
            raise DataError(message, hint)
        deadline_s = LEAVING_DEADLINE_S if self._leaving else DISK_DEADLINE_S
        try:
            return await within(context.clock, deadline_s, self._caller.call(work))
        except Late as late:
            late.task.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise DataError(message, hint) from late
