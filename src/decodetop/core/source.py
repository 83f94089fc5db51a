"""Where samples come from: a live engine, a tape, or a pipe. One protocol, so that nothing above knows which."""

from __future__ import annotations

from typing import Protocol

from decodetop.core.sample import Command, Header, Reading, Sample


class Sink(Protocol):
    """Takes samples in order. `reset` forgets all of them (a replay that seeks starts again)."""

    def put(self, sample: Sample) -> None: ...

    def reset(self) -> None: ...


class Source(Protocol):
    """`run` feeds `sink` until the source ends or is cancelled; `submit` may be called from its own loop only."""

    @property
    def header(self) -> Header: ...

    async def run(self, sink: Sink) -> None: ...

    def submit(self, command: Command) -> None: ...


class Refresh(Command, frozen=True, kw_only=True):
    """Read every source now (or one of them)."""

    title = "refresh"

    source: str | None = None


class SetRate(Command, frozen=True, kw_only=True):
    """Multiply every probe's period by `factor` (1 = as configured)."""

    title = "change the rate"

    factor: float


class Seek(Command, frozen=True, kw_only=True):
    """Replay: move by `by_s` seconds, or to `to_s` from the start."""

    title = "move in time"

    by_s: float = 0.0
    to_s: float | None = None


class ReplaySpeed(Command, frozen=True, kw_only=True):
    """Replay: `speed` times real time; 0 pauses."""

    title = "change the speed"

    speed: float


class ReplayReading(Reading, frozen=True, kw_only=True):
    """Where a replay stands; not recorded. `unknown_sources` names lanes this version can't read."""

    position_s: float
    duration_s: float
    speed: float
    ended: bool
    unknown_sources: tuple[str, ...] = ()
    truncated: bool = False


class Record(Command, frozen=True, kw_only=True):
    """Start or stop recording to a tape; `path` None = a new one in the investigation's tapes folder."""

    title = "record"

    on: bool
    path: str | None = None


class RecordReading(Reading, frozen=True, kw_only=True):
    """The tape being written, or `path` None. `since_ns` is session time."""

    path: str | None
    samples: int = 0
    since_ns: int | None = None
