"""Starts the load's processes, listens to them, and ends them: by a word first, by force if they don't hear."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, BinaryIO, Protocol

import msgspec

from decodetop.bench.measure import merged
from decodetop.bench.reading import ErrorKind, Plan
from decodetop.bench.wire import (
    GO,
    Fatal,
    Job,
    Ready,
    Record,
    Result,
    Tick,
    Up,
    decode_up,
    encode,
    journalled,
    source_of,
)
from decodetop.core.child import gone
from decodetop.core.decode import NotDecoded
from decodetop.core.outside import plain
from decodetop.errors import RequestError

STREAMS_PER_PROCESS = 128
"""Two of these shared one core at 50 tokens/s a stream and used 62 % of it (benchmarks/client_accuracy.py)."""

LINE_MAX_BYTES = 1 << 30
"""A Result carries the stamps that its journal had no room for."""

LOOK_S = 1.0
SILENT_LOOKS_MAX = 30
"""A process that said nothing at so many looks in a row does nothing more (it ticks four times a second, from its first
half second on). Looks and not seconds: when this process was itself stopped meanwhile, that is one look."""

STOP_S = 5.0
"""For a process to hand in what it has after SIGTERM, before SIGKILL."""

KEY = "DECODETOP_API_KEY"


class LoadFailed(RequestError):
    """Nothing could be measured. `kind` is the fault of the one request tried, if there was one."""

    def __init__(self, message: str, hint: str, kind: ErrorKind | None) -> None:
        super().__init__(message, hint)
        self.kind = kind


class Listener(Protocol):
    """Who is told how it goes."""

    def tick(self, ticks: Sequence[Tick]) -> None:
        """The newest of each process."""

    async def ready(self, ready: Ready) -> None:
        """Warm-up is over everywhere; the load begins when this returns."""


Launch = Callable[[Plan, str | None, Listener, asyncio.Event], Awaitable[Result]]


async def run_load(plan: Plan, key: str | None, listener: Listener, stop: asyncio.Event) -> Result:
    """Carry out `plan`. When `stop` is set, what is finished comes back as a partial result.

    Raises LoadFailed. When cancelled, the processes are ended and nothing comes back.
    """
    children = [_Child(job) for job in shares(plan)]
    ending = asyncio.Event()
    stopping = [asyncio.ensure_future(_stop_when(event, children)) for event in (stop, ending)]
    try:
        for child in children:
            await child.start(key)
        listening = [asyncio.ensure_future(child.listen(lambda: _tell(children, listener))) for child in children]
        try:
            await _until_ready(children, listening)
            if all(child.ready is not None for child in children):
                ready = children[0].ready
                assert ready is not None
                await listener.ready(ready)
            for child in children:
                child.say(GO)
            await asyncio.wait(listening, return_when=asyncio.FIRST_EXCEPTION)
            if not all(task.done() for task in listening):
                ending.set()  # one of them is gone: the rest hand in what they have
            return _gathered(await asyncio.gather(*listening, return_exceptions=True), children)
        finally:
            for task in listening:
                task.cancel()
    finally:
        for stopper in stopping:
            stopper.cancel()
        await asyncio.gather(*(child.end() for child in children))


def shares(plan: Plan) -> list[Job]:
    """One Job per process: streams, requests and warm-up split as evenly as they go; they take requests in turn."""
    count = -(-plan.streams // STREAMS_PER_PROCESS)
    jobs = []
    for number in range(count):
        streams, requests, warmup = (
            total // count + (number < total % count) for total in (plan.streams, plan.requests, plan.warmup_requests)
        )
        part = msgspec.structs.replace(plan, streams=streams, requests=requests, warmup_requests=warmup)
        jobs.append(Job(plan=part, first_index=number, stride=count))
    return jobs


def _gathered(ends: Sequence[Result | BaseException], children: Sequence[_Child]) -> Result:
    """All there is: of a process that was lost, the requests in its journal. Raises when that is nothing."""
    lost = next((end for end in ends if isinstance(end, BaseException)), None)
    results = [end if isinstance(end, Result) else child.kept() for end, child in zip(ends, children, strict=True)]
    whole = merged(results)
    if lost is None:
        return whole
    if not isinstance(lost, LoadFailed) or not whole.records:
        raise lost
    return msgspec.structs.replace(whole, partial=True, lost=lost.message)


async def _until_ready(children: list[_Child], listening: Sequence[asyncio.Future[Result]]) -> None:
    """All ready, or one of them ended already (stopped, or failed)."""

    async def all_ready() -> None:
        for child in children:
            await child.is_ready.wait()

    ready = asyncio.ensure_future(all_ready())
    waits: list[asyncio.Future[Any]] = [ready, *listening]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ready.cancel()
    for task in listening:
        if task.done():
            task.result()


async def _stop_when(stop: asyncio.Event, children: list[_Child]) -> None:
    await stop.wait()
    for word in (signal.SIGTERM, signal.SIGKILL):
        for child in children:
            child.signal(word)
        await asyncio.sleep(STOP_S)


def _tell(children: list[_Child], listener: Listener) -> None:
    listener.tick([child.last for child in children if child.last is not None])


class _Child:
    """One load process."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.last: Tick | None = None
        self.ready: Ready | None = None
        self.is_ready = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._journal = _memory_file()
        self._silent = 0

    async def start(self, key: str | None) -> None:
        """Raises LoadFailed."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "decodetop.bench.worker",
                pass_fds=(self._journal.fileno(),),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LINE_MAX_BYTES,
                start_new_session=True,
                env=environment(os.environ, key),
            )
        except OSError as error:
            message = f"can't start the load process: {error.strerror}"
            raise LoadFailed(message, "is the box out of processes or memory?", None) from error
        job = msgspec.structs.replace(self.job, parent=os.getpid(), journal=self._journal.fileno())
        self.say(encode(job) + b"\n")

    def say(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(line)

    async def listen(self, told: Callable[[], None]) -> Result:
        """Until its Result. Raises LoadFailed when it says Fatal, falls silent, or ends without a word."""
        assert self._process is not None and self._process.stdout is not None and self._process.stderr is not None
        complaint = asyncio.ensure_future(self._process.stderr.read())
        looking = asyncio.ensure_future(self._end_when_silent())
        try:
            async for line in self._process.stdout:
                self._silent = 0
                message = self._understand(line)
                if isinstance(message, Result):
                    return msgspec.structs.replace(message, records=[*self._kept(), *message.records])
                if isinstance(message, Fatal):
                    raise LoadFailed(message.message, message.hint, message.kind)
                if isinstance(message, Ready):
                    self.ready = message
                    self.is_ready.set()
                elif isinstance(message, Tick):
                    self.last = message
                    told()
            code = await self._process.wait()
            if self._silent >= SILENT_LOOKS_MAX:
                why = f"the load process said nothing for {SILENT_LOOKS_MAX * LOOK_S:g} s and was ended"
                raise LoadFailed(why, "was it stopped, or is the box starved of CPU? run it again", None)
            words = (await complaint).decode("utf-8", "replace").strip().splitlines()
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            hint = plain(words[-1])[:200] if words else "was it killed, or memory short (dmesg)? run it again"
            raise LoadFailed(f"the load process ended {how} before its result", hint, None)
        finally:
            complaint.cancel()
            looking.cancel()

    async def _end_when_silent(self) -> None:
        while self._silent < SILENT_LOOKS_MAX:
            await asyncio.sleep(LOOK_S)
            self._silent += 1
        self.signal(signal.SIGKILL)

    def _kept(self) -> list[Record]:
        self._journal.seek(0)
        return journalled(self._journal.read())

    def kept(self) -> Result:
        """What it had finished when it was lost."""
        records = self._kept()
        lag_ms = self.last.loop_lag_ms_p99 if self.last is not None else None
        return Result(
            records=records,
            source=source_of(self.job.plan.api, records),
            partial=True,
            unfinished=0,
            cpu_percent=None,
            loop_lag_ms_p99=lag_ms,
        )

    def _understand(self, line: bytes) -> Up:
        try:
            return decode_up(line)
        except NotDecoded as error:
            raise LoadFailed(f"the load process said {line[:80]!r}", "report it", None) from error

    def signal(self, word: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            try:
                os.killpg(self._process.pid, word)
            except ProcessLookupError:
                return

    async def end(self) -> None:
        """It is gone when this returns."""
        self._journal.close()
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()  # it ends by itself when nobody holds its stdin
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await gone(self._process)


def _memory_file() -> BinaryIO:
    """A file on no disk that two processes can hold."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("decodetop-journal"), "r+b")
    return tempfile.TemporaryFile()


def environment(base: Mapping[str, str], key: str | None) -> dict[str, str]:
    """The child's: the key and nothing else is added."""
    without = {name: value for name, value in base.items() if name != KEY}
    return without if key is None else {**without, KEY: key}
