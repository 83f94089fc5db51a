"""One load at a time on a server: benchmarks and captures of all this user's decodetops."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from decodetop.core.outside import plain
from decodetop.errors import UsageError
from decodetop.server.client import host_port

_HERE = frozenset({"localhost", "0.0.0.0", "::1", "::"})


def folder() -> Path:
    """Of the locks; emptied by a reboot."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "decodetop" if runtime else Path(tempfile.gettempdir()) / f"decodetop-{os.getuid()}"


@contextlib.contextmanager
def claimed(endpoints: Sequence[str], what: str) -> Iterator[None]:
    """Hold the servers at `endpoints` for `what` (`a benchmark`). Raises UsageError when one is held already.

    Where no lock can be made the load goes on without: a full disk is no reason not to measure.
    """
    with contextlib.ExitStack() as held:
        for name, endpoint in sorted({_name(endpoint): endpoint for endpoint in endpoints}.items()):
            lock = _opened(folder() / name)
            if lock is not None:
                held.callback(os.close, lock)
                _hold(lock, endpoint, what)
        yield


def _hold(lock: int, endpoint: str, what: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = plain(os.pread(lock, 200, 0).decode("utf-8", "replace")) or "another decodetop"
        message = f"{endpoint} is under load already, by {holder}: both would be measured wrong"
        raise UsageError(message, "wait for its end, or stop it first") from None
    except OSError:
        return
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{what} of process {os.getpid()}".encode(), 0)


def _opened(path: Path) -> int | None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None


def _name(endpoint: str) -> str:
    """The same for all names of one port of this box."""
    host, port = host_port(endpoint)
    host = "here" if host in _HERE or host.startswith("127.") else host
    return f"load-{sha256(f'{host}:{port}'.encode()).hexdigest()[:16]}.lock"
