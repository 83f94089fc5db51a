"""The real screen in a process of its own, on a source that moves only when told: R makes the next second happen."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from decodetop.cli.tui import show
from decodetop.config import Settings
from decodetop.core.sample import Command, Notice, Sample
from decodetop.core.source import Record, Sink
from support import states


class Steps:
    """A box with `gpu_count` GPUs; every figure changes every second."""

    header = states.header()

    def __init__(self, gpu_count: int) -> None:
        self._state = states.box(60, gpu_count)
        self._gpu_count = gpu_count
        self._tick = 60
        self._next = asyncio.Event()

    async def run(self, sink: Sink) -> None:
        for source, lane in self._state.lanes.items():
            for past in lane.history:
                sink.put(Sample(source=source, t_ns=past.t_ns, seq=0, reading=past.reading))
        while True:
            await self._next.wait()
            self._next.clear()
            self._tick += 1
            state = states.step(self._state, self._tick, self._gpu_count)
            for source in ("gpu", "server", "host", "clock"):
                past = state.lane(source).history[-1]
                sink.put(Sample(source=source, t_ns=past.t_ns, seq=self._tick, reading=past.reading))

    def submit(self, command: Command) -> None:
        if isinstance(command, Record):
            self._next.set()


class Bell:
    """Says something that rings, as soon as it is asked for anything."""

    header = states.header()

    def __init__(self) -> None:
        self._asked = asyncio.Event()

    async def run(self, sink: Sink) -> None:
        sink.put(Sample(source="clock", t_ns=0, seq=0, reading=states.ClockReading(wall_ns=states.WALL_NS)))
        await self._asked.wait()
        sink.put(Sample(source="notice", t_ns=1, seq=1, reading=Notice(message="the benchmark ended", ring=True)))
        await asyncio.Event().wait()

    def submit(self, command: Command) -> None:
        self._asked.set()


class Broken:
    """A source that ends before it says anything."""

    header = states.header()

    async def run(self, sink: Sink) -> None:
        from decodetop.errors import DataError

        raise DataError("the box does not answer", "check the line")

    def submit(self, command: Command) -> None: ...


def main() -> int:
    kind, investigation = sys.argv[1], Path(sys.argv[2])
    source = {"steps": lambda: Steps(8), "bell": Bell, "broken": Broken}[kind]()
    return show(source, Settings(investigation=investigation, quiet="quiet" in sys.argv))


if __name__ == "__main__":
    from decodetop.errors import DecodetopError

    try:
        sys.exit(main())
    except DecodetopError as error:
        print(f"decodetop: {error.message}", file=sys.stderr)
        sys.exit(error.exit_code)
