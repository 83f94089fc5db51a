"""Shares of CPU time between two readings of the kernel's counters. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from decodetop.core.outside import whole_number

_CORES_MOST = 2**16


class CoreTimes(NamedTuple):
    """Seconds since boot: `busy` is work (no idle, no waiting for disks), `stolen` went to other guests."""

    busy: float
    stolen: float
    total: float


class Usage(NamedTuple):
    """Percent of the time between two readings."""

    per_core: tuple[float, ...]
    mean: float
    highest: float
    stolen: float


def core_times(fields: dict[str, float]) -> CoreTimes:
    """From /proc/stat's columns by name; guest time is inside user time already."""
    total = sum(seconds for name, seconds in fields.items() if name not in ("guest", "guest_nice"))
    stolen = fields.get("steal", 0.0)
    return CoreTimes(total - fields.get("idle", 0.0) - fields.get("iowait", 0.0) - stolen, stolen, total)


def usage(before: Sequence[CoreTimes], after: Sequence[CoreTimes]) -> Usage | None:
    """None when no time has passed or a core came or went."""
    if len(before) != len(after) or not after:
        return None
    total = [max(0.0, new.total - old.total) for old, new in zip(before, after, strict=True)]
    busy = [max(0.0, new.busy - old.busy) for old, new in zip(before, after, strict=True)]
    stolen = [max(0.0, new.stolen - old.stolen) for old, new in zip(before, after, strict=True)]
    if sum(total) <= 0:
        return None
    per_core = tuple(_percent(part, whole) for part, whole in zip(busy, total, strict=True))
    return Usage(per_core, _percent(sum(busy), sum(total)), max(per_core), _percent(sum(stolen), sum(total)))


def cpus_of(listed: str) -> set[int]:
    """`0-3,8` as the kernel writes a set of cores."""
    found: set[int] = set()
    for part in listed.strip().split(","):
        first, _, last = part.partition("-")
        low, high = whole_number(first), whole_number(last or first)
        if low is not None and high is not None and high < _CORES_MOST:
            found.update(range(low, high + 1))
    return found


def _percent(part: float, whole: float) -> float:
    # the kernel's idle counters may step back by a tick, which would make more than all
    # counted in ticks of 10 ms, which is 1 % of a second: a tenth tells all
    return 0.0 if whole <= 0 else round(min(100.0, 100.0 * part / whole), 1)
