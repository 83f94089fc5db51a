"""What every child process of ours is started with."""

from __future__ import annotations

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
