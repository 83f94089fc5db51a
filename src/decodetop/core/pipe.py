"""The pipe source: samples of another decodetop's `stream`, so that a slow line carries data and no screen."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal

from decodetop.core.child import ends_with_us
from decodetop.core.decode import NotDecoded
from decodetop.core.sample import Command, Failure, Header, Notice, Sample
from decodetop.core.source import Sink
from decodetop.core.tape import LINE_MAX_BYTES, Codec
from decodetop.errors import DataError, UsageError

STOP_S = 2.0
_EXAMPLE = "try --from 'ssh box decodetop stream'"


class PipeSource:
    """Runs `command` (a shell-quoted argv) and reads its NDJSON. `open` waits for the header; `run` does it else.

    Until then `header` names the command; `run` resets the sink when it has the real one.
    """

    def __init__(self, command: str, codec: Codec) -> None:
        """Raises UsageError for a command that is none."""
        try:
            self._argv = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"--from: {str(error).lower()} in {command!r}", _EXAMPLE) from error
        if not self._argv:
            raise UsageError("--from: the command is empty", _EXAMPLE)
        self._codec = codec
        self._process: asyncio.subprocess.Process | None = None
        self._header: Header | None = None
        self._sink: Sink | None = None
        self._last: Sample | None = None

    @property
    def header(self) -> Header:
        if self._header is None:
            return Header(version="", host=self._argv[0], started_wall_ns=0)
        return self._header

    async def open(self) -> None:
        """Start the command and read the header. Raises DataError if it says anything else; it is stopped then."""
        try:
            await self._open()
        except BaseException:
            await self._stop()
            raise

    async def _open(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LINE_MAX_BYTES,
                start_new_session=True,
                preexec_fn=ends_with_us(),
            )
        except OSError as error:
            raise DataError(f"--from: can't run {self._argv[0]}: {error.strerror}") from error
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError:  # asyncio's word for a line above the limit
            line = b"{"
        if not line:
            raise DataError(f"--from: {self._argv[0]} ended without a word", await self._complaint())
        self._header = self._codec.header(line, f"the output of {self._argv[0]}")

    async def run(self, sink: Sink) -> None:
        if self._process is None:
            await self.open()
            sink.reset()
        assert self._process is not None and self._process.stdout is not None
        self._sink = sink
        try:
            async for line in self._process.stdout:
                try:
                    sample = self._codec.sample(line)
                except NotDecoded:
                    continue
                if sample is not None:
                    self._last = sample
                    sink.put(sample)
            self._say_ended(sink, await self._complaint())
            await asyncio.Event().wait()
        except ValueError:  # asyncio's word for a line above the limit
            self._say_ended(sink, f"it sent a line above {LINE_MAX_BYTES >> 20} MiB: no stream of decodetop")
            await asyncio.Event().wait()
        finally:
            await self._stop()

    def submit(self, command: Command) -> None:
        """A pipe only brings samples; say so."""
        if self._sink is not None and self._last is not None:
            word = f"can't {command.title or type(command).__name__} over --from; do it on the box itself"
            notice = Notice(level="warning", message=word)
            self._sink.put(Sample(source="notice", t_ns=self._last.t_ns, seq=self._last.seq, reading=notice))

    def _say_ended(self, sink: Sink, complaint: str) -> None:
        failure = Failure(kind="lost", message="the pipe ended", hint=complaint)
        t_ns, seq = (self._last.t_ns, self._last.seq) if self._last else (0, 0)
        sink.put(Sample(source="pipe", t_ns=t_ns, seq=seq, failure=failure))

    async def _complaint(self) -> str:
        """The last line the command wrote to stderr."""
        if self._process is None or self._process.stderr is None:
            return ""
        text = (await self._process.stderr.read()).decode("utf-8", "replace").strip()
        return text.splitlines()[-1][:200] if text else ""

    async def _stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        for word in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, word)
                await asyncio.wait_for(process.wait(), STOP_S)
            except ProcessLookupError:
                return
            except TimeoutError:
                continue
            return
