"""The tape source: plays a tape at any speed, forwards and back."""

from __future__ import annotations

import asyncio

from decodetop.core.clock import SECOND_NS, Clock
from decodetop.core.sample import Command, Header, Sample
from decodetop.core.source import ReplayReading, ReplaySpeed, Seek, Sink
from decodetop.core.tape import Tape

TICK_NS = SECOND_NS // 10


class TapeSource:
    """Plays `tape` at `speed` times real time (0 = paused) and stays at its end until told to seek."""

    def __init__(self, tape: Tape, clock: Clock, speed: float = 1.0) -> None:
        self._tape = tape
        self._clock = clock
        self._speed = speed
        self._next = 0
        self._position_ns = tape.begin_ns
        self._commands: list[Command] = []
        self._wake = asyncio.Event()

    @property
    def header(self) -> Header:
        return self._tape.header

    async def run(self, sink: Sink) -> None:
        before_ns = self._clock.now_ns()
        self._say(sink)
        with self._tape:
            while True:
                now_ns = self._clock.now_ns()
                self._advance(sink, int((now_ns - before_ns) * self._speed))
                before_ns = now_ns
                self._obey(sink)
                await self._sleep(now_ns + TICK_NS)

    def submit(self, command: Command) -> None:
        self._commands.append(command)
        self._wake.set()

    async def _sleep(self, until_ns: int) -> None:
        self._wake.clear()
        if self._commands:
            return
        sleep = asyncio.ensure_future(self._clock.sleep_until(until_ns))
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({sleep, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            woken.cancel()

    def _advance(self, sink: Sink, by_ns: int) -> None:
        second = self._position_ns // SECOND_NS
        self._position_ns = min(self._position_ns + by_ns, self._tape.end_ns)
        while self._next < len(self._tape.index) and self._tape.index[self._next][0] <= self._position_ns:
            self._put(sink, self._next)
            self._next += 1
        if self._position_ns // SECOND_NS != second or self._ended:
            self._say(sink)

    def _obey(self, sink: Sink) -> None:
        for command in self._commands:
            if isinstance(command, ReplaySpeed):
                self._speed = max(0.0, command.speed)
            elif isinstance(command, Seek):
                start_ns = self._position_ns
                if command.to_s is not None:
                    start_ns = self._tape.begin_ns + int(command.to_s * SECOND_NS)
                self._jump(sink, start_ns + int(command.by_s * SECOND_NS))
        if self._commands:
            self._commands.clear()
            self._say(sink)

    def _jump(self, sink: Sink, t_ns: int) -> None:
        self._position_ns = min(max(self._tape.begin_ns, t_ns), self._tape.end_ns)
        lines, self._next = self._tape.leading_to(self._position_ns)
        sink.reset()
        for line in lines:
            self._put(sink, line)

    def _put(self, sink: Sink, line: int) -> None:
        sample = self._tape.sample(line)
        if sample is not None:
            sink.put(sample)

    @property
    def _ended(self) -> bool:
        return self._next >= len(self._tape.index)

    def _say(self, sink: Sink) -> None:
        reading = ReplayReading(
            position_s=(self._position_ns - self._tape.begin_ns) / SECOND_NS,
            duration_s=(self._tape.end_ns - self._tape.begin_ns) / SECOND_NS,
            speed=self._speed,
            ended=self._ended,
            unknown_sources=tuple(sorted(self._tape.codec.unknown)),
            truncated=self._tape.truncated,
        )
        sink.put(Sample(source="replay", t_ns=self._position_ns, seq=self._next, reading=reading))
