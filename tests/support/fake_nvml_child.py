"""A GpuProbe in a process of its own, told by lines on stdin: read | begin | advance SECONDS | end | close.

`read` and `end` answer with one JSON line, {"reading": ..., "failure": ...}; the others with {}. Time is a
ManualClock's, so hours of driver trouble take no time.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from decodetop.core.sample import Reading, failure_of
from decodetop.errors import DecodetopError
from decodetop.gpu.probe import GpuProbe
from support.clock import ManualClock


def _say(answer: object) -> None:
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    sys.stdout.flush()


async def _result(reading: asyncio.Future[Reading]) -> dict[str, object]:
    try:
        return {"reading": await reading, "failure": None}
    except DecodetopError as error:
        return {"reading": None, "failure": failure_of(error)}


async def _main() -> None:
    clock = ManualClock()
    probe = GpuProbe(clock)
    begun: asyncio.Future[Reading] | None = None
    while line := await asyncio.to_thread(sys.stdin.readline):
        word, _, argument = line.strip().partition(" ")
        if word == "begin":
            begun = asyncio.ensure_future(probe.read())
            await asyncio.sleep(0)
        elif word == "advance":
            await clock.advance(float(argument))
        elif word == "close":
            await probe.close()
        elif word == "read":
            _say(await _result(asyncio.ensure_future(probe.read())))
            continue
        elif word == "end" and begun is not None:
            _say(await _result(begun))
            continue
        _say({})


if __name__ == "__main__":
    asyncio.run(_main())
