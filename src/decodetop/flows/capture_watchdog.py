"""`python -m decodetop.flows.capture_watchdog`: stops a server's profiler when the decodetop that started it is gone.

On stdin a Duty, then `armed` before the profile starts, then `done` when it is known to have stopped. When stdin ends
while armed, it stops the profiler and takes the marker away. 0 = the profiler is known not to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

from decodetop.bench.launch import KEY
from decodetop.core.clock import SECOND_NS, Clock, SystemClock
from decodetop.core.decode import decode
from decodetop.errors import RequestError
from decodetop.flows.capture_client import ProfileClient
from decodetop.flows.capture_guard import ARMED, DONE, READY, Duty
from decodetop.flows.capture_profile import stop

STOP_S = 900.0
"""vLLM answers when the trace is written: minutes where many requests ran under it."""
TRIES = 3
AGAIN_S = 2.0


def main() -> int:
    """Read the duty and watch over it."""
    key = os.environ.pop(KEY, None)
    duty = decode(sys.stdin.buffer.readline(), Duty)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    word = READY
    for line in sys.stdin.buffer:
        word = line
    if word == ARMED:
        return asyncio.run(stopped(duty, key, SystemClock()))
    if word != DONE:
        _forget(duty)  # it died before there was a profile
    return 0


def _forget(duty: Duty) -> None:
    """Nobody else can have taken the marker: this process holds its lock."""
    with contextlib.suppress(OSError):
        os.ftruncate(duty.lock_fd, 0)
        Path(duty.marker).unlink(missing_ok=True)


async def stopped(duty: Duty, key: str | None, clock: Clock) -> int:
    """Try a few times; the marker stays when the profiler may still run."""
    client = ProfileClient(duty.endpoint, clock, key)
    for attempt in range(TRIES):
        if attempt:
            await clock.sleep_until(clock.now_ns() + int(AGAIN_S * SECOND_NS))
        with contextlib.suppress(RequestError):
            await stop(client, duty.engine, STOP_S)
            _forget(duty)
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
