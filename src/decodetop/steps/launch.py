"""Runs the parser's process and listens to it; ends it when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from decodetop.core.child import gone
from decodetop.core.clock import SECOND_NS, Clock
from decodetop.core.decode import NotDecoded, decode_by
from decodetop.errors import TraceError
from decodetop.steps.reading import Parsing, StepsReport
from decodetop.steps.wire import Job, Said

LINE_MAX_BYTES = 64 << 20
"""A report's line; that of 8 ranks is below 1 MB."""
STOP_S = 2.0
"""For the child to go after SIGTERM, before SIGKILL."""

ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "100000000",
    "MALLOC_TRIM_THRESHOLD_": "200000000",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Of the parser's process, where the user says nothing else. glibc gives each chunk's megabytes back to the system and
faults them in again: a tenth of the time. numpy starts a thread for each core, which spin for a while and have nothing
to do: no matrix is multiplied here."""

_DECODER = msgspec.json.Decoder(Said)


async def parse(job: Job, clock: Clock, tell: Callable[[Parsing], None]) -> StepsReport:
    """The report of `job`, made in a child process. Cancelling ends the child.

    Raises TraceError if there is no report.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "decodetop.steps.child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_MAX_BYTES,
        start_new_session=True,
        env={**ENVIRONMENT, **os.environ},
    )
    try:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(job))
        process.stdin.close()
        said = await _listen(process, _Pace(job, clock, tell))
        if said is None:
            raise TraceError("the trace reader ended without a result", await _complaint(process))
        if said.report is None:
            raise TraceError(said.error or "the trace reader failed", said.hint)
        return said.report
    finally:
        await _end(process)


async def _listen(process: asyncio.subprocess.Process, pace: _Pace) -> Said | None:
    """The last word of the child: a report or an error."""
    assert process.stdout is not None
    async for line in process.stdout:
        try:
            said = decode_by(_DECODER, line)
        except NotDecoded:
            continue
        if said.report is not None or said.error is not None:
            return said
        pace.heard(said)
    return None


class _Pace:
    """Turns the child's words into progress over all files, with speed and time left."""

    def __init__(self, job: Job, clock: Clock, tell: Callable[[Parsing], None]) -> None:
        self._job, self._clock, self._tell = job, clock, tell
        self._start_ns = clock.now_ns()
        self._sizes = [_size(path) for path in job.paths]
        self._file = 0
        self._json_before = 0
        self._json_now = 0
        self.heard(Said(file=0))

    def heard(self, said: Said) -> None:
        file = self._file if said.file is None else said.file
        if file != self._file:
            self._file, self._json_before, self._json_now = file, self._json_before + self._json_now, 0
        self._json_now = said.json_bytes
        done = sum(self._sizes[:file]) + said.done_bytes
        total = max(sum(self._sizes), done)
        spent_s = (self._clock.now_ns() - self._start_ns) / SECOND_NS
        known = spent_s > 0 and done > 0
        self._tell(
            Parsing(
                files=self._job.paths,
                done_bytes=done,
                total_bytes=total,
                mb_s=(self._json_before + self._json_now) / 1e6 / spent_s if known else None,
                eta_s=(total - done) * spent_s / done if known else None,
            )
        )


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


async def _complaint(process: asyncio.subprocess.Process) -> str:
    """The last line the child wrote to stderr, and how it ended."""
    assert process.stderr is not None
    text = (await process.stderr.read()).decode("utf-8", "replace").strip()
    code = await process.wait()
    if code == -signal.SIGKILL:
        return "it was killed, perhaps for memory"
    return text.splitlines()[-1][:200] if text else f"exit code {code}"


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM to the child's group, SIGKILL if it doesn't hear; gone when this returns."""
    for word in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, word)
        waiting = asyncio.ensure_future(process.wait())
        await asyncio.wait({waiting}, timeout=STOP_S)
    await gone(process)
