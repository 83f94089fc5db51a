"""The terminal's echo, off while a screen starts: what is typed then waits for the screen, and is not written over."""

from __future__ import annotations

import contextlib
import os
import termios
from typing import Any

Attributes = list[Any]
"""As `termios` has them."""

_before: Attributes | None = None


def off() -> None:
    """Until `back`, or until who called `taken` puts it right. Nothing where stdin is no terminal of ours."""
    global _before
    if _before is not None:
        return
    with contextlib.suppress(OSError, termios.error):
        if os.tcgetpgrp(0) != os.getpgrp():
            return  # in the background nobody types to us, and we would be stopped for it
        before = termios.tcgetattr(0)
        quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
        termios.tcsetattr(0, termios.TCSANOW, quiet)
        _before = before


def taken() -> Attributes | None:
    """How the terminal was before `off`; from now on it is the caller's to restore."""
    global _before
    before, _before = _before, None
    return before


def back() -> None:
    """As it was before `off`, unless that is another's by now."""
    before = taken()
    if before is not None:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(0, termios.TCSANOW, before)
