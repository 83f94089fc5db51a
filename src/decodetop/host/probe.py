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
        memory = psutil.virtual_memory()
        values = {**self._cpu(), **self._slow}
        reasons |= refused
        reasons |= {field: value.why for field, value in values.items() if isinstance(value, _Unknown)}
        load = os.getloadavg()
        return HostReading(
            **{field: value for field, value in values.items() if not isinstance(value, _Unknown)},
            load_1=load[0],
            load_5=load[1],
            load_15=load[2],
            memory_used_bytes=memory.total - memory.available,
            memory_available_bytes=memory.available,
            memory_total_bytes=memory.total,
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
            fields = ("cpu_percent", "cpu_max_core_percent", "cpu_per_core_percent", "cpu_steal_percent")
            return {"cpu_count": len(self._cores), **dict.fromkeys(fields, why)}
        return {
            "cpu_count": len(self._cores),
            "cpu_percent": used.mean,
            "cpu_max_core_percent": used.highest,
            "cpu_per_core_percent": used.per_core,
            "cpu_steal_percent": used.stolen,
        }

    def _read_slow(self) -> dict[str, Any]:
        values: dict[str, Any] = {"kernel": f"{os.uname().sysname} {os.uname().release}"}
        values["boot_wall_ns"] = int(psutil.boot_time() * SECOND_NS)
        frequency = self._machine.frequency_mhz(psutil.cpu_count() or 1)
        values["cpu_frequency_mhz"] = _Unknown("the kernel does not say") if frequency is None else frequency
        nodes = self._machine.node_count()
        values["cpu_numa_nodes"] = _Unknown("the kernel does not say") if nodes is None else nodes
        cores, limit = self._machine.cpu_limit_cores(), self._machine.memory_limit()
        values["cpu_limit_cores"] = _Unknown(NO_LIMIT) if cores is None else cores
        values["memory_limit_bytes"], values["memory_limit_used_bytes"] = limit or (_Unknown(NO_LIMIT),) * 2
        if self._machine.counts_swap():
            swap = psutil.swap_memory()
            values |= {"swap_used_bytes": swap.used, "swap_total_bytes": swap.total}
        else:
            values |= dict.fromkeys(("swap_used_bytes", "swap_total_bytes"), _Unknown("the kernel does not say"))
        return values

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
