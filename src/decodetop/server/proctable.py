"""The box's process table, read the cheap way: two small files a process, and not all of them at each look. Blocking.

psutil makes an object a process and checks each for a reused pid: 12 % of what watching cost, at a look every 10 s.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from decodetop.server.processes import Process

COMMAND_MAX_BYTES = 64 << 10
"""Of a process's command line. Linux allows 2 MiB, a million words, and each would be looked at for keys and flags."""
YOUNG = 4
ANEW = 6


class ProcTable:
    """A process is read anew in its first looks, when it may take another title, and then every `ANEW` looks.

    A pid that was given to another process meanwhile is so noticed within `ANEW` looks.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """`proc` is /proc but in tests."""
        self._proc = proc
        self._known: dict[int, tuple[Process, int]] = {}
        self._ticks_s = os.sysconf("SC_CLK_TCK")
        self._boot_s: float | None = None

    def look(self) -> list[Process]:
        """Every process that may be seen. One that ends meanwhile is left out."""
        if not (self._proc / "self" / "stat").exists():
            return list(_by_psutil())
        before, self._known = self._known, {}
        for folder in self._proc.iterdir():
            if not folder.name.isdigit():
                continue
            pid = int(folder.name)
            process, looks = before.get(pid, (None, 0))
            if process is None or looks < YOUNG or (looks + pid) % ANEW == 0:
                process = self._read(pid, folder)
            if process is not None:
                self._known[pid] = process, looks + 1
        return [process for process, _ in self._known.values()]

    def _read(self, pid: int, folder: Path) -> Process | None:
        try:
            stat, command = (folder / "stat").read_bytes(), _command(folder / "cmdline")
        except OSError:
            return None
        # the name may hold anything, blanks and brackets too: its last bracket ends it
        program, _, rest = stat.partition(b"(")[2].rpartition(b")")
        fields = rest.split()
        if len(fields) < 20:
            return None  # it ended while it was read
        if self._boot_s is None:
            self._boot_s = psutil.boot_time()
        return Process(
            pid=pid,
            ppid=int(fields[1]),
            argv=_argv(command),
            created_s=self._boot_s + int(fields[19]) / self._ticks_s,
            program=program.decode("utf-8", "replace"),
        )


def _command(path: Path) -> bytes:
    """Its begin, in whole words: of a part of a key nothing tells that it is one."""
    with path.open("rb") as file:
        command = file.read(COMMAND_MAX_BYTES + 1)
    return command if len(command) <= COMMAND_MAX_BYTES else command[:COMMAND_MAX_BYTES].rpartition(b"\0")[0]


def _argv(command: bytes) -> tuple[str, ...]:
    """Without the empty words of a retitled process. Some titles have blanks where others have zeros."""
    words = command.decode("utf-8", "surrogateescape").split("\0")
    return tuple(word for word in words if word)


def _by_psutil() -> Iterator[Process]:
    """Where there is no /proc."""
    for process in psutil.process_iter(["pid", "ppid", "cmdline", "create_time", "name"]):
        info = process.info
        yield Process(
            pid=info["pid"],
            ppid=info["ppid"] or 0,
            argv=tuple(word for word in info["cmdline"] or () if word),
            created_s=info["create_time"] or 0.0,
            program=info["name"] or "",
        )
