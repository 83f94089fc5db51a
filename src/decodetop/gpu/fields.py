"""Figures that NVML gives by field id: many in one call, each with its own answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from decodetop.gpu.asks import Unknown, believed, flag
from decodetop.gpu.codes import NEVER, NvmlError
from decodetop.gpu.library import Handle, Library

Answer = float | NvmlError
Key = tuple[int, int]
"""Field id and scope (the link's number)."""

_LINK_COUNT, _LINK_SPEED, _LINK_STATE, _LINK_VERSION = 91, 164, 165, 166
_ONE = (82, 94, 3, 4, 142, 143, 144, 145, 29, 30, 31, 230, _LINK_COUNT)
_RECOVERY = {
    1: "a GPU reset",
    2: "a reboot",
    3: "draining its peers",
    4: "draining and a reset",
    5: "an IMEX recovery",
}
# NVML_NVLINK_VERSION_*
_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}


class Answers:
    """Field ids asked of one GPU in one session; those refused for good are not asked again."""

    def __init__(self, asked: Iterable[Key]) -> None:
        self._asked = list(asked)
        self._refused: dict[Key, NvmlError] = {}

    def also(self, asked: Iterable[Key]) -> None:
        """From now on these too."""
        self._asked += asked

    def get(self, nvml: Library, gpu: Handle) -> dict[Key, Answer]:
        """What each answers now, or answered when it refused. Raises NvmlError when the call as a whole is refused."""
        answers = nvml.fields(gpu, self._asked) if self._asked else []
        seen = dict(zip(self._asked, answers, strict=True))
        for key, answer in seen.items():
            if isinstance(answer, NvmlError) and answer.code in NEVER:
                self._refused[key] = answer
        self._asked = [key for key in self._asked if key not in self._refused]
        return {**self._refused, **seen}


class FieldSet:
    """Links, errors and what the driver asks for, by ids that mean the same in every driver."""

    FIELDS = (
        "memory_temperature_c",
        "pcie_replays",
        "ecc_corrected",
        "ecc_uncorrected",
        "rows_remapped",
        "row_remap_pending",
        "row_remap_failed",
        "pages_retired",
        "page_retirement_pending",
        "recovery_action",
        "nvlink_links",
        "nvlink_links_active",
        "nvlink_version",
        "nvlink_max_bytes_s",
    )

    def __init__(self) -> None:
        self._answers = Answers((field, 0) for field in _ONE)
        self._links = 0

    def read(self, nvml: Library, gpu: Handle) -> Sequence[object]:
        """Values for FIELDS, each a value, an Unknown or an NvmlError."""
        answers = self._answers.get(nvml, gpu)
        links = answers[(_LINK_COUNT, 0)]
        if isinstance(links, int) and 0 < links <= 64 and not self._links:
            self._links = links
            self._answers.also([(_LINK_SPEED, 0), (_LINK_VERSION, 0), *((_LINK_STATE, link) for link in range(links))])
            answers = self._answers.get(nvml, gpu)
        one = {field: answers[(field, 0)] for field in _ONE}
        active = _active(answers, links)
        return (
            _checked(one[82], 1, 150),
            _checked(one[94], 0, 2**32 - 2),
            _checked(one[3], 0, 2**62),
            _checked(one[4], 0, 2**62),
            _sum(one[142], one[143]),
            _flag(one[144]),
            _flag(one[145]),
            _sum(one[29], one[30]),
            _flag(one[31]),
            _recovery(one[230]),
            _checked(links, 0, 64),
            active,
            _version(answers, links),
            _speed(answers, active),
        )


def _recovery(answer: Answer) -> object:
    if isinstance(answer, NvmlError):
        return answer
    number = believed(int(answer), 0, 254)
    if isinstance(number, Unknown):
        return number
    return f"{_RECOVERY.get(number, 'something unknown here')} (action {number})" if number else None


def _active(answers: Mapping[Key, Answer], links: Answer) -> object:
    if links == 0:
        return 0
    states = [answer for (field, _), answer in answers.items() if field == _LINK_STATE]
    refused = next((state for state in states if isinstance(state, NvmlError)), None)
    if refused is not None or not states:
        return refused or (links if isinstance(links, NvmlError) else Unknown("the link count is not believed"))
    up = [believed(state, 0, 1) for state in states if not isinstance(state, NvmlError)]
    return next((state for state in up if isinstance(state, Unknown)), None) or sum(state == 1 for state in states)


def _version(answers: Mapping[Key, Answer], links: Answer) -> object:
    seen = answers.get((_LINK_VERSION, 0))
    if seen is None or isinstance(seen, NvmlError):
        return seen or _no_links(links)
    return _VERSIONS.get(int(seen)) or Unknown(f"version {int(seen)} has no name here")


def _speed(answers: Mapping[Key, Answer], active: object) -> object:
    """Bytes/s, one way, of the links that are up; the driver says MB/s a link."""
    seen = answers.get((_LINK_SPEED, 0))
    if seen is None or isinstance(seen, NvmlError):
        return seen or _no_links(active)
    mb_s = believed(seen, 1, 1e6)
    return mb_s if isinstance(mb_s, Unknown) or not isinstance(active, int) else active * mb_s * 1e6


def _no_links(links: object) -> object:
    return links if isinstance(links, (NvmlError, Unknown)) else Unknown("it has no NVLink")


def _checked(answer: Answer, low: float, high: float) -> object:
    return answer if isinstance(answer, NvmlError) else believed(answer, low, high)


def _flag(answer: Answer) -> object:
    return answer if isinstance(answer, NvmlError) else flag(int(answer))


def _sum(one: Answer, other: Answer) -> object:
    if isinstance(one, NvmlError) or isinstance(other, NvmlError):
        return one if isinstance(one, NvmlError) else other
    return believed(int(one + other), 0, 2**31)
