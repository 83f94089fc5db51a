"""One NVML session, from nvmlInit to nvmlShutdown: the GPUs it lists, and what is asked of the box as a whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from decodetop.core.clock import SECOND_NS, Clock
from decodetop.gpu.codes import GONE, SESSION, NvmlError, words
from decodetop.gpu.device import BUDGET_NS, Device
from decodetop.gpu.library import Library
from decodetop.gpu.machine import Machine
from decodetop.gpu.processes import ProcessNames
from decodetop.gpu.reading import Link

_COUNT_NS = 10 * SECOND_NS
_XIDS_A_ROUND = 16
_ROUND_NS = 4 * SECOND_NS
"""All GPUs together may take so long."""
# nvmlGpuTopologyLevel_t
_PATHS: dict[int, Any] = {
    0: "same_board",
    10: "pcie_switch",
    20: "pcie_switches",
    30: "host_bridge",
    40: "numa_node",
    50: "sockets",
}


@dataclass(frozen=True, slots=True)
class Versions:
    driver: str | None
    nvml: str | None
    cuda: str | None
    reasons: dict[str, str]


@dataclass(frozen=True, slots=True)
class Box:
    """What one round found of the box: how many GPUs the driver lists now, Xids as (index, code), paths."""

    count: int
    xids: tuple[tuple[int, int], ...]
    links: tuple[Link, ...]


class Session:
    """Made and closed on an NVML thread; no handle of it is used after `close`."""

    def __init__(
        self, nvml: Library, clock: Clock, machine: Machine, names: ProcessNames, quiet: Callable[[], bool]
    ) -> None:
        """nvmlInit. Raises ProbeError (absent: no library, no driver, no GPU) with what to do."""
        self.nvml = nvml
        self._clock = clock
        try:
            nvml.init()
        except NvmlError as error:
            raise machine.why_not(error) from error
        try:
            self.versions = _versions(nvml)
            self._count = nvml.count()
        except NvmlError as error:
            self._shutdown()
            raise machine.why_not(error) from error
        if self._count == 0:
            self._shutdown()
            raise machine.no_gpus(self.versions.driver)
        first_gpm = threading.Lock()
        share_ns = min(BUDGET_NS, _ROUND_NS // self._count)
        self.devices = [
            Device(nvml, index, clock, machine, names, first_gpm, quiet, self.versions.driver, share_ns)
            for index in range(self._count)
        ]
        self._count_due_ns = clock.now_ns() + _COUNT_NS
        self._links: tuple[Link, ...] | None = None
        self._watch: Any = None
        self._watched: list[Device] = []

    def box(self) -> Box:
        """After the devices of a round. Blocks; raises NvmlError when the session is over."""
        if self._links is None:
            self._links = tuple(self._paths())
            self._listen()
        now_ns = self._clock.now_ns()
        if now_ns >= self._count_due_ns:
            self._count = self.nvml.count()
            self._count_due_ns = now_ns + _COUNT_NS
        return Box(self._count, tuple(self._xids()), self._links)

    def close(self) -> None:
        """Give everything back. What a session that ended by itself refuses does not matter any more."""
        for device in self.devices:
            with suppress(NvmlError):
                device.close()
        if self._watch is not None:
            with suppress(NvmlError):
                self.nvml.xid_close(self._watch)
        self._shutdown()

    def _shutdown(self) -> None:
        with suppress(NvmlError):
            self.nvml.shutdown()

    def _paths(self) -> list[Link]:
        found = []
        able = [device for device in self.devices if device.handle is not None]
        for at, one in enumerate(able):
            for other in able[at + 1 :]:
                path = self._path(one, other)
                if path is not None:
                    found.append(Link(a=one.index, b=other.index, path=path))
        return found

    def _path(self, one: Device, other: Device) -> Any:
        try:
            if self.nvml.nvlink_between(one.handle, other.handle):
                return "nvlink"
        except NvmlError as error:
            if error.code in SESSION:
                raise
        try:
            return _PATHS.get(self.nvml.topology(one.handle, other.handle))
        except NvmlError as error:
            if error.code in SESSION:
                raise
            return None

    def _listen(self) -> None:
        self._watched = [device for device in self.devices if device.handle is not None]
        try:
            self._watch = self.nvml.xid_watch([device.handle for device in self._watched]) if self._watched else None
        except NvmlError as error:
            if error.code in SESSION:
                raise

    def _xids(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while self._watch is not None and len(found) < _XIDS_A_ROUND:
            try:
                event = self.nvml.xid_next(self._watch)
            except NvmlError as error:
                if error.code in SESSION:
                    raise
                if error.code not in GONE:
                    self._watch = None  # this driver has no events; a lost GPU may still be heard of
                break
            if event is None:
                break
            found.append((self._watched[event[0]].index, event[1]))
        return found


def _versions(nvml: Library) -> Versions:
    reasons: dict[str, str] = {}

    def ask(field: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except NvmlError as error:
            if error.code in SESSION:
                raise
            reasons[field] = words(error.code)
            return None

    driver = ask("driver_version", nvml.driver_version)
    version = ask("nvml_version", nvml.nvml_version)
    cuda = ask("cuda_version", nvml.cuda_version)
    text = None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
    return Versions(driver, version, text, reasons)
