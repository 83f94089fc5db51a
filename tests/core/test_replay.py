"""Replay: the same states at the same times, at any speed, forwards and back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from decodetop.core.clock import SECOND_NS
from decodetop.core.engine import Engine
from decodetop.core.replay import TapeSource
from decodetop.core.source import ReplayReading, ReplaySpeed, Seek
from decodetop.core.state import fold_all
from decodetop.core.tape import Codec, Tape, TapeWriter
from decodetop.errors import ProbeError
from support.clock import ManualClock
from support.probes import HEADER, Count, CountingProbe, Sink
from support.running import running

TYPES = {"count": Count}


async def recorded(path: Path) -> Sink:
    """13 simulated seconds with a failure in the middle, on tape."""
    clock = ManualClock()

    def fault(n: int) -> None:
        if n == 5:
            raise ProbeError("absent", "connection refused")

    engine = Engine(HEADER, clock, [CountingProbe(fault=fault)])
    sink = Sink()
    async with running(engine, sink):
        await clock.advance(13)
    writer = TapeWriter(path, HEADER, Codec(TYPES))
    for sample in sink.samples:
        writer.write(sample)
    writer.close()
    return sink


@contextlib.asynccontextmanager
async def playing(source: TapeSource) -> AsyncIterator[Sink]:
    sink = Sink()
    task = asyncio.ensure_future(source.run(sink))
    try:
        yield sink
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def position(sink: Sink) -> ReplayReading:
    reading = sink.of("replay")[-1].reading
    assert isinstance(reading, ReplayReading)
    return reading


async def test_a_replay_folds_to_the_live_state(tmp_path: Path) -> None:
    live = await recorded(tmp_path / "t")
    clock = ManualClock()
    async with playing(TapeSource(Tape(tmp_path / "t", Codec(TYPES)), clock)) as sink:
        await clock.advance(14)
        played = [sample for sample in sink.samples if sample.source != "replay"]
        assert played == live.samples
        assert position(sink).ended and position(sink).duration_s == 13
    assert fold_all(HEADER, played) == fold_all(HEADER, live.samples)


async def test_samples_come_at_their_time(tmp_path: Path) -> None:
    await recorded(tmp_path / "t")
    clock = ManualClock()
    async with playing(TapeSource(Tape(tmp_path / "t", Codec(TYPES)), clock, speed=2.0)) as sink:
        await clock.advance(2)
        assert [sample.t_ns // SECOND_NS for sample in sink.of("count")] == [0, 1, 2, 3, 4]


async def test_seeking_back_equals_having_stopped_there(tmp_path: Path) -> None:
    live = await recorded(tmp_path / "t")
    clock = ManualClock()
    source = TapeSource(Tape(tmp_path / "t", Codec(TYPES)), clock)
    async with playing(source) as sink:
        await clock.advance(10)
        source.submit(ReplaySpeed(speed=0))
        source.submit(Seek(to_s=3))
        await clock.advance(0)
        assert sink.resets == 1
        then = fold_all(HEADER, [sample for sample in live.samples if sample.t_ns <= 3 * SECOND_NS])
        now = fold_all(HEADER, [sample for sample in sink.samples if sample.source != "replay"])
        assert now == then
        await clock.advance(5)
        assert position(sink).position_s == 3, "paused"
        source.submit(Seek(by_s=-100))
        await clock.advance(0)
        assert position(sink).position_s == 0
        source.submit(Seek(by_s=1e9))
        await clock.advance(0)
        assert position(sink).ended


async def test_a_recording_begun_late_plays_from_its_beginning(tmp_path: Path) -> None:
    import msgspec

    header = msgspec.structs.replace(HEADER, begin_ns=3600 * SECOND_NS)
    writer = TapeWriter(tmp_path / "t", header, Codec(TYPES))
    live = await recorded(tmp_path / "other")
    for sample in live.samples:
        late = 0 if sample.source == "count" and sample.seq < 3 else 3600
        writer.write(msgspec.structs.replace(sample, t_ns=sample.t_ns + late * SECOND_NS))
    writer.close()
    clock = ManualClock()
    async with playing(TapeSource(Tape(tmp_path / "t", Codec(TYPES)), clock)) as sink:
        await clock.advance(0.2)
        assert position(sink).position_s < 1 and position(sink).duration_s == 13
        assert sink.of("count"), "what was known before the recording is there from its start"
