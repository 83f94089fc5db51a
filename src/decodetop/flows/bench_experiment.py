"""Carries an experiment out: start, wait until it answers, measure, stop; and whatever happens, put back what was."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from decodetop.bench.experiment import Attempt, Experiment, Outcome, compare
from decodetop.bench.reading import Run
from decodetop.core.clock import SECOND_NS, Clock
from decodetop.core.outside import plain
from decodetop.errors import DecodetopError, RequestError
from decodetop.flows.bench_variant import Stage, tail
from decodetop.server.redact import redact_text

LOOK_NS = SECOND_NS // 2
NAME_CHARS = 60
_NO_FILE = re.compile(r"[^\w.+=-]")
"""What of a variant's name stands in no file's name."""

Measure = Callable[[], Awaitable[Run]]
"""One run against the endpoint. Raises DecodetopError when nothing could be measured."""
Answers = Callable[[], Awaitable[bool]]
"""Whether the endpoint answers as an inference server."""


class Experimenter:
    """One experiment on one stage."""

    def __init__(
        self,
        experiment: Experiment,
        stage: Stage,
        measure: Measure,
        answers: Answers,
        clock: Clock,
        logs: Path,
        told: Callable[[str], None],
    ) -> None:
        """`logs`: the folder for the servers' logs. `told` hears what is being done."""
        self._experiment = experiment
        self._stage = stage
        self._measure = measure
        self._answers = answers
        self._clock = clock
        self._logs = logs
        self._told = told
        self.attempts: list[Attempt] = []

    async def run(self, starts: Sequence[tuple[int, str]], stop: asyncio.Event) -> Outcome:
        """Every start in turn until `stop`. The original server is put back in any case, also when cancelled.

        A variant that fails is an attempt with its reason. Raises RequestError when a server is in the way, or when
        the way back fails.
        """
        answered = await self._answers()
        try:
            await self._stage.clear()
            await self._wait_silent()
            for number, name in starts:
                if stop.is_set():
                    break
                await self._attempt(number, name, stop)
        finally:
            restored = await asyncio.shield(asyncio.ensure_future(self._restore()))
        if answered:
            restored = f"{restored}; {await self._back(stop)}"
        return Outcome(
            attempts=tuple(self.attempts),
            comparisons=compare(self._experiment, self.attempts),
            restored=restored,
            stopped=stop.is_set(),
        )

    async def _attempt(self, number: int, name: str, stop: asyncio.Event) -> None:
        log = self._logs / f"{len(self.attempts) + 1:02d}-{_NO_FILE.sub('_', name)[:NAME_CHARS]}.log"
        self._told(f"starting {name} #{number} ({log})")
        run: Run | None = None
        failed: str | None = None
        try:
            await self._stage.start(self._experiment.variants[name], log)
            failed = await self._wait(stop)
            if failed is None:
                self._told(f"measuring {name} #{number}")
                run = await self._measure()
        except DecodetopError as error:
            failed = str(error)
        if stop.is_set() and run is None:
            failed = "stopped by the operator"
        if failed is not None and (end := tail(log)):
            failed = f"{failed}; its log ends: {end}"
        words = None if failed is None else redact_text(plain(failed))
        self.attempts.append(Attempt(variant=name, round=number, run=run, failed=words, log=str(log)))
        await self._stage.stop()
        await self._wait_silent()

    async def _wait(self, stop: asyncio.Event) -> str | None:
        """Until the server answers; why it never did, if so."""
        until_ns = self._clock.now_ns() + int(self._experiment.healthy_s * SECOND_NS)
        while self._clock.now_ns() < until_ns and not stop.is_set():
            if await self._answers():
                return None
            ended = await self._stage.ended()
            if ended is not None:
                return ended
            await self._clock.sleep_until(self._clock.now_ns() + LOOK_NS)
        return f"no answer within {self._experiment.healthy_s:g} s"

    async def _wait_silent(self) -> None:
        """Until nothing answers any more: the next start needs the port. Raises RequestError."""
        until_ns = self._clock.now_ns() + int(self._experiment.stop_s * SECOND_NS)
        while await self._answers():
            if self._clock.now_ns() >= until_ns:
                message = f"{self._experiment.endpoint} still answers: another server is there"
                raise RequestError(message, "say how to stop and start it ([original]), or use another port")
            await self._clock.sleep_until(self._clock.now_ns() + LOOK_NS)

    async def _restore(self) -> str:
        try:
            return await self._stage.restore()
        except DecodetopError as error:
            raise RequestError(f"the original server is NOT back: {error.message}", error.hint) from error

    async def _back(self, stop: asyncio.Event) -> str:
        """Whether the server that answered before does so again; an operator who stops need not wait for it."""
        began_ns = self._clock.now_ns()
        self._told("waiting for the original server to answer")
        while not await self._answers():
            if stop.is_set():
                return "it does not answer yet"
            if self._clock.now_ns() - began_ns >= self._experiment.healthy_s * SECOND_NS:
                return f"it does NOT answer after {self._experiment.healthy_s:g} s: look at its log"
            await self._clock.sleep_until(self._clock.now_ns() + LOOK_NS)
        return f"it answers again after {(self._clock.now_ns() - began_ns) / SECOND_NS:.0f} s"
