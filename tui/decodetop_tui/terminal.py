"""The terminal itself: may we draw, what to send it, and leaving it as it was whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import FrameType
from typing import Any

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from decodetop.errors import UsageError
from decodetop_tui.keyboard import Keyboard
from decodetop_tui.plain import Spelling, spelling
from decodetop_tui.thrift import Cell, Thrift

LEAVE_S = 0.8
"""After a signal the terminal is restored and the process gone within this, even when the line hangs."""

DOUBTED_WRITES = 12
"""After a change of size so many writes (a frame is about three) are sent whole."""

_FRAME_START, _FRAME_END = "\x1b[?2026h", "\x1b[?2026l"

_RESTORE = (
    "\x1b[?2026l\x1b[<u\x1b[?2004l\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?7h\x1b[0m\x1b[?25h\x1b[?1049l"
)
"""Sync off, keyboard protocol off, paste and mouse off, wrap on, colours off, cursor on, the main screen back."""


QUIET_S = 0.1
"""So long nothing must come before a lone Esc is the key."""

QUEUE_MOST = 256
"""Messages the app may have before it: more is left in the line, however much is typed or pasted."""


Attributes = list[Any]
"""A terminal's, as `termios` has them."""


class Terminal(LinuxDriver):
    """Textual's driver, but only cells that differ are sent, and a copy also reaches the terminal around tmux.

    What comes in is read by `keyboard`. `thrift` is the app's, so that the app can ask for everything again.
    `before`: how to leave the terminal, where its echo is off already.
    """

    thrift = Thrift()
    before: Attributes | None = None
    _doubt = 0
    _sent: Future[bool] | None = None
    _away = False
    _pipe: list[int]
    """To wake the thread that reads: its end of it, and ours."""
    _spelling: Spelling | None = None

    def __init__(self, app: App[Any], **more: Any) -> None:
        super().__init__(app, **more)
        self._spelling = spelling(os.environ, getattr(self._file, "encoding", None) or "ascii")
        self._pipe = []

    def close(self) -> None:
        super().close()
        while self._pipe:
            os.close(self._pipe.pop())

    def write(self, data: str) -> None:
        self._watch_size()
        text = self.thrift.feed(data)
        if data.startswith("\x1b]52;") and os.environ.get("TMUX"):
            # tmux passes on what is wrapped (allow-passthrough), or takes the bare one (set-clipboard on): send both
            text += f"\x1bPtmux;{data.replace(chr(27), chr(27) * 2)}\x1b\\"
        if text:
            self._tell(text)

    @property
    def sure(self) -> bool:
        """It is ours, and what it shows is known: its size has not changed just now."""
        self._watch_size()
        return not self._away and self._doubt == 0

    def send(self, changes: Sequence[tuple[int, int, Sequence[Cell]]], *, at_once: bool) -> None:
        """Show cells at places (column, line), as one frame if the terminal can."""
        for x, y, cells in changes:
            self.thrift.put(x, y, cells)
        text = self.thrift.difference()
        if text:
            self._tell(f"{_FRAME_START}{text}{_FRAME_END}" if at_once else text)

    def _tell(self, text: str) -> None:
        super().write(text if self._spelling is None else self._spelling(text))

    def run_input_thread(self) -> None:
        """Read until told to end or the terminal is gone; it sleeps in between, since each look costs."""
        keyboard, wait_s, told = Keyboard(mouse=self._mouse), None, self._pipe[0]
        while not self.exit_event.is_set():
            try:
                ready = select.select([self.fileno, told], [], [], wait_s)[0]
                data = os.read(self.fileno, 1 << 12) if self.fileno in ready else b""
            except OSError:
                return
            if self.fileno in ready and not data:
                return
            self._hand_on(keyboard.feed(data) if data else keyboard.quiet())
            wait_s = QUIET_S if data else None

    def disable_input(self) -> None:
        if not self._pipe:
            return  # nobody reads
        told, tell = self._pipe
        os.write(tell, b".")
        super().disable_input()
        os.read(told, 1)

    def _hand_on(self, found: Iterable[Message]) -> None:
        """Give the app what was typed, no faster than it takes it."""
        for message in found:
            self.process_message(message)
            while self._sent is not None and not self._sent.done() and not self.exit_event.wait(0.002):
                pass
            while self._app.message_queue_size > QUEUE_MOST and not self.exit_event.wait(0.01):
                pass

    def send_message(self, message: Message) -> None:
        self._sent = asyncio.run_coroutine_threadsafe(self._app._post_message(message), loop=self._loop)

    def _query_in_band_window_resize(self) -> None:
        """The system tells of a new size (SIGWINCH); a terminal asked to do it too would send pixels for the mouse."""

    def start_application_mode(self) -> None:
        if self.before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.before)  # which is what Textual restores
        type(self).before = None
        self._pipe = self._pipe or list(os.pipe())
        super().start_application_mode()  # type: ignore[no-untyped-call]
        # in the background it may not, and is asked again when it is brought to the front
        self._away = self._key_thread is None or not self._key_thread.is_alive()

    def _sigtstp_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._go_away)

    def _sigcont_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._come_back, True)

    def _go_away(self) -> None:
        """Leave the terminal to the shell, and stop with all of the job: who started us may wait in it."""
        if self._away:
            return
        self.suspend_application_mode()
        self._away = True
        ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.killpg(os.getpgrp(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, ours)
        self._loop.call_soon(self._come_back, False)  # nobody may be there to stop for

    def _come_back(self, again: bool) -> None:
        """`again`: also where we stopped without a word, for what the shell did to the terminal then."""
        if again and not self._away:
            self.suspend_application_mode()
            self._away = True
        if self._away:
            self._must_signal_resume = True
            self.resume_application_mode()

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


def sparing(thrift: Thrift, before: Attributes | None = None) -> type[Terminal]:
    """The driver for one app."""
    return type("SparingTerminal", (Terminal,), {"thrift": thrift, "before": before})


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
    """While open, the signals that end a program call `leave` and make sure the process is gone soon after.

    `signal.signal` and no loop handler: it also runs while the loop waits for a terminal that takes nothing.
    """

    def __init__(
        self, leave: Callable[[int], None], seconds: float = LEAVE_S, *, before: Attributes | None = None
    ) -> None:
        self._leave = leave
        self._seconds = seconds
        self._before: dict[int, Any] = {}
        self._attributes = before
        self._done = threading.Event()

    def __enter__(self) -> Leaving:
        if self._attributes is None:
            with contextlib.suppress(termios.error):
                self._attributes = termios.tcgetattr(0)
        for word in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
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
