"""Joules over an interval: from the moments at which the counter was read, whatever repeats it in between."""

from __future__ import annotations

import pytest

from decodetop.core.clock import SECOND_NS
from decodetop.core.state import Past
from decodetop.gpu.reading import Gpu, GpuReading, energy_over, gpu_of, same_gpu


def past(*joules: float | None) -> list[Past]:
    readings = [GpuReading(gpus=(Gpu(index=0), Gpu(index=1, energy_j=one))) for one in joules]
    return [Past(t * SECOND_NS, reading) for t, reading in enumerate(readings)]


def test_between_the_readings_that_moved() -> None:
    # read at 2 s, 7 s and 12 s; the others repeat
    seen = energy_over(past(0, 0, 500, 500, 500, 500, 500, 4000, 4000, 4000, 4000, 4000, 7500, 7500), Gpu(index=1))
    assert seen is not None and (seen.joules, seen.seconds) == (7000, 10)
    assert seen.mean_w == pytest.approx(700)


@pytest.mark.parametrize("joules", [(), (None, None), (5, 5, 5), (5, 5, 6), (5, 6, 1, 2)])
def test_too_little_is_no_answer(joules: tuple[float | None, ...]) -> None:
    assert energy_over(past(*joules), Gpu(index=1)) is None


def test_a_gpu_is_found_by_its_index_wherever_it_stands() -> None:
    moved = GpuReading(gpus=(Gpu(index=3), Gpu(index=0, name="a")))
    found = gpu_of(moved, 0)
    assert found is not None and found.name == "a"
    assert gpu_of(moved, 7) is gpu_of(moved, -9) is gpu_of(None, 0) is None


def test_a_gpu_is_followed_by_its_uuid_when_the_driver_counts_anew() -> None:
    before = GpuReading(gpus=(Gpu(index=0, uuid="a", energy_j=9e6), Gpu(index=1, uuid="b", energy_j=10.0)))
    after = GpuReading(gpus=(Gpu(index=0, uuid="b", energy_j=20.0), Gpu(index=0, uuid="a", state="lost")))
    now = after.gpus[0]
    found = same_gpu(before, now)
    assert found is not None and found.uuid == "b"
    assert same_gpu(GpuReading(gpus=(before.gpus[0],)), now) is None
    nameless = same_gpu(GpuReading(gpus=(Gpu(index=0, power_w=5.0),)), now)
    assert nameless is not None and nameless.power_w == 5.0
    later = Gpu(index=0, uuid="b", energy_j=30.0)
    history = [Past(t * SECOND_NS, one) for t, one in enumerate([before, after, GpuReading(gpus=(later,))])]
    seen = energy_over(history, later)
    assert seen is not None and seen.joules == 10.0
