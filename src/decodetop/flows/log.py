"""The log as a source: hears all others and writes down what the next morning wants to know.

What can't be written stays in memory, says why, and is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from decodetop.bench.reading import BenchReading, Run
from decodetop.core.clock import SECOND_NS, Late, within
from decodetop.core.engine import Context
from decodetop.core.outside import plain
from decodetop.core.sample import ClockReading, Command, Notice, Reading, Sample
from decodetop.core.thread import CallThread
from decodetop.errors import DataError, UsageError
from decodetop.findings import Finding, evaluate
from decodetop.flows.chronicle import edited_outside, of_captures, of_runs, of_todos
from decodetop.flows.log_server import ServerWatch
from decodetop.log.reading import AddNote, Entry, LogReading
from decodetop.log.store import LogStore, in_order
from decodetop.server.reading import ServerReading
from decodetop.server.redact import redact_text
from decodetop.steps.reading import Capture, StepsReading
from decodetop.todo.reading import TodoReading
from decodetop.todo.service import Caller

SHOWN = 100
"""Entries in the lane: all of it goes to the tape whenever one is added."""
LOOK_S = 2.0
"""How often other processes' entries are looked for, and a write that failed is tried again."""
FINDINGS_NS = 5 * SECOND_NS
RAISED_LOOKS, CLEARED_LOOKS = 2, 3
"""Looks in a row that show a finding, or don't, before it is written down: flapping is no event."""
DISK_DEADLINE_S = 5.0
LEAVING_DEADLINE_S = 0.7
PENDING_MOST = 10_000
TEXT_MOST = 2_000


