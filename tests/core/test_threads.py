"""The feed and the call thread: nothing that is stuck blocks the loop or the exit."""

import asyncio
import threading

import pytest

from decodetop.core.clock import Late, SystemClock, within
from decodetop.core.engine import Engine
from decodetop.core.feed import Feed
from decodetop.core.thread import CallThread
from support.probes import HEADER, Count, CountingProbe, Knock, KnockService


async def test_calls_run_one_after_the_other_off_the_loop() -> None:
    thread = CallThread("test")
    names = [await thread.call(lambda: threading.current_thread().name) for _ in range(2)]
    assert names == ["test", "test"]
    with pytest.raises(ZeroDivisionError):
        await thread.call(lambda: 1 // 0)
    assert not thread.busy
    thread.close()


async def test_a_stuck_call_is_late_and_the_loop_goes_on() -> None:
    thread = CallThread("test")
    gate = threading.Event()
    with pytest.raises(Late) as late:
        await within(SystemClock(), 0.01, thread.call(gate.wait))
    assert thread.busy
    gate.set()
    assert await late.value.task
    assert not thread.busy
    thread.close()


def feed_of(*probes: CountingProbe) -> Feed:
    return Feed(Engine(HEADER, SystemClock(), probes, [KnockService()]))


def wait_for(feed: Feed, event: threading.Event) -> None:
    feed.start()
    assert event.wait(10)


def test_a_feed_publishes_and_stops() -> None:
    seen = threading.Event()
    probe = CountingProbe(period_s=0.01)
    feed = Feed(Engine(HEADER, SystemClock(), [probe]), lambda sample: seen.set() if sample.source == "count" else None)
    wait_for(feed, seen)
    assert isinstance(feed.latest.lane("count").last, Count)
    assert feed.stop()
    assert probe.closed


def test_a_command_reaches_the_engine_from_another_thread() -> None:
    answered = threading.Event()
    feed = Feed(
        Engine(HEADER, SystemClock(), services=[KnockService()]),
        lambda sample: answered.set() if sample.source == "notice" else None,
    )
    feed.start()
    feed.submit(Knock())
    assert answered.wait(10)
    assert feed.stop()


def test_a_feed_whose_source_dies_says_so() -> None:
    class Dying:
        header = HEADER

        async def run(self, sink: object) -> None:
            raise MemoryError("no more")

        def submit(self, command: object) -> None: ...

    ended = threading.Event()
    feed = Feed(Dying(), lambda sample: ended.set())
    wait_for(feed, ended)
    assert feed.stop()
    failure = feed.latest.lane("engine").failure
    assert failure is not None and "no more" in failure.message


async def test_within_hands_back_results_and_errors() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async def one() -> int:
        return 1

    assert await within(SystemClock(), 5, one()) == 1
    with pytest.raises(ValueError, match="no"):
        await within(SystemClock(), 5, fail())


async def test_cancelling_within_cancels_the_work() -> None:
    started = asyncio.Event()
    cancelled = asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    task = asyncio.ensure_future(within(SystemClock(), 60, work()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(cancelled.wait(), 5)
