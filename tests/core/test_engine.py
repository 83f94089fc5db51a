"""Cadence, back-off, deadlines, commands and cancellation, on a clock that moves only when told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from decodetop.core.clock import SECOND_NS
from decodetop.core.engine import Engine
from decodetop.core.sample import Notice
from decodetop.core.source import Refresh, SetRate
from decodetop.errors import DataError, ProbeError
from support.clock import ManualClock
from support.probes import HEADER, Count, CountingProbe, Knock, KnockService, Sink
from support.running import running


@contextlib.asynccontextmanager
async def heard(engine: Engine) -> AsyncIterator[Sink]:
    sink = Sink()
    async with running(engine, sink):
        yield sink


def seconds(sink: Sink, source: str) -> list[float]:
    return [sample.t_ns / SECOND_NS for sample in sink.of(source)]


async def test_each_probe_keeps_its_own_period() -> None:
    clock = ManualClock()
    fast, slow = CountingProbe("fast", 0.5), CountingProbe("slow", 2.0)
    async with heard(Engine(HEADER, clock, [fast, slow])) as sink:
        await clock.advance(4)
    assert seconds(sink, "fast") == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]
    assert seconds(sink, "slow") == [0, 2, 4]
    assert seconds(sink, "clock") == [0, 1, 2, 3, 4]
    assert [sample.seq for sample in sink.samples] == list(range(len(sink.samples)))


async def test_missed_ticks_are_skipped_not_queued() -> None:
    clock = ManualClock()
    probe = CountingProbe(period_s=1, deadline_s=60, fault=lambda n: sleep(clock, 2.5) if n == 1 else None)
    async with heard(Engine(HEADER, clock, [probe])) as sink:
        await clock.advance(6)
    assert seconds(sink, "count") == [0, 3.5, 4, 5, 6]


async def test_a_failing_probe_backs_off_and_recovers() -> None:
    clock = ManualClock()

    def fault(n: int) -> None:
        if 1 <= n <= 4:
            raise ProbeError("absent", "no server answers", "start one")

    probe = CountingProbe(period_s=1, fault=fault)
    engine = Engine(HEADER, clock, [probe])
    async with heard(engine) as sink:
        await clock.advance(20)
        failures = [sample.failure for sample in sink.of("count") if sample.failure]
        assert [failure.retry_in_s for failure in failures] == [1, 2, 4, 8]
        assert seconds(sink, "count")[:6] == [0, 1, 2, 4, 8, 16]
        assert {(failure.kind, failure.hint) for failure in failures} == {("absent", "start one")}
        lane = engine.state.lane("count")
        assert lane.failure is None and isinstance(lane.last, Count)


async def test_back_off_ends_at_half_a_minute() -> None:
    clock = ManualClock()

    def fault(n: int) -> None:
        raise ProbeError("absent", "gone")

    async with heard(Engine(HEADER, clock, [CountingProbe(period_s=1, fault=fault)])) as sink:
        await clock.advance(600)
    waits = [sample.failure.retry_in_s for sample in sink.of("count") if sample.failure]
    assert max(wait for wait in waits if wait) == 30
    assert len(waits) > 20


async def test_a_stalled_probe_is_said_once_and_gets_no_second_call() -> None:
    clock = ManualClock()
    stuck: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    probe = CountingProbe(period_s=1, deadline_s=3, fault=lambda n: stuck if n == 1 else None)
    other = CountingProbe("other", 1)
    async with heard(Engine(HEADER, clock, [probe, other])) as sink:
        await clock.advance(10)
        failures = [sample for sample in sink.of("count") if sample.failure]
        assert [(sample.t_ns / SECOND_NS, sample.failure.kind) for sample in failures if sample.failure] == [
            (4, "stalled")
        ]
        assert probe.reads == 2
        assert len(sink.of("other")) == 11
        stuck.set_result(None)
        await clock.advance(2)
        assert probe.reads > 2
        assert sink.of("count")[-1].failure is None


async def test_what_nobody_raised_on_purpose_is_broken_and_named() -> None:
    clock = ManualClock()

    def fault(n: int) -> None:
        raise ZeroDivisionError("by accident")

    async with heard(Engine(HEADER, clock, [CountingProbe(fault=fault)])) as sink:
        await clock.advance(0)
    failure = sink.of("count")[0].failure
    assert failure is not None and failure.kind == "broken" and "ZeroDivisionError: by accident" in failure.message


async def test_cancelling_closes_the_probes() -> None:
    clock = ManualClock()
    probe = CountingProbe()
    async with heard(Engine(HEADER, clock, [probe])):
        await clock.advance(1)
        assert not probe.closed
    assert probe.closed


async def test_commands_answer_by_notices() -> None:
    clock = ManualClock()
    engine = Engine(HEADER, clock, services=[KnockService()])
    async with heard(engine) as sink:
        await clock.advance(0)
        engine.submit(Knock(times=3))
        await clock.advance(0)
    assert notices(sink) == ["knocked 3 times"]


async def test_readonly_refuses_what_touches() -> None:
    clock = ManualClock()
    engine = Engine(HEADER, clock, services=[KnockService()], readonly=True)
    async with heard(engine) as sink:
        await clock.advance(0)
        engine.submit(Knock())
        await clock.advance(0)
    assert notices(sink) == ["can't Knock: started with --readonly"]


async def test_a_failed_command_says_why_and_ends_nothing() -> None:
    clock = ManualClock()
    engine = Engine(HEADER, clock, [CountingProbe()], [KnockService(DataError("disk full", "make room"))])
    async with heard(engine) as sink:
        await clock.advance(0)
        engine.submit(Knock())
        await clock.advance(2)
    assert notices(sink) == ["disk full"]
    assert len(sink.of("count")) == 3


async def test_a_command_nobody_handles_is_said() -> None:
    clock = ManualClock()
    engine = Engine(HEADER, clock)
    async with heard(engine) as sink:
        await clock.advance(0)
        engine.submit(Knock())
    assert notices(sink) == ["can't Knock: nothing here can do that"]


async def test_refresh_reads_now_and_rate_stretches_the_period() -> None:
    clock = ManualClock()
    probe = CountingProbe(period_s=10)
    engine = Engine(HEADER, clock, [probe])
    async with heard(engine) as sink:
        await clock.advance(3)
        engine.submit(Refresh())
        await clock.advance(0)
        assert seconds(sink, "count") == [0, 3]
        engine.submit(SetRate(factor=0.1))
        await clock.advance(2)
        assert len(sink.of("count")) >= 4


async def test_a_service_that_fails_is_started_again() -> None:
    clock = ManualClock()

    class Failing(KnockService):
        starts = 0

        async def run(self, context: object) -> None:
            Failing.starts += 1
            raise DataError("can't watch the folder")

    async with heard(Engine(HEADER, clock, services=[Failing()])) as sink:
        await clock.advance(10)
    assert Failing.starts == 4  # at 0, 1, 3 and 7 s
    failure = sink.of("knock")[0].failure
    assert failure is not None and failure.message == "can't watch the folder"


def notices(sink: Sink) -> list[str]:
    return [sample.reading.message for sample in sink.of("notice") if isinstance(sample.reading, Notice)]


def sleep(clock: ManualClock, seconds: float) -> asyncio.Future[None]:
    return asyncio.ensure_future(clock.sleep_until(clock.now_ns() + int(seconds * SECOND_NS)))
