"""`decodetop steps capture`: profile a live server's decode steps and show where their time goes."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from decodetop.cli.common import Meter, agreed, complain, print_json, print_lines, tell
from decodetop.config import Settings, api_key
from decodetop.core.clock import SECOND_NS, SystemClock
from decodetop.core.engine import Context, Service
from decodetop.core.sample import Notice, Sample
from decodetop.errors import UsageError
from decodetop.flows.bench_window import fresh, server_at
from decodetop.flows.capture import CaptureService
from decodetop.flows.capture_headless import Driver, drive
from decodetop.flows.evidence import Linker
from decodetop.server.reading import Server, ServerReading
from decodetop.steps import text
from decodetop.steps.reading import CaptureSteps, LeftProfiling, StepsReading
from decodetop.steps.service import StepsService

T = TypeVar("T")

INTERRUPTED = 130
AGAIN_NS = SECOND_NS


def run(args: argparse.Namespace, settings: Settings, width: int) -> int:
    """0 with a step that may be believed. Raises UsageError, RequestError, TraceError, DataError."""
    if settings.readonly:
        raise UsageError("a capture touches the server: refused with --readonly", "leave --readonly out")
    key = api_key(settings)
    steps = StepsService(settings.investigation)
    service = CaptureService(settings.investigation, steps, lambda: key)
    if args.stop:
        return _stop(settings, key, steps, service)
    ask = CaptureSteps(
        endpoint=next(iter(settings.endpoints), None),
        load=args.load,
        steps=args.steps or CaptureSteps().steps,
    )
    question = partial(text.capture_question, ask.steps, ask.load, ask.endpoint)
    if not args.yes and not allowed("a capture", lambda server: f"Profile {question(server)}", settings, key):
        return 1
    driver = _driven(lambda context: service.capture(ask, context), settings, key, (steps, service))
    if not driver.done or driver.result is None:
        complain("interrupted; a profile under way is being stopped")
        return INTERRUPTED
    report = driver.result.report
    if args.json:
        print_json(report)
    else:
        print_lines(text.lines(report, width))
        print_lines(f"  {path}" for path in driver.result.files)
    return 0 if any(rank.coverage.ok for rank in report.ranks) else 1


def _stop(settings: Settings, key: str | None, steps: StepsService, service: CaptureService) -> int:
    driver: Driver[LeftProfiling] = _driven(service.stop_left, settings, key, (steps, service))
    if driver.result is None:
        return INTERRUPTED
    complain(f"the profiler of {driver.result.endpoint} does not run any more")
    return 0


def _driven(
    work: Callable[[Context], Awaitable[T]],
    settings: Settings,
    key: str | None,
    services: Sequence[Service],
) -> Driver[T]:
    teller, clock = _Teller(), SystemClock()
    linker = Linker(settings.investigation, clock)

    def heard(sample: Sample) -> None:
        teller.heard(sample)
        linker.hear(sample)

    try:
        return asyncio.run(drive(work, clock, settings.endpoints, key, services, heard))
    finally:
        teller.clear()
        for word in linker.words:
            complain(word)


def allowed(what: str, question: Callable[[Server | None], str], settings: Settings, key: str | None) -> bool:
    """Say what will be done to whom, and ask. `what` is going to do it. Raises UsageError where nobody can answer."""
    if not sys.stdin.isatty():
        raise UsageError(f"{what} asks before it profiles a server, and nobody can answer here", "--yes: do not ask")
    driver = _driven(_meant(next(iter(settings.endpoints), None)), settings, key, ())
    if not driver.done:
        return False
    tell(question(driver.result))
    return agreed()


def _meant(endpoint: str | None) -> Callable[[Context], Awaitable[Server | None]]:
    def now(context: Context) -> Server | None:
        reading = context.state.last("server", ServerReading) or ServerReading()
        return server_at(context, endpoint or reading.current or "")

    async def look(context: Context) -> Server | None:
        server = now(context)
        if server is not None and server.running:
            # twice, for only what moves tells whether requests are running
            await context.clock.sleep_until(context.clock.now_ns() + AGAIN_NS)
            await fresh(context, "server")
        return now(context)

    return look


class _Teller:
    """Progress in one line on a terminal; warnings in any case."""

    def __init__(self) -> None:
        self._meter = Meter()

    def heard(self, sample: Sample) -> None:
        if isinstance(sample.reading, Notice) and sample.reading.level == "warning":
            self._meter.clear()
            complain(sample.reading.message)
        elif isinstance(sample.reading, StepsReading) and sample.reading.taking.progress is not None:
            self._meter.show(text.capture_words(sample.reading.taking.progress))

    def clear(self) -> None:
        self._meter.clear()
