"""What systemd knows of a server's unit: its journal, followed by a child of ours, and its state.

The only commands are `journalctl -u UNIT` and `systemctl is-active UNIT`: both read, neither asks for a password.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

import msgspec

from decodetop.core.child import ends_with_us, gone
from decodetop.core.clock import SECOND_NS, Clock, Late, within
from decodetop.server.logfile import GROWN_BYTES, HEAD_BYTES

HEAD_S = 5.0
STATE_S = 2.0
AGAIN_S = 30.0
"""A journal that could not be followed, or ended, is tried again this late."""
_CHUNK = 64 << 10


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A systemd service; `of_user`: of the user's own manager."""

    name: str
    of_user: bool = False

    def argv(self, program: str) -> tuple[str, ...]:
        return (program, "--user") if self.of_user else (program,)


class Journal:
    """The journal of `unit` as a log. `since_s`: the server's start, in seconds of the wall clock."""

    def __init__(self, unit: Unit, since_s: float, clock: Clock) -> None:
        self._argv = (*unit.argv("journalctl"), "-u", unit.name, "-o", "cat", "--no-pager", "-q")
        self._since_s = since_s
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._due_ns: int | None = None
        self._held = b""

    async def head(self) -> str:
        argv = (*self._argv, "--since", f"@{int(self._since_s)}")
        said = await output(self._clock, HEAD_S, argv, HEAD_BYTES)
        return "" if said is None else said.decode("utf-8", "replace")

    async def grown(self) -> str:
        if self._reader is None or self._reader.done():
            await self._follow()
        text, self._held = self._held, b""
        return text.decode("utf-8", "replace")

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
        if self._process is not None:
            await _end(self._process)

    async def _follow(self) -> None:
        now_ns = self._clock.now_ns()
        if self._due_ns is not None and now_ns < self._due_ns:
            return
        self._due_ns = now_ns + int(AGAIN_S * SECOND_NS)
        if self._process is not None:
            await _end(self._process)
        self._process = await _started((*self._argv, "-f", "-n", "0"))
        if self._process is not None:
            self._reader = asyncio.ensure_future(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while chunk := await process.stdout.read(_CHUNK):
            self._held = (self._held + chunk)[-GROWN_BYTES:]


async def unit_state(unit: Unit, clock: Clock) -> tuple[str | None, str]:
    """`active`, `failed`, `activating`...; else None and why it is not known."""
    said = await output(clock, STATE_S, (*unit.argv("systemctl"), "is-active", "--", unit.name), _CHUNK)
    if said is None:
        return None, f"systemctl is not here or did not answer within {STATE_S:.0f} s"
    word = said.decode("utf-8", "replace").strip()
    if word.isascii() and word.isalpha() and len(word) < 20:
        return word, ""
    return None, "systemctl did not say"


async def output(clock: Clock, seconds: float, argv: Sequence[str], at_most: int) -> bytes | None:
    """What a command prints, its first `at_most` bytes; None when it can't be run or takes longer than `seconds`."""
    process = await _started(argv)
    if process is None:
        return None
    try:
        return await within(clock, seconds, _first_bytes(process, at_most))
    except Late as late:
        late.task.cancel()
        await asyncio.wait({late.task})
        return None
    finally:
        await _end(process)


async def _first_bytes(process: asyncio.subprocess.Process, at_most: int) -> bytes:
    assert process.stdout is not None
    said = bytearray()
    while len(said) < at_most and (chunk := await process.stdout.read(min(_CHUNK, at_most - len(said)))):
        said += chunk
    return bytes(said)


async def _started(argv: Sequence[str]) -> asyncio.subprocess.Process | None:
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=ends_with_us(),
        )
    except OSError:
        return None


async def _end(process: asyncio.subprocess.Process) -> None:
    """It only reads: nothing is lost by ending it at once."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await gone(process)
