"""A box's processes as a test wants them, in place of psutil."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from decodetop.server.discover import Proc
from decodetop.server.processes import Process, Socket


class FakeProc(Proc):
    """`denied` pids may not be looked into; `away` pids live in another network namespace."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.listening: dict[int, list[Socket]] = {}
        self.environment: dict[int, str | None] = {}
        self.cgroups: dict[int, str] = {}
        self.denied: set[int] = set()
        self.away: set[int] = set()
        self.forwarded: frozenset[int] = frozenset()
        self.logs: dict[int, Path] = {}
        self.scans = 0

    def add(
        self, pid: int, *argv: str, ppid: int = 1, listen: Sequence[Socket] = (), devices: str | None = None
    ) -> None:
        self.processes.append(Process(pid=pid, ppid=ppid, argv=argv, created_s=1_700_000_000.5))
        self.listening[pid] = list(listen)
        self.environment[pid] = devices

    def remove(self, pid: int) -> None:
        self.processes = [process for process in self.processes if process.pid != pid]

    def all(self) -> list[Process]:
        self.scans += 1
        return list(self.processes)

    def lives(self, pid: int) -> bool:
        return any(process.pid == pid for process in self.processes)

    def sockets(self, pid: int) -> Sequence[Socket]:
        self._look(pid)
        return self.listening[pid]

    def visible_devices(self, pid: int) -> str | None:
        self._look(pid)
        return self.environment[pid]

    def cgroup(self, pid: int) -> str:
        return self.cgroups.get(pid, "0::/user.slice/user-1000.slice/session-3.scope\n")

    def elsewhere(self, pid: int) -> bool:
        return pid in self.away

    def log(self, pid: int) -> Path | None:
        return self.logs.get(pid)

    def hosts(self) -> frozenset[str]:
        return frozenset({"gpu-box-7", "192.0.2.2"})

    def tunnels(self, processes: Iterable[Process]) -> frozenset[int]:
        return self.forwarded

    def _look(self, pid: int) -> None:
        if pid in self.denied:
            raise psutil.AccessDenied(pid)
        if all(process.pid != pid for process in self.processes):
            raise psutil.NoSuchProcess(pid)
