"""The terminal itself: may we draw, what to send it, and leaving it as it was whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from textual.drivers.linux_driver import LinuxDriver

from decodetop.errors import UsageError
from decodetop_tui.thrift import Thrift

LEAVE_S = 0.8
"""After a signal the terminal is restored and the process gone within this, even when the line hangs."""

DOUBTED_WRITES = 12
"""After a change of size so many writes (a frame is about three) are sent whole."""

_RESTORE = (
    "\x1b[?2026l\x1b[<u\x1b[?2004l\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?7h\x1b[0m\x1b[?25h\x1b[?1049l"
)
"""Sync off, keyboard protocol off, paste and mouse off, wrap on, colours off, cursor on, the main screen back."""


class Terminal(LinuxDriver):
    """Textual's driver, but only cells that differ are sent, and a copy also reaches the terminal around tmux.

    `thrift` is the app's, so that the app can ask for everything again.
    """

    thrift = Thrift()
    _doubt = 0

    def write(self, data: str) -> None:
        self._watch_size()
        text = self.thrift.feed(data)
        if data.startswith("\x1b]52;") and os.environ.get("TMUX"):
            # tmux passes on what is wrapped (allow-passthrough), or takes the bare one (set-clipboard on): send both
            text += f"\x1bPtmux;{data.replace(chr(27), chr(27) * 2)}\x1b\\"
        if text:
            super().write(text)

    def _watch_size(self) -> None:
        """A terminal that changes its size moves or drops what it showed; some do so a little later."""
        try:
            size = os.get_terminal_size(self.fileno)
        except OSError:
            return
        if (size.columns, size.lines) != self.thrift.size:
            self._doubt = DOUBTED_WRITES if self.thrift.size != (0, 0) else 0
            self.thrift.resize(size.columns, size.lines)
        elif self._doubt > 0:
            self._doubt -= 1
            self.thrift.forget()


def sparing(thrift: Thrift) -> type[Terminal]:
    """The driver for one app."""
    return type("SparingTerminal", (Terminal,), {"thrift": thrift})


def require(environ: Mapping[str, str]) -> None:
    """Raises UsageError where the screen could not be drawn or no key could be read."""
    other = "use the plain commands, for example `decodetop gpu --json` or `decodetop report`"
    if not (os.isatty(0) and sys.__stderr__ is not None and sys.__stderr__.isatty()):
        raise UsageError("the screen needs a terminal on stdin and stderr", f"with ssh use `ssh -t`; else {other}")
    if environ.get("TERM", "dumb") in ("dumb", ""):
        raise UsageError(f"TERM={environ.get('TERM', '')!r} can't show a screen", f"set TERM, or {other}")


def few_colours(environ: Mapping[str, str]) -> bool:
    """Whether only the sixteen colours can be trusted."""
    return environ.get("TERM", "") in ("linux", "screen", "xterm", "vt100", "vt220", "ansi") and not environ.get(
        "COLORTERM"
    )


def gone() -> bool:
    """Whether the terminal was closed under us; a hang-up that is ignored tells nothing else."""
    return not os.isatty(0)


class Leaving:
    """While open, SIGHUP and SIGTERM call `leave` and make sure the process is gone soon after.

    `signal.signal` and no loop handler: it also runs while the loop waits for a terminal that takes nothing.
    """

    def __init__(self, leave: Callable[[int], None], seconds: float = LEAVE_S) -> None:
        self._leave = leave
        self._seconds = seconds
        self._before: dict[int, Any] = {}
        self._attributes: list[Any] | None = None
        self._done = threading.Event()

    def __enter__(self) -> Leaving:
        try:
            self._attributes = termios.tcgetattr(0)
        except termios.error:
            self._attributes = None
        for word in (signal.SIGHUP, signal.SIGTERM):
            self._before[word] = signal.signal(word, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for word, handler in self._before.items():
            signal.signal(word, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.within(self._seconds)
        self._leave(number)

    def within(self, seconds: float) -> None:
        """End the process by force unless it has left the terminal in time."""
        threading.Thread(target=self._last_resort, args=(seconds,), name="decodetop-leave", daemon=True).start()

    def _last_resort(self, seconds: float) -> None:
        if self._done.wait(seconds):
            return
        # nobody may be there to see it, and who is there may take nothing
        with contextlib.suppress(OSError):
            os.set_blocking(2, False)
            os.write(2, _RESTORE.encode())
        with contextlib.suppress(OSError):
            os.set_blocking(2, True)  # the shell shares it
        if self._attributes is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, self._attributes)
        os._exit(0)
