"""Probes and services that do as a test tells them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from decodetop.core.engine import Context
from decodetop.core.sample import Command, Header, Notice, Reading, Sample


class Count(Reading, frozen=True, kw_only=True):
    """A reading that counts how often it was read."""

    n: int
    word: str | None = None


class Knock(Command, frozen=True, kw_only=True):
    touches = True

    times: int = 1


HEADER = Header(version="0", host="box", started_wall_ns=1_796_000_000_000_000_000)


class CountingProbe:
    """Reads 0, 1, 2, ...; `fault(n)` may raise or wait before reading n."""

    def __init__(
        self,
        source: str = "count",
        period_s: float = 1.0,
        deadline_s: float = 5.0,
        fault: Callable[[int], asyncio.Future[None] | None] | None = None,
    ) -> None:
        self.source = source
        self.period_s = period_s
        self.deadline_s = deadline_s
        self.reads = 0
        self.closed = False
        self._fault = fault

    async def read(self) -> Count:
        n = self.reads
        self.reads += 1
        waiting = self._fault(n) if self._fault is not None else None
        if waiting is not None:
            await waiting
        return Count(n=n)

    async def close(self) -> None:
        self.closed = True


class KnockService:
    """Answers Knock by a notice, or by raising `error`."""

    source = "knock"
    commands: tuple[type[Command], ...] = (Knock,)

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def run(self, context: Context) -> None:
        await asyncio.Event().wait()

    async def handle(self, command: Command, context: Context) -> None:
        assert isinstance(command, Knock)
        if self._error is not None:
            raise self._error
        context.notify(Notice(message=f"knocked {command.times} times"))


class Sink:
    """Keeps all samples; `of` picks a source's."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.resets = 0

    def put(self, sample: Sample) -> None:
        self.samples.append(sample)

    def reset(self) -> None:
        self.samples.clear()
        self.resets += 1

    def of(self, source: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.source == source]
