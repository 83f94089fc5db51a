"""From before a profile starts until it is known to have stopped: a marker on disk, and a child that outlives us.

The marker is locked by us and by the child (flock goes with the open file, which the child inherits): as long as one
of them lives nobody takes it for a leftover, whatever ended the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from decodetop.bench.launch import environment
from decodetop.core.decode import NotDecoded, decode
from decodetop.errors import DataError, RequestError
from decodetop.steps.reading import LeftProfiling

MARKER = "profiling.json"
"""In the investigation."""

REAP_S = 5.0
READY, ARMED, DONE = b"ready\n", b"armed\n", b"done\n"

Outcome = Literal["stopped", "failed"]


class Duty(msgspec.Struct, frozen=True, kw_only=True):
    """The child's first line. `lock_fd` is the marker's file, which it has inherited."""

    endpoint: str
    engine: str
    marker: str
    lock_fd: int


def left_behind(folder: Path) -> LeftProfiling | None:
    """The profile that nobody looks after any more, if the investigation `folder` tells of one."""
    try:
        with (folder / MARKER).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return decode(file.read(), LeftProfiling)
    except (OSError, NotDecoded):
        return None


def forget(folder: Path) -> None:
    """It is known to have stopped."""
    with contextlib.suppress(OSError):
        (folder / MARKER).unlink(missing_ok=True)


class Guard:
    """`ready`, then `arm` just before the profile is started, then `disarm` or `let_go`. Methods may block shortly."""

    def __init__(self, folder: Path, left: LeftProfiling, key: str | None) -> None:
        self._marker = folder / MARKER
        self._left = left
        self._key = key
        self._lock: BinaryIO | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._armed = False

    def ready(self) -> None:
        """Lock the marker and start the child. Raises DataError, RequestError when another capture is under way."""
        self._lock = _locked(self._marker)
        try:
            self._child = self._started(self._lock.fileno())
        except BaseException:
            self.disarm()
            raise

    def arm(self) -> None:
        """From now on the profile is stopped whatever becomes of us. Raises DataError when the child is gone."""
        assert self._lock is not None
        self._lock.seek(0)
        self._lock.truncate()
        self._lock.write(msgspec.json.encode(self._left))
        self._lock.flush()
        self._armed = True
        if not self._say(ARMED):
            self.disarm()
            raise DataError("the process that would stop the profiler if decodetop died is gone", "try again")

    def disarm(self) -> None:
        """The profiler is known not to run."""
        self._armed = False
        child = self._child if self._say(DONE) else None
        if self._lock is not None:
            # an empty marker tells of nothing, also where it can't be deleted
            with contextlib.suppress(OSError):
                self._lock.truncate(0)
                self._marker.unlink(missing_ok=True)
        self._close()
        if child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(REAP_S)

    def let_go(self) -> Callable[[], Outcome | None]:
        """Leave it to the child, which stops the profiler at once. The result tells what came of it, None = not yet."""
        child = self._child
        self._close()

        def outcome() -> Outcome | None:
            code = None if child is None else child.poll()
            if child is not None and code is None:
                return None
            return "stopped" if code == 0 else "failed"

        return outcome

    @property
    def armed(self) -> bool:
        return self._armed

    def _started(self, lock_fd: int) -> subprocess.Popen[bytes]:
        """Not by asyncio: it kills its children when its loop ends, and this one is for after that."""
        duty = Duty(endpoint=self._left.endpoint, engine=self._left.engine, marker=str(self._marker), lock_fd=lock_fd)
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "decodetop.flows.capture_watchdog"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(lock_fd,),
                env=environment(os.environ, self._key),
            )
        except OSError as error:
            message = f"can't start the process that stops the profiler if decodetop dies: {error.strerror}"
            raise DataError(message, "is the box out of processes or memory?") from error
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(OSError):
            child.stdin.write(msgspec.json.encode(duty) + b"\n")
            child.stdin.flush()
        if child.stdout.readline() != READY:
            child.stdin.close()
            child.stdout.close()
            child.kill()
            child.wait()
            raise DataError("the process that stops the profiler if decodetop dies did not start", "report it")
        return child

    def _say(self, word: bytes) -> bool:
        if self._child is None or self._child.stdin is None or self._child.stdin.closed:
            return False
        try:
            self._child.stdin.write(word)
            self._child.stdin.flush()
        except OSError:
            return False
        return True

    def _close(self) -> None:
        if self._child is not None:
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _locked(marker: Path) -> BinaryIO:
    """Raises DataError, or RequestError when somebody holds it."""
    elsewhere = "choose another place with --investigation DIR"
    while True:
        try:
            marker.parent.mkdir(parents=True, exist_ok=True)
            file = os.fdopen(os.open(marker, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        except OSError as error:
            raise DataError(f"can't write {marker}: {error.strerror or error}", elsewhere) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            hint = "wait for its end; one that was broken off is stopped by a process of its own, which takes its time"
            raise RequestError(f"another capture is under way in {marker.parent}", hint) from None
        except OSError as error:
            file.close()
            raise DataError(f"can't lock {marker}: {error.strerror or error}", elsewhere) from error
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(file.fileno()).st_ino == marker.stat().st_ino:
                return file
        file.close()  # its last holder deleted it between the two calls
