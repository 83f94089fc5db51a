"""What systemd knows of a server's unit: its journal, followed by a child of ours, and its state.

The only commands are `journalctl -u UNIT` and `systemctl is-active UNIT`: both read, neither asks for a password.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from decodetop.core.child import ends_with_us, gone
from decodetop.core.clock import SECOND_NS, Clock, Late, within
from decodetop.server.logfile import GROWN_BYTES, HEAD_BYTES
from decodetop.server.redact import redact_text

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
        self.where = f"the journal of {unit.name}"
        self.trouble: str | None = None
        # not -q: what journalctl says of missing permission is the reason that is wanted
        self._argv = (*unit.argv("journalctl"), "-u", unit.name, "-o", "cat", "--no-pager")
        self._since_s = since_s
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._due_ns: int | None = None
        self._held = b""

    async def head(self) -> str:
        argv = (*self._argv, "--since", f"@{int(self._since_s)}")
        said = await output(self._clock, HEAD_S, argv, HEAD_BYTES)
        if said is None:
            self.trouble = f"journalctl is not here or did not answer within {HEAD_S:.0f} s"
            return ""
        self.trouble = None if said.out else said.complaint
        return said.out.decode("utf-8", "replace")

    async def grown(self) -> str:
        if self._reader is None or self._reader.done():
            await self._follow()
        text, self._held = self._held, b""
        if text:
            self.trouble = None
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
        if self._process is None:
            self.trouble = "journalctl can't be run here"
        else:
            self._reader = asyncio.ensure_future(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None and process.stderr is not None
        complaining = asyncio.ensure_future(self._hear(process.stderr))
        try:
            while chunk := await process.stdout.read(_CHUNK):
                self._held = (self._held + chunk)[-GROWN_BYTES:]
            await complaining
            self.trouble = self.trouble or "journalctl ended by itself"
        finally:
            complaining.cancel()

    async def _hear(self, errors: asyncio.StreamReader) -> None:
        """Its first complaint; the rest is read lest it waits for us."""
        said = b""
        while chunk := await errors.read(_CHUNK):
            said = (said + chunk)[:_CHUNK]
            self.trouble = _first_line(said) or self.trouble


async def unit_state(unit: Unit, clock: Clock) -> tuple[str | None, str]:
    """`active`, `failed`, `activating`...; else None and why it is not known."""
    said = await output(clock, STATE_S, (*unit.argv("systemctl"), "is-active", "--", unit.name), _CHUNK)
    if said is None:
        return None, f"systemctl is not here or did not answer within {STATE_S:.0f} s"
    word = said.out.decode("utf-8", "replace").strip()
    if word.isascii() and word.isalpha() and len(word) < 20:
        return word, ""
    return None, "systemctl did not say"


class Said(NamedTuple):
    """What a command printed; `complaint` is the first line of its standard error."""

    out: bytes
    complaint: str | None


async def output(clock: Clock, seconds: float, argv: Sequence[str], at_most: int) -> Said | None:
    """What a command prints, its first `at_most` bytes; None when it can't be run or takes longer than `seconds`."""
    process = await _started(argv)
    if process is None:
        return None
    assert process.stdout is not None and process.stderr is not None
    errors = asyncio.ensure_future(_first_bytes(process.stderr, _CHUNK))
    try:
        out = await within(clock, seconds, _first_bytes(process.stdout, at_most))
        return Said(out, _first_line(await errors) if not out else None)
    except Late as late:
        late.task.cancel()
        await asyncio.wait({late.task})
        return None
    finally:
        errors.cancel()
        await _end(process)


async def _first_bytes(stream: asyncio.StreamReader, at_most: int) -> bytes:
    said = bytearray()
    while len(said) < at_most and (chunk := await stream.read(min(_CHUNK, at_most - len(said)))):
        said += chunk
    return bytes(said)


def _first_line(said: bytes) -> str | None:
    """Without keys, one line of what can be read."""
    lines = said.decode("utf-8", "replace").split("\n")
    first = next((line for line in lines if line.strip()), "")
    words = " ".join(redact_text(first).removeprefix("Hint: ").split())
    return "".join(letter for letter in words if letter.isprintable())[:160] or None


async def _started(argv: Sequence[str]) -> asyncio.subprocess.Process | None:
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
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
