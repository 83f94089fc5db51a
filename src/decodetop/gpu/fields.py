"""Figures that NVML gives by field id: many in one call, each with its own answer."""

from __future__ import annotations

from collections.abc import Sequence

from decodetop.gpu.asks import Unknown, believed
from decodetop.gpu.codes import NEVER, NvmlError
from decodetop.gpu.library import Handle, Library


class FieldSet:
    """The ids asked of one GPU in one session; those refused for good are not asked again.

    Ids below 251 mean the same in every driver. 269-271 are the thermal and power-brake counters in the drivers
    that know them (580.159 does) and nothing in those that don't; 251-253 meant the same in some R580 drivers and
    something else since, so they are not used. The counters are ns (the idle ones of an H200 add up to its uptime).
    """

    FIELDS = (
        "memory_temperature_c",
        "pcie_replays",
        "ecc_corrected",
        "ecc_uncorrected",
        "rows_remapped",
        "row_remap_pending",
        "row_remap_failed",
        "recovery_action",
        "nvlink_links",
        "nvlink_links_active",
        "time_limited_ns",
    )
    _TIME = {
        74: "power cap",
        76: "sync boost",
        77: "board limit",
        79: "reliability",
        269: "SW thermal",
        270: "HW thermal",
        271: "power brake",
    }
    _RECOVERY = {
        1: "a GPU reset",
        2: "a reboot",
        3: "draining its peers",
        4: "draining and a reset",
        5: "an IMEX recovery",
    }
    _LINK_COUNT, _LINK_STATE = 91, 165
    _ONE = (82, 94, 3, 4, 142, 143, 144, 145, 230, _LINK_COUNT)

    def __init__(self) -> None:
        self._asked = [(field, 0) for field in (*self._ONE, *self._TIME)]
        self._refused: dict[tuple[int, int], NvmlError] = {}
        self._links = 0

    def read(self, nvml: Library, gpu: Handle) -> Sequence[object]:
        """Values for FIELDS, each a value, an Unknown or an NvmlError."""
        answers = self._answers(nvml, gpu)
        links = answers[(self._LINK_COUNT, 0)]
        if isinstance(links, int) and 0 < links <= 64 and not self._links:
            self._links = links
            self._asked += [(self._LINK_STATE, link) for link in range(links)]
            answers = self._answers(nvml, gpu)
        one = {field: answers[(field, 0)] for field in self._ONE}
        return (
            _checked(one[82], 1, 150),
            _checked(one[94], 0, 2**32 - 2),
            _checked(one[3], 0, 2**62),
            _checked(one[4], 0, 2**62),
            _sum(one[142], one[143]),
            _flag(one[144]),
            _flag(one[145]),
            self._recovery(one[230]),
            _checked(links, 0, 64),
            self._active(answers, links),
            self._time(answers),
        )

    def _answers(self, nvml: Library, gpu: Handle) -> dict[tuple[int, int], float | NvmlError]:
        answers = nvml.fields(gpu, self._asked) if self._asked else []
        seen = dict(zip(self._asked, answers, strict=True))
        for key, answer in seen.items():
            if isinstance(answer, NvmlError) and answer.code in NEVER:
                self._refused[key] = answer
        self._asked = [key for key in self._asked if key not in self._refused]
        return {**self._refused, **seen}

    def _recovery(self, answer: float | NvmlError) -> object:
        if isinstance(answer, NvmlError):
            return answer
        return None if answer == 0 else self._RECOVERY.get(int(answer), f"action {int(answer)}")

    def _active(self, answers: dict[tuple[int, int], float | NvmlError], links: object) -> object:
        if links == 0:
            return 0
        states = [answer for (field, _), answer in answers.items() if field == self._LINK_STATE]
        refused = next((state for state in states if isinstance(state, NvmlError)), None)
        if refused is not None or not states:
            return refused or (links if isinstance(links, NvmlError) else Unknown("the link count is not believed"))
        return sum(state == 1 for state in states)

    def _time(self, answers: dict[tuple[int, int], float | NvmlError]) -> object:
        seen = {field: answers[(field, 0)] for field in self._TIME}
        known = {self._TIME[field]: int(ns) for field, ns in seen.items() if not isinstance(ns, NvmlError)}
        return known or next(iter(seen.values()))


def _checked(answer: float | NvmlError, low: float, high: float) -> object:
    return answer if isinstance(answer, NvmlError) else believed(answer, low, high)


def _flag(answer: float | NvmlError) -> object:
    return answer if isinstance(answer, NvmlError) else bool(answer)


def _sum(one: float | NvmlError, other: float | NvmlError) -> object:
    if isinstance(one, NvmlError) or isinstance(other, NvmlError):
        return one if isinstance(one, NvmlError) else other
    return believed(int(one + other), 0, 2**31)
