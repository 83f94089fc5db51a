"""The load's own process: `python -m decodetop.bench.worker`, one Job on stdin, messages on stdout (see wire.py).

Its event loop carries the streams and nothing else: a screen on the same loop turns a true p99 ITL of 22 ms into 48.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from decodetop.bench.http import reason
from decodetop.bench.negotiate import Refused
from decodetop.bench.wire import Fatal, Up, decode_job, encode
from decodetop.bench.work import Worker
from decodetop.errors import DecodetopError

_PR_SET_PDEATHSIG = 1
"""linux/prctl.h"""


class Stdin:
    """`go` and the end of stdin, read by a thread of its own so that any kind of file may be stdin."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: BinaryIO) -> None:
        self.go = asyncio.Event()
        self.ended = asyncio.Event()
        self._loop = loop
        self._stream = stream
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    def _read(self) -> None:
        for line in self._stream:
            if line.strip() == b"go":
                self._say(self.go)
        self._say(self.ended)

    def _say(self, event: asyncio.Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the work is over
            self._loop.call_soon_threadsafe(event.set)


async def serve(source: BinaryIO, sink: BinaryIO, key: str | None) -> int:
    """Read the Job, do it, say how it went. The exit code."""

    def send(message: Up) -> None:
        sink.write(encode(message) + b"\n")
        sink.flush()

    job = decode_job(source.readline())
    if job.parent is not None and job.parent != os.getppid():
        return 1  # it died before it could be noticed
    loop = asyncio.get_running_loop()
    stdin = Stdin(loop, source)
    if not job.attended:
        stdin.go.set()
    worker = Worker(job, key, send, time.perf_counter_ns)
    loop.add_signal_handler(signal.SIGTERM, worker.stop.set)
    work = asyncio.ensure_future(worker.run(stdin.go))
    ended = asyncio.ensure_future(stdin.ended.wait() if job.attended else asyncio.Event().wait())
    await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if not work.done():
        work.cancel()  # nobody listens any more
        return 1
    try:
        await work
    except Refused as error:
        send(Fatal(message=error.message, hint=error.hint, kind=error.kind))
        return 1
    except DecodetopError as error:
        send(Fatal(message=error.message, hint=error.hint))
        return 1
    except OSError as error:
        message = f"can't open {job.plan.streams} connections to {job.plan.endpoint}: {reason(error)}"
        send(Fatal(message=message, hint="fewer streams, or a higher limit of open files (ulimit -n)"))
        return 1
    return 0


def _allow_many_files() -> None:
    """A connection is a file: as many as the box lets us have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _die_with_parent() -> None:
    """Also where the loop is too busy to see the end of stdin. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # no wheel for this platform: a third more CPU per token
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which says SIGTERM
    key = os.environ.pop("DECODETOP_API_KEY", None)
    _die_with_parent()
    _allow_many_files()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(serve(sys.stdin.buffer, sys.stdout.buffer, key))
    except BrokenPipeError:
        return 1  # nobody listens any more
    except Exception as error:  # noqa: BLE001  the process's edge
        word = Fatal(message=f"the load process broke: {type(error).__name__}: {error}"[:300], hint="report it")
        sys.stdout.buffer.write(encode(word) + b"\n")
        sys.stdout.buffer.flush()
        return 1


if __name__ == "__main__":
    sys.exit(main())
