"""Energy over an interval, from the driver's counter: the power reading is but a sample of its last second. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from decodetop.core.clock import SECOND_NS
from decodetop.core.state import Past
from decodetop.gpu.reading import Gpu, GpuReading


class Energy(NamedTuple):
    """`joules` used in `seconds`."""

    joules: float
    seconds: float

    @property
    def mean_w(self) -> float:
        return self.joules / self.seconds


def energy_over(history: Iterable[Past], index: int) -> Energy | None:
    """Between the first and the last reading whose counter moved: it is not read every second, so others repeat it.

    None until it moved twice, and where it went back (the driver was loaded anew).
    """
    seen = [(past.t_ns, gpu.energy_j) for past in history if (gpu := gpu_of(past.reading, index)) is not None]
    known = [(t_ns, joules) for t_ns, joules in seen if joules is not None]
    moved = [after for before, after in pairwise(known) if after[1] != before[1]]
    if len(moved) < 2:
        return None
    (began_ns, first), (ended_ns, last) = moved[0], moved[-1]
    return Energy(last - first, (ended_ns - began_ns) / SECOND_NS) if last > first else None


def gpu_of(reading: object, index: int) -> Gpu | None:
    """The GPU of that index in a reading; nearly always at the place of its index."""
    gpus = reading.gpus if isinstance(reading, GpuReading) else ()
    if index < len(gpus) and gpus[index].index == index:
        return gpus[index]
    return next((one for one in gpus if one.index == index), None)
