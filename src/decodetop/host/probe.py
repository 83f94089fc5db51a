"""Reads the host through psutil, on a thread of its own; disks on another, since a network disk may hang."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from decodetop.core.clock import SECOND_NS, Clock, Late, within
from decodetop.core.regular import present
from decodetop.core.thread import CallThread
from decodetop.host.cpu import CoreTimes, core_times, usage
from decodetop.host.machine import Machine
from decodetop.host.processes import Processes, Watched
from decodetop.host.reading import NO_LIMIT, Disk, HostReading

DISK_NS = 10 * SECOND_NS
DISK_DEADLINE_S = 1.0
_SLOW_NS = 5 * SECOND_NS
_NEEDS_TWO = "first reading: needs two"
_UNSAID = "the kernel does not say"
_CPU = ("cpu_percent", "cpu_max_core_percent", "cpu_per_core_percent", "cpu_steal_percent")
_LOAD = ("load_1", "load_5", "load_15")
_MEMORY = ("memory_used_bytes", "memory_available_bytes", "memory_total_bytes")
_SWAP = ("swap_used_bytes", "swap_total_bytes")

Disks = Callable[[], Sequence[tuple[str, str | os.PathLike[str]]]]


class HostProbe:
    """core.engine.Probe. `watched()` gives the servers' processes, `disks()` (role, path); both asked each time."""

    source = "host"
    period_s = 1.0
    deadline_s = 5.0

    def __init__(
        self,
        clock: Clock,
        watched: Callable[[], Sequence[Watched]] = tuple,
        disks: Disks = tuple,
        *,
        machine: Machine | None = None,
    ) -> None:
        self._clock = clock
        self._watched = watched
        self._disks = disks
        self._machine = machine or Machine()
        self._processes = Processes(self._machine)
        self._thread = CallThread("decodetop-host")
        self._disk_thread = CallThread("decodetop-disks")
        self._cores: list[CoreTimes] = []
        self._seen_disks: tuple[Disk, ...] = ()
        self._disk_reasons: dict[str, str] = {}
        self._disks_due_ns = 0
        self._asked_disks: list[tuple[str, Path]] = []
        self._slow: dict[str, Any] = {}
        self._slow_due_ns = 0

    async def read(self) -> HostReading:
        watched = list(self._watched())
        await self._read_disks()
        return await self._thread.call(lambda: self._read(watched))

    async def close(self) -> None:
        self._thread.close()
        self._disk_thread.close()

    def _read(self, watched: list[Watched]) -> HostReading:
        now_ns = self._clock.now_ns()
        reasons = dict(self._disk_reasons)
        if now_ns >= self._slow_due_ns:
            self._slow = self._read_slow()
            self._slow_due_ns = now_ns + _SLOW_NS
        processes, refused = self._processes.read(watched, now_ns)
        values = {
            **_part(_CPU, self._cpu),
            **_part(_LOAD, lambda: dict(zip(_LOAD, os.getloadavg(), strict=True))),
            **_part(_MEMORY, _memory),
            **self._slow,
        }
        reasons |= refused
        reasons |= {field: value.why for field, value in values.items() if isinstance(value, _Unknown)}
        known = {field: value for field, value in values.items() if not isinstance(value, _Unknown)}
        return HostReading(
            **{"cpu_count": os.cpu_count() or 1, **known},
            disks=self._seen_disks,
            processes=processes,
            reasons=reasons,
        )

    def _cpu(self) -> dict[str, Any]:
        before = self._cores
        self._cores = [core_times(core._asdict()) for core in psutil.cpu_times(percpu=True)]
        used = usage(before, self._cores)
        if used is None:
            why = _Unknown(_NEEDS_TWO if not before else "the kernel counted no CPU time")
            return {"cpu_count": len(self._cores), **dict.fromkeys(_CPU, why)}
        return {
            "cpu_count": len(self._cores),
            "cpu_percent": used.mean,
            "cpu_max_core_percent": used.highest,
            "cpu_per_core_percent": used.per_core,
            "cpu_steal_percent": used.stolen,
        }

    def _read_slow(self) -> dict[str, Any]:
        cores, bytes_ = os.cpu_count() or 1, _part(("memory_total_bytes",), _memory)["memory_total_bytes"]
        machine = self._machine
        limit, room = machine.cpu_limit_cores(), machine.memory_limit()
        if room is not None and not isinstance(bytes_, _Unknown) and room[0] >= bytes_:
            room = None  # one that lies above what there is limits nothing
        used, most = (None, None) if room is None else (room[1], room[0])
        return {
            "kernel": f"{os.uname().sysname} {os.uname().release}",
            **_part(("boot_wall_ns",), lambda: {"boot_wall_ns": int(psutil.boot_time() * SECOND_NS)}),
            "cpu_frequency_mhz": _said(machine.frequency_mhz(cores)),
            "cpu_numa_nodes": _said(machine.node_count()),
            "cpu_limit_cores": _said(None if limit is None or limit >= cores else limit, NO_LIMIT),
            "memory_limit_bytes": _said(most, NO_LIMIT),
            "memory_limit_used_bytes": _said(used, NO_LIMIT),
            **_part(_SWAP, self._swap),
        }

    def _swap(self) -> dict[str, Any]:
        if not self._machine.counts_swap():
            return dict.fromkeys(_SWAP, _Unknown(_UNSAID))
        swap = psutil.swap_memory()
        return {"swap_used_bytes": swap.used, "swap_total_bytes": swap.total}

    async def _read_disks(self) -> None:
        """A disk that does not answer keeps its last figure and says so; nobody waits for it twice."""
        asked = [(role, Path(path)) for role, path in self._disks()]
        now_ns = self._clock.now_ns()
        if self._disk_thread.busy or (now_ns < self._disks_due_ns and asked == self._asked_disks):
            return
        self._asked_disks, self._disks_due_ns = asked, now_ns + DISK_NS
        try:
            found = await within(
                self._clock, DISK_DEADLINE_S, self._disk_thread.call(lambda: [_space(*one) for one in asked])
            )
        except Late:
            self._disk_reasons = {f"disks.{path}": f"no answer for {DISK_DEADLINE_S:g} s" for _, path in asked}
            return
        self._seen_disks = tuple(one for one in found if isinstance(one, Disk))
        self._disk_reasons = dict(one for one in found if not isinstance(one, Disk))


class _Unknown(NamedTuple):
    """A reason in the place of a value."""

    why: str


def _said(value: Any, otherwise: str = _UNSAID) -> Any:
    return _Unknown(otherwise) if value is None else value


def _part(fields: Sequence[str], read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `read` gives; where /proc is hidden, or not as psutil expects it, only these fields are unknown."""
    try:
        return read()
    except (OSError, RuntimeError, ValueError, psutil.Error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return dict.fromkeys(fields, _Unknown(f"can't be read: {why}"))


def _memory() -> dict[str, Any]:
    seen = psutil.virtual_memory()
    return {
        "memory_used_bytes": seen.total - seen.available,
        "memory_available_bytes": seen.available,
        "memory_total_bytes": seen.total,
    }


def _space(role: str, path: Path) -> Disk | tuple[str, str]:
    """Of the nearest folder that exists: traces may go to one that is not made yet."""
    place = path
    while not present(place) and place != place.parent:
        place = place.parent
    try:
        usage_of = psutil.disk_usage(str(place))
    except OSError as error:
        return f"disks.{path}", error.strerror or str(error)
    return Disk(role=role, path=str(path), free_bytes=usage_of.free, total_bytes=usage_of.total)
