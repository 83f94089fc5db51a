"""Names of the processes that hold a GPU. NVML gives the host's pids, which mean nothing in a container."""

from __future__ import annotations

import re
from pathlib import Path

from decodetop.gpu.reading import GpuProcess

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of the kernel: the same on every Linux."""

_COMMAND_MAX_BYTES = 4096
_NAME_MAX = 200
"""Characters of a name; a process may give itself a title of 2 MB, which would be in every sample."""


class ProcessNames:
    """`proc` is /proc but in tests."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def named(self, listed: list[tuple[int, int | None]]) -> tuple[GpuProcess, ...]:
        """(pid, bytes) with names; a name is None where the pid is not this namespace's."""
        ours = self._sees_host_pids()
        return tuple(
            GpuProcess(pid=pid, memory_bytes=memory, name=self._name(pid) if ours or self._uses_gpu(pid) else None)
            for pid, memory in listed
        )

    def gone(self, processes: tuple[GpuProcess, ...]) -> bool:
        """One of those that had a name has ended."""
        return any(one.name is not None and not (self._proc / str(one.pid)).exists() for one in processes)

    def _sees_host_pids(self) -> bool:
        try:
            return str((self._proc / "self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
        except OSError:
            return False

    def _uses_gpu(self, pid: int) -> bool:
        """In another namespace the number may be an unrelated process's: believe it if CUDA is mapped there."""
        try:
            with (self._proc / str(pid) / "maps").open("rb") as maps:
                return any(b"libcuda.so" in line or b"/dev/nvidia" in line for line in maps)
        except OSError:
            return False

    def _name(self, pid: int) -> str | None:
        """`sglang::scheduler` or `python3 -m vllm.entrypoints...`.

        Never an option's value, which may be a secret, nor a character that a terminal would act on.
        """
        try:
            with (self._proc / str(pid) / "cmdline").open("rb") as file:
                command = file.read(_COMMAND_MAX_BYTES).decode("utf-8", "replace")
            words = re.split(r"[\0\s]+", command.strip("\0 "))
            if not words or not words[0]:
                command = (self._proc / str(pid) / "comm").read_text("utf-8", "replace")
                words = [command.strip()]
        except OSError:
            return None
        program = words[0] if "::" in words[0] else words[0].rsplit("/", 1)[-1]
        module = re.fullmatch(r"[\w.]+", words[2]) if len(words) > 2 and words[1] == "-m" else None
        name = f"{program} -m {module.group()}" if module else program
        name = name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…"
        return "".join(letter if letter.isprintable() else "?" for letter in name) or None
