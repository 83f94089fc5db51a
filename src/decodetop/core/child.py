"""How every child process of ours begins and ends."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def ends_with_us() -> Callable[[], None]:
    """For the child, before its program: the kernel ends it should we be killed, however little it writes."""
    parent = os.getpid()

    def ask() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # killed already
            os._exit(1)

    return ask


async def gone(process: asyncio.subprocess.Process) -> None:
    """Wait for a child that was killed; what it had still said is read and dropped.

    `wait` alone never returns while a full pipe is left unread: asyncio counts a child as gone when its pipes are.
    """
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(RuntimeError):  # someone reads it already, which does as well
                await stream.read()
    await process.wait()