class LogService:
    """Engine service of the investigation in `folder`, which need not exist."""

    source = "log"
    commands: tuple[type[Command], ...] = (AddNote,)

    def __init__(
        self,
        folder: Path,
        caller: Callable[[], Caller] = lambda: CallThread("decodetop-log"),
        known: Iterable[str] = (),
    ) -> None:
        """`known` are secrets at hand: they are never written."""
        self._store = LogStore(folder)
        self._new_caller = caller
        self._caller: Caller | None = None
        self._known = tuple(known)
        self._pending: list[Entry] = []
        self._wake = asyncio.Event()
        self._shown = LogReading(path=str(self._store.path))
        self._servers = ServerWatch()
        self._findings = FindingsWatch()
        self._todos: TodoReading | None = None
        self._runs: tuple[Run, ...] | None = None
        self._captures: tuple[Capture, ...] | None = None

    async def run(self, context: Context) -> None:
        """Until cancelled; what is still in memory then is written first."""
        self._caller = self._new_caller()
        await self._look(context)
        self._servers = ServerWatch(self._store.entries)
        for lane in context.state.lanes.values():  # what was said before this service ran
            if lane.last is not None:
                self._hear(lane.last, context)
        end = context.subscribe(lambda sample: self._heard(sample, context))
        self._say(context, always=True)
        try:
            while True:
                await self._flush(context, DISK_DEADLINE_S)
                self._say(context)
                await self._rest(context)
                await self._look(context)
        finally:
            end()
            await self._flush(context, LEAVING_DEADLINE_S)
            self._caller.close()
            self._caller = None

    async def handle(self, command: Command, context: Context) -> None:
        """Raises UsageError for a note without words."""
        assert isinstance(command, AddNote)
        text = " ".join(command.text.split())
        if not text:
            raise UsageError("a note needs words", "for example: decodetop log add reloaded the driver")
        wall_ns = context.clock.wall_ns()
        key = f"note:{wall_ns}:{text}"  # a write that is tried again must not write it twice
        self._add([Entry(wall_ns=wall_ns, kind="note", text=text, ref=command.item, key=key)])
        self._say(context)

    def _heard(self, sample: Sample, context: Context) -> None:
        if sample.reading is not None and sample.source != self.source:
            self._hear(sample.reading, context)

    def _hear(self, reading: Reading, context: Context) -> None:
        now_ns, wall_ns = context.clock.now_ns(), context.clock.wall_ns()
        if isinstance(reading, TodoReading):
            if self._todos is not None:
                self._add(edited_outside(self._todos, reading, wall_ns))
            self._todos = reading
            self._add(of_todos(reading.todos))
        elif isinstance(reading, BenchReading):
            if reading.runs is not self._runs:  # progress comes twice a second, the runs stay the same object
                self._runs = reading.runs
                self._add(of_runs(reading.runs))
        elif isinstance(reading, StepsReading):
            if reading.captures is not self._captures:
                self._captures = reading.captures
                self._add(of_captures(reading.captures))
        elif isinstance(reading, ServerReading):
            self._add(self._servers.see(reading, now_ns, wall_ns))
        elif isinstance(reading, ClockReading) and self._findings.due(now_ns):
            failing = frozenset(name for name, lane in context.state.lanes.items() if lane.failure is not None)
            self._add(self._findings.see(evaluate(context.state), failing, wall_ns))

    def _add(self, entries: Iterable[Entry]) -> None:
        """What the log does not hold yet waits to be written."""
        waiting = {entry.key for entry in self._pending if entry.key is not None}
        for entry in entries:
            if entry.key not in waiting and not self._store.holds(entry):
                text = plain(redact_text(entry.text, self._known))[:TEXT_MOST]
                self._pending.append(msgspec.structs.replace(entry, text=text))
                self._wake.set()
        del self._pending[:-PENDING_MOST]

    async def _rest(self, context: Context) -> None:
        """Until something is to be written, or it is time to look; after a failure only the latter."""
        until_ns = context.clock.now_ns() + int(LOOK_S * SECOND_NS)
        sleep = asyncio.ensure_future(context.clock.sleep_until(until_ns))
        waits = {sleep}
        if self._shown.unsaved is None:
            waits.add(asyncio.ensure_future(self._woken()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _woken(self) -> None:
        await self._wake.wait()

    async def _flush(self, context: Context, deadline_s: float) -> None:
        self._wake.clear()
        going = tuple(self._pending)
        if not going:
            return
        try:
            await self._call(context, lambda: self._store.append(going), deadline_s)
        except DataError as error:
            if self._shown.unsaved is None:
                context.notify(Notice(level="warning", message=f"log not saved: {error.message}", hint=error.hint))
            self._shown = msgspec.structs.replace(self._shown, unsaved=str(error))
            return
        written = set(map(id, going))
        self._pending = [entry for entry in self._pending if id(entry) not in written]
        self._shown = msgspec.structs.replace(self._shown, unsaved=None, problem=self._unreadable())

    async def _look(self, context: Context) -> None:
        """Take in what other processes wrote."""
        try:
            await self._call(context, self._store.read, DISK_DEADLINE_S)
        except DataError as error:
            self._shown = msgspec.structs.replace(self._shown, problem=str(error))
        else:
            self._shown = msgspec.structs.replace(self._shown, problem=self._unreadable())

    def _unreadable(self) -> str | None:
        count = self._store.unreadable
        return f"{count} line{'' if count == 1 else 's'} of {self._store.path} can't be read" if count else None

    def _say(self, context: Context, always: bool = False) -> None:
        whole = in_order([*self._store.entries, *self._pending])
        slim = tuple(msgspec.structs.replace(entry, data={}) if entry.data else entry for entry in whole[-SHOWN:])
        self._shown = msgspec.structs.replace(self._shown, entries=slim, total=len(whole))
        if always or self._shown != context.state.last(self.source, LogReading):
            context.emit(self.source, self._shown)

    async def _call(self, context: Context, work: Callable[[], object], deadline_s: float) -> None:
        """On the thread. Raises DataError, also when the disk does not answer in time."""
        message, hint = f"{self._store.path}: the disk does not answer", "it is kept and tried again"
        assert self._caller is not None
        if self._caller.busy and deadline_s != LEAVING_DEADLINE_S:
            raise DataError(message, hint)
        try:
            await within(context.clock, deadline_s, self._caller.call(work))
        except Late as late:
            late.task.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise DataError(message, hint) from late


class FindingsWatch:
    """Which findings were raised and which are gone, looked at now and then."""

    def __init__(self) -> None:
        self._due_ns = 0
        self._raised: dict[str, Finding] = {}
        self._shows: dict[str, int] = {}
        self._missing: dict[str, int] = {}

    def due(self, now_ns: int) -> bool:
        if now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + FINDINGS_NS
        return True

    def see(self, found: Iterable[Finding], failing: frozenset[str], wall_ns: int) -> Iterable[Entry]:
        """A source that is `failing` tells nothing, so its findings are neither raised nor gone."""
        now = {finding.id: finding for finding in found}
        entries = []
        self._shows = {id: self._shows.get(id, 0) + 1 for id in now}
        for id, finding in now.items():
            self._missing.pop(id, None)
            if id not in self._raised and self._shows[id] >= RAISED_LOOKS:
                self._raised[id] = finding
                entries.append(
                    _finding(finding, "finding", f"{finding.severity}: {finding.title}: {finding.evidence}", wall_ns)
                )
        for id, finding in list(self._raised.items()):
            if id in now or finding.source in failing:
                continue
            self._missing[id] = self._missing.get(id, 0) + 1
            if self._missing[id] >= CLEARED_LOOKS:
                del self._raised[id], self._missing[id]
                entries.append(_finding(finding, "cleared", f"gone: {finding.title}", wall_ns))
        return entries


def _finding(finding: Finding, kind: str, text: str, wall_ns: int) -> Entry:
    return Entry(wall_ns=wall_ns, kind=kind, text=text, ref=finding.id, key=f"{kind}:{finding.id}")
