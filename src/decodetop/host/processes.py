"""CPU and memory of the processes somebody watches. A pid that vanished is left out; that is no error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import psutil

from decodetop.core.clock import SECOND_NS
from decodetop.host.machine import Machine
from decodetop.host.reading import HostProcess


class Watched(Protocol):
    """Which process, of which server, and what it is to it."""

    @property
    def pid(self) -> int: ...
    @property
    def root_pid(self) -> int: ...
    @property
    def role(self) -> str: ...
    @property
    def title(self) -> str: ...


class _Before(NamedTuple):
    process: psutil.Process
    t_ns: int
    cpu_s: float
    switches: int


class Processes:
    """Remembers the counters of the last reading. Blocks."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._before: dict[int, _Before] = {}

    def read(self, watched: Iterable[Watched], now_ns: int) -> tuple[tuple[HostProcess, ...], dict[str, str]]:
        """The living ones, and why one that lives can't be read (`processes.PID`)."""
        found, reasons = [], {}
        before, self._before = self._before, {}
        for one in watched:
            try:
                found.append(self._one(one, before.get(one.pid), now_ns))
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
            except psutil.AccessDenied:
                found.append(HostProcess(pid=one.pid, root_pid=one.root_pid, role=one.role, title=one.title))
                reasons[f"processes.{one.pid}"] = "no permission"
            except (OSError, RuntimeError, ValueError) as error:
                found.append(HostProcess(pid=one.pid, root_pid=one.root_pid, role=one.role, title=one.title))
                reasons[f"processes.{one.pid}"] = f"can't be read: {error}"
        return tuple(found), reasons

    def _one(self, one: Watched, before: _Before | None, now_ns: int) -> HostProcess:
        # a psutil.Process knows when it began, so a reused pid is not taken for the one before
        process = before.process if before is not None and before.process.is_running() else psutil.Process(one.pid)
        if before is not None and before.process is not process:
            before = None
        with process.oneshot():
            user_s, system_s = process.cpu_times()[:2]
            memory_bytes = process.memory_info().rss
            threads = process.num_threads()
            core = _of(process, "cpu_num")
        switches = process.num_ctx_switches()
        after = _Before(process, now_ns, user_s + system_s, switches.voluntary + switches.involuntary)
        self._before[one.pid] = after
        elapsed_s = 0.0 if before is None else (now_ns - before.t_ns) / SECOND_NS
        known = before is not None and elapsed_s > 0
        return HostProcess(
            pid=one.pid,
            root_pid=one.root_pid,
            role=one.role,
            title=one.title,
            cpu_percent=max(0.0, 100 * (after.cpu_s - before.cpu_s) / elapsed_s) if before and known else None,
            memory_rss_bytes=memory_bytes,
            threads=threads,
            numa_node=None if core is None else self._machine.node_of(core),
            context_switches_s=(after.switches - before.switches) / elapsed_s if before and known else None,
        )


def _of(process: psutil.Process, name: str) -> int | None:
    """A figure only some systems have."""
    ask: Callable[[], int] | None = getattr(process, name, None)
    return None if ask is None else ask()
