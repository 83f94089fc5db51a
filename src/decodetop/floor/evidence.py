"""What a look at a measured step has before it, and what it makes of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from decodetop.floor.gap import idle_ms
from decodetop.floor.measured import Breakdown, Measurement
from decodetop.floor.reading import Confidence, FloorReport, VerdictId


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """Of the card under load, as NVML reports it: MHz, watts, share of the time a kernel ran; None = not known."""

    sm: int | None = None
    sm_max: int | None = None
    memory: int | None = None
    memory_max: int | None = None
    reasons: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    busy_percent: float | None = None


class Evidence(NamedTuple):
    report: FloorReport
    measured: Measurement
    step_ms: float
    clocks: Clocks | None

    @property
    def breakdown(self) -> Breakdown | None:
        return self.measured.breakdown

    @property
    def idle_ms(self) -> float:
        return 0.0 if self.breakdown is None else idle_ms(self.breakdown, self.measured)


class Look(NamedTuple):
    """`words` = what was seen, whether it applies or not."""

    id: VerdictId
    what: str
    applies: bool
    ms: float
    words: str
    sentence: str = ""
    because: Sequence[str] = ()
    confidence: Confidence = "high"
    capture: Sequence[str] = ()
