"""Recording: a second subscriber writes every sample to a tape; a full disk stops it and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from decodetop.core.clock import SECOND_NS
from decodetop.core.engine import Context
from decodetop.core.sample import Command, Header, Notice, Sample
from decodetop.core.source import Record, RecordReading
from decodetop.core.state import State
from decodetop.core.tape import Codec, TapeWriter
from decodetop.errors import DataError
from decodetop.flows.catalog import codec


class RecordService:
    """Source "record". A tape starts with the last sample of each lane, so that a replay shows all from its start."""

    source = "record"
    commands: tuple[type[Command], ...] = (Record,)

    def __init__(self, folder: Path, header: Header, codec_: Codec | None = None) -> None:
        """`folder`: where tapes go that are started without a name."""
        self._folder = folder
        self._header = header
        self._codec = codec() if codec_ is None else codec_
        self._writer: TapeWriter | None = None
        self._end: Callable[[], None] | None = None
        self._since_ns = 0

    async def run(self, context: Context) -> None:
        """Says once a second how far it is, while recording."""
        try:
            while True:
                if self._writer is not None:
                    context.emit(self.source, self._reading())
                await context.clock.sleep_until(context.clock.now_ns() + SECOND_NS)
        finally:
            self._stop()

    async def handle(self, command: Command, context: Context) -> None:
        assert isinstance(command, Record)
        if not command.on:
            if self._writer is not None:
                word = f"recorded {self._writer.samples} samples to {self._writer.path}"
                self._stop()
                context.notify(Notice(message=word))
            context.emit(self.source, self._reading())
        elif self._writer is None:
            self._start(command, context)
            context.emit(self.source, self._reading())

    def _start(self, command: Record, context: Context) -> None:
        path = Path(command.path) if command.path else self._fresh(context)
        self._since_ns = context.clock.now_ns()
        header = msgspec.structs.replace(self._header, begin_ns=self._since_ns)
        self._writer = TapeWriter(path, header, self._codec)
        for sample in latest_samples(context.state):
            self._writer.write(sample)
        self._end = context.subscribe(lambda sample: self._write(sample, context))
        context.notify(Notice(message=f"recording to {path}"))

    def _fresh(self, context: Context) -> Path:
        stamp = datetime.fromtimestamp(context.clock.wall_ns() / SECOND_NS, UTC).strftime("%Y%m%dT%H%M%SZ")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"can't make {self._folder}: {error.strerror}", "use --investigation DIR") from error
        return self._folder / f"{stamp}.tape"

    def _write(self, sample: Sample, context: Context) -> None:
        if self._writer is None or sample.source == self.source:
            return
        try:
            self._writer.write(sample)
        except DataError as error:
            self._stop()
            notice = Notice(level="error", message=error.message, hint=error.hint, ring=True)
            asyncio.get_running_loop().call_soon(context.notify, notice)

    def _reading(self) -> RecordReading:
        if self._writer is None:
            return RecordReading(path=None)
        return RecordReading(path=str(self._writer.path), samples=self._writer.samples, since_ns=self._since_ns)

    def _stop(self) -> None:
        if self._end is not None:
            self._end()
        if self._writer is not None:
            self._writer.close()
        self._writer = self._end = None


def latest_samples(state: State) -> list[Sample]:
    """What a newcomer must hear first: the last reading and the failure of every lane, in order of time."""
    found: list[Sample] = []
    for source, lane in state.lanes.items():
        if source in ("record", "notice"):
            continue
        if lane.last is not None and lane.last_t_ns is not None:
            found.append(Sample(source=source, t_ns=lane.last_t_ns, seq=0, reading=lane.last))
        if lane.failure is not None:
            found.append(Sample(source=source, t_ns=lane.failure_since_ns or 0, seq=0, failure=lane.failure))
    found.sort(key=lambda sample: sample.t_ns)
    return found
