"""A monitor in a pseudo terminal, looked at from outside: what it draws, what it costs, what it asks the driver."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

COLUMNS, LINES = 120, 40
REPLIES = {
    b"\x1b[c": b"\x1b[?62;22c",  # what terminal are you
    b"\x1b[6n": b"\x1b[1;1R",  # where is the cursor
    b"\x1b[?2026$p": b"\x1b[?2026;2$y",  # can you draw a frame at once
}
"""Questions programs ask at start, and a plain terminal's answers."""
SEEN_BYTES = 1 << 16
STOP_S = 5.0
BURST_NS = 20_000_000
KEPT = ("PATH", "VIRTUAL_ENV", "PYTHONPATH")


class Used(NamedTuple):
    """CPU seconds of a process tree since its start."""

    user_s: float
    system_s: float

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s

    def since(self, before: Used) -> Used:
        return Used(self.user_s - before.user_s, self.system_s - before.system_s)


class Screen:
    """One program and its terminal: counts what it draws, answers what it asks."""

    def __init__(self, command: Sequence[str], home: Path, environment: Mapping[str, str]) -> None:
        self.bytes = 0
        self.seen = b""
        self.bursts = 0
        self.first_ns: int | None = None
        self.ended = False
        self._last_ns = 0
        self.started_ns = time.monotonic_ns()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            _become(command, home, environment)
        self._root = psutil.Process(self.pid)

    def take(self) -> None:
        """Read what is there."""
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return
        now_ns = time.monotonic_ns()
        self.first_ns = self.first_ns or now_ns
        self.bursts += now_ns - self._last_ns > BURST_NS
        self._last_ns = now_ns
        self.bytes += len(data)
        self.seen = (self.seen + data)[-SEEN_BYTES:]
        for question, answer in REPLIES.items():
            if question in data:
                os.write(self.fd, answer)

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def used(self) -> Used:
        """Of those alive, and of the children that were waited for."""
        user_s = system_s = 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                seen = process.cpu_times()
                user_s += seen.user + seen.children_user
                system_s += seen.system + seen.children_system
        return Used(user_s, system_s)

    def rss_mib(self) -> float:
        total = 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss / 2**20
        return total

    def threads(self) -> int:
        return sum(process.num_threads() for process in self._processes())

    def close(self) -> None:
        """SIGTERM, then SIGKILL."""
        for word in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, word)
            end_ns = time.monotonic_ns() + int(STOP_S * 1e9)
            while time.monotonic_ns() < end_ns:
                with contextlib.suppress(OSError):
                    if select.select([self.fd], [], [], 0.05)[0]:
                        os.read(self.fd, 1 << 16)
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    os.close(self.fd)
                    return

    def _processes(self) -> Iterator[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield from (self._root, *self._root.children(recursive=True))


def watch(screens: Sequence[Screen], seconds: float) -> None:
    """Read all of them until `seconds` have passed."""
    end_ns = time.monotonic_ns() + int(seconds * 1e9)
    while (left_ns := end_ns - time.monotonic_ns()) > 0:
        alive = {screen.fd: screen for screen in screens if not screen.ended}
        if not alive:
            return
        for fd in select.select(list(alive), [], [], left_ns / 1e9)[0]:
            alive[fd].take()


def machine_s() -> float:
    """Busy CPU seconds of all cores since boot."""
    used = psutil.cpu_times()
    return float(used.user + used.nice + used.system + used.irq + used.softirq)


def _become(command: Sequence[str], home: Path, environment: Mapping[str, str]) -> None:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    given = {**kept, "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", **environment}
    try:
        os.execvpe(command[0], command, given)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)
