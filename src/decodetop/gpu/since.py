"""What was added to a GPU's counters since this run began: the driver counts from its own load."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from decodetop.gpu.judgement import under_load
from decodetop.gpu.reading import Gpu

_FIELDS = ("run_began_ns", "energy_run_j", "time_limited_run_ns")
_NOBODY = "no UUID of its own tells it from another GPU"


class _Start(NamedTuple):
    t_ns: int
    energy_j: float | None
    limited_ns: dict[str, int] | None


class Since:
    """Of one run, by UUID: sessions come and go. A counter that went back (the driver was loaded anew) begins anew."""

    def __init__(self) -> None:
        self._starts: dict[str, _Start] = {}
        self._fastest: dict[str, tuple[int, int]] = {}

    def add(self, gpu: Gpu, uuid: str | None, now_ns: int) -> Gpu:
        """`gpu` with its counts since the first reading that had them; `uuid`: the one that is only its own."""
        start = self._start(gpu, uuid, now_ns)
        reasons = dict(gpu.reasons)
        if start is None:
            return msgspec.structs.replace(gpu, reasons=reasons | dict.fromkeys(_FIELDS, _NOBODY))
        for run, field in (("energy_run_j", "energy_j"), ("time_limited_run_ns", "time_limited_ns")):
            if getattr(gpu, field) is None:
                reasons[run] = reasons.get(field, "not told")
        before = start.limited_ns or {}
        limited = gpu.time_limited_ns
        return msgspec.structs.replace(
            gpu,
            run_began_ns=start.t_ns,
            pcie_fastest=self._link(gpu, uuid),
            energy_run_j=None if gpu.energy_j is None else gpu.energy_j - (start.energy_j or 0.0),
            time_limited_run_ns=None
            if limited is None
            else {why: ns - before.get(why, ns) for why, ns in limited.items()},
            reasons=reasons,
        )

    def _link(self, gpu: Gpu, uuid: str | None) -> tuple[int, int] | None:
        """Kept for the whole run: a link that fell back hours ago is still slower than it was."""
        if uuid is None:
            return None
        known = self._fastest.get(uuid)
        if under_load(gpu) and gpu.pcie_gen and gpu.pcie_width:
            now = gpu.pcie_gen, gpu.pcie_width
            self._fastest[uuid] = known = max(now, known or now, key=lambda link: link[0] * link[1])
        return known

    def _start(self, gpu: Gpu, uuid: str | None, now_ns: int) -> _Start | None:
        if uuid is None:
            return None
        start = self._starts.get(uuid)
        if start is None or _went_back(gpu, start):
            start = _Start(now_ns, gpu.energy_j, gpu.time_limited_ns)
        if start.energy_j is None or start.limited_ns is None:
            start = start._replace(
                energy_j=gpu.energy_j if start.energy_j is None else start.energy_j,
                limited_ns=gpu.time_limited_ns if start.limited_ns is None else start.limited_ns,
            )
        self._starts[uuid] = start
        return start


def _went_back(gpu: Gpu, start: _Start) -> bool:
    if gpu.energy_j is not None and start.energy_j is not None and gpu.energy_j < start.energy_j:
        return True
    before = start.limited_ns or {}
    return any(ns < before.get(why, 0) for why, ns in (gpu.time_limited_ns or {}).items())
