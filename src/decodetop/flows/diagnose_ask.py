"""What a diagnosis is asked for, and what it is given to work with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from decodetop.bench.plan import Overrides
from decodetop.bench.reading import Preset
from decodetop.diagnosis.reading import Diagnosis
from decodetop.floor.hardware import Card
from decodetop.flows.bench import BenchService
from decodetop.flows.capture import CaptureService
from decodetop.flows.floor import Ask
from decodetop.gpu.reading import GpuReading
from decodetop.server.reading import Server
from decodetop.steps.reading import StepsReport

T = TypeVar("T")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be diagnosed, and what of it was had before: `run_id` or `ask.token_ms` for the load, `steps`.

    `profile` False = no capture is taken. `offer` False = the checklist is left alone. `again` = nothing is kept.
    `far_gpu` = the card of a server on another host, by its name in the table. `as_far_as` = such a server whose card
    or model is not known here is measured all the same, and not judged.
    """

    endpoint: str | None = None
    again: bool = False
    ask: Ask = Ask()
    load: Overrides = Overrides()
    run_id: int | None = None
    steps: StepsReport | None = None
    steps_words: str = "the traces given"
    profile: bool = True
    offer: bool = True
    far_gpu: str | None = None
    as_far_as: bool = False


FAR_STEPS = (
    "it runs on another host, where its trace files stay: copy them here and open them (o), or give --steps FILE to "
    "decodetop diagnose"
)
FAR_HINT = "decodetop diagnose --endpoint URL --gpu NAME --model PATH judges it"


class Tools(Protocol):
    """What a course works with; `show` and `keep` tell how far it is, `keep` also stores it."""

    @property
    def folder(self) -> Path: ...

    @property
    def presets(self) -> Sequence[Preset]: ...

    @property
    def bench(self) -> BenchService: ...

    @property
    def capture(self) -> CaptureService: ...

    def card(self, server: Server | None, gpus: GpuReading | None, problem: str | None) -> Card: ...

    async def call(self, work: Callable[[], T]) -> T: ...

    def show(self, now: Diagnosis) -> None: ...

    async def keep(self, now: Diagnosis) -> None: ...
