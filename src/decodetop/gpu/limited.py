"""How long each reason has held the clocks down, as the driver counts it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from decodetop.gpu.asks import Unknown, believed
from decodetop.gpu.codes import NvmlError
from decodetop.gpu.fields import Answer, Answers, Key
from decodetop.gpu.library import Handle, Library

_ALWAYS = {74: "power cap", 76: "sync boost", 77: "board limit", 79: "reliability"}
_HEAT_AND_BRAKE = ("SW thermal", "HW thermal", "power brake")
_HEAT = {75: "thermal"}


def heat_ids(driver: str | None) -> tuple[Mapping[int, str], ...]:
    """The ids that may count time lost to heat and to the power brake, the best first.

    Ids above 250 changed their meaning: 269-271 are these counters in the drivers that know them (580.159 does),
    251-253 in other drivers of branch 580 and something else since. Field 75 counts all heat as one, in every driver.
    """
    branch = int(found.group()) if (found := re.match(r"\d+", driver or "")) else 0
    newest = [dict(zip(range(269, 272), _HEAT_AND_BRAKE, strict=True))] if branch >= 580 else []
    older = [dict(zip(range(251, 254), _HEAT_AND_BRAKE, strict=True))] if branch == 580 else []
    return (*newest, *older, _HEAT)


class Limited:
    """`time_limited_ns` of one GPU in one session: ns since the driver loaded (the idle ones of an H200 add up to its
    uptime, which its energy confirms)."""

    FIELDS = ("time_limited_ns",)

    def __init__(self, driver: str | None) -> None:
        """`driver`: its version, which decides what the ids of the thermal counters are."""
        self._heat = heat_ids(driver)
        ids = [*_ALWAYS, *(field for choice in self._heat for field in choice)]
        self._answers = Answers((field, 0) for field in ids)

    def read(self, nvml: Library, gpu: Handle) -> Sequence[object]:
        """Nanoseconds by reason, or an NvmlError where the driver counts none."""
        answers = self._answers.get(nvml, gpu)
        heat = next((found for ids in self._heat if (found := _counted(answers, ids))), {})
        return ({**_counted(answers, _ALWAYS), **heat} or answers[(next(iter(_ALWAYS)), 0)],)


def _counted(answers: Mapping[Key, Answer], ids: Mapping[int, str]) -> dict[str, int]:
    seen = {word: answers[(field, 0)] for field, word in ids.items()}
    return {
        word: ns
        for word, answer in seen.items()
        if not isinstance(answer, NvmlError) and not isinstance(ns := believed(int(answer), 0, 2**62), Unknown)
    }
