"""A terminal of our own: a pty, the program in it, and pyte drawing what it writes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pyte

PATIENCE_S = 30.0
"""How long a test waits for something that must happen; only a failing test waits so long."""

QUIET_S = 0.5
"""Two frames of the face: after such a silence nothing more comes."""

TESTS = Path(__file__).resolve().parents[1]


class Terminal:
    """Runs `argv` in a pty of `columns` x `lines`. `hang_up_ignored`: as under nohup."""

    def __init__(
        self,
        argv: Sequence[str],
        columns: int = 120,
        lines: int = 40,
        env: Mapping[str, str] | None = None,
        *,
        hang_up_ignored: bool = False,
    ) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._ended = False

        def prepare() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if hang_up_ignored:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)

        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        environment = {**inherited, "PYTHONPATH": str(TESTS), **(env or {})}
        self.process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, env=environment, preexec_fn=prepare, close_fds=True
        )
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Take the terminal away."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def read(self, seconds: float) -> bytes:
        """What it writes next, b"" after `seconds` of silence or at its end."""
        if self._ended or not select.select([self.master], [], [], seconds)[0]:
            return b""
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # EIO: nobody has the other side open any more
            self._ended = True
            return b""
        self.raw += data
        with contextlib.suppress(TypeError):  # pyte does not know the private queries
            self._stream.feed(data)
        return data

    def until(self, done: Callable[[Terminal], bool]) -> None:
        """Read until `done`; fails the test with the screen when that never comes."""
        waited = 0.0
        while not done(self):
            if not self.read(0.1):
                waited += 0.1
            assert waited < PATIENCE_S and not self._ended, "never came; the screen:\n" + "\n".join(self.screen.display)

    def shows(self, word: str) -> bool:
        return any(word in line for line in self.screen.display)

    def settle(self) -> bytes:
        """Read until it is quiet; gives what came."""
        found = b""
        while data := self.read(QUIET_S):
            found += data
        return found

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.killpg(self.process.pid, signal.SIGWINCH)

    def wait(self) -> int:
        """Read until the program is gone; its exit code."""
        while not self._ended:
            some = self.read(PATIENCE_S)
            assert some or self._ended, "it does not end; the screen:\n" + "\n".join(self.screen.display)
        return self.process.wait(PATIENCE_S)
