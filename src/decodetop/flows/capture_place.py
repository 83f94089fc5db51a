"""Where a server's traces come to lie: under which name it knows the folder, and under which we can read it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psutil

from decodetop.core.decode import NotDecoded, decode
from decodetop.errors import DataError, UsageError
from decodetop.server.reading import Server

SHARED_TMP = Path("/tmp")
"""Any server may write there; the engines' profilers need it for the uncompressed trace anyway."""

ELSEWHERE = "the server runs on another host"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """`named` is the folder as the server names it (None = a default that is not known), `seen` where it is for us
    (None = it can't be seen, for `why`). `own` = made for this capture: nothing else is written there.
    """

    named: str | None
    seen: Path | None
    own: bool
    why: str = ""


class Box(Protocol):
    """What the box tells of a process; None where it may not be known."""

    def same_files(self, pid: int) -> bool | None:
        """Whether it sees the same file systems as we do (no container)."""

    def user(self, pid: int) -> int | None: ...

    def environ(self, pid: int) -> Mapping[str, str] | None: ...

    def folder(self, pid: int) -> str | None:
        """Its working directory, as it names it."""

    def root(self, pid: int) -> Path | None:
        """Its root directory, as we may read it."""


class ThisBox:
    """The real one."""

    def same_files(self, pid: int) -> bool | None:
        try:
            return Path(f"/proc/{pid}/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
        except OSError:
            return None

    def user(self, pid: int) -> int | None:
        try:
            return int(psutil.Process(pid).uids().effective)
        except (psutil.Error, OSError):
            return None

    def environ(self, pid: int) -> Mapping[str, str] | None:
        try:
            return psutil.Process(pid).environ()
        except (psutil.Error, OSError):
            return None

    def folder(self, pid: int) -> str | None:
        try:
            return psutil.Process(pid).cwd()
        except (psutil.Error, OSError):
            return None

    def root(self, pid: int) -> Path | None:
        root = Path(f"/proc/{pid}/root")
        try:
            return root if root.is_dir() else None
        except OSError:
            return None


def place_for(server: Server, folder: Path, box: Box) -> Place:
    """For SGLang `folder` (absolute; made here) or one under /tmp with its name; vLLM writes where it was told to.

    SGLang's scheduler dies of a folder it can't make, so one of ours is named only where it surely can write.
    Raises DataError when the folder can't be made, UsageError when the server's profiler writes no traces.
    """
    if server.engine == "vllm":
        return _vllm(server, box)
    if not server.local:
        return Place(named=None, seen=None, own=False, why=ELSEWHERE)
    pid = server.root_pid
    same = None if pid is None else box.same_files(pid)
    if pid is not None and same and box.user(pid) in (os.geteuid(), 0):
        _make(folder)
        return Place(named=str(folder), seen=folder, own=True)
    shared = SHARED_TMP / f"decodetop-{folder.name}-{secrets.token_hex(4)}"
    root = box.root(pid) if pid is not None and same is False else None
    if root is not None:
        return Place(named=str(shared), seen=root / shared.relative_to("/"), own=True)
    _make(shared, everybody=True)
    return Place(named=str(shared), seen=shared, own=True)


def _vllm(server: Server, box: Box) -> Place:
    pid = server.root_pid if server.local else None
    named = _torch_profiler_dir(server, None if pid is None else box.environ(pid))
    if not server.local:
        return Place(named=named, seen=None, own=False, why=ELSEWHERE)
    if named is None:
        why = "its command line does not name torch_profiler_dir, or can't be seen from here"
        return Place(named=None, seen=None, own=False, why=why)
    if "://" in named:
        return Place(named=named, seen=None, own=False, why="it is no folder of a file system")
    if not named.startswith("/"):
        start = box.folder(pid) if pid is not None else None
        if start is None:
            why = "it is relative to the server's working directory, which can't be seen from here"
            return Place(named=named, seen=None, own=False, why=why)
        named = f"{start.rstrip('/')}/{named}"
    if pid is not None and box.same_files(pid) is False:
        root = box.root(pid)
        if root is None:
            return Place(named=named, seen=None, own=False, why="it is inside the server's container")
        return Place(named=named, seen=root / named.lstrip("/"), own=False)
    return Place(named=named, seen=Path(named), own=False)


def _torch_profiler_dir(server: Server, environ: Mapping[str, str] | None) -> str | None:
    """Of `--profiler-config` (JSON, or dotted), else of the environment. Raises UsageError for another profiler."""
    flags = {flag.name: flag.requested or flag.resolved or "" for flag in server.flags}
    config = _object(flags.get("profiler_config"))
    kind = config.get("profiler") or flags.get("profiler_config.profiler")
    if kind not in (None, "torch"):
        message = f"{server.endpoint}: vLLM was started with the profiler {kind!r}, which writes no torch trace"
        raise UsageError(message, 'start it with "profiler":"torch" in --profiler-config')
    named = config.get("torch_profiler_dir") or flags.get("profiler_config.torch_profiler_dir")
    named = named or (environ or {}).get("VLLM_TORCH_PROFILER_DIR")
    return str(named) if named else None


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = decode(text) if text else {}
    except NotDecoded:
        return {}
    return value if isinstance(value, dict) else {}


def _make(folder: Path, *, everybody: bool = False) -> None:
    """Raises DataError. `everybody` may write there, as in /tmp; such a folder must not have been there before."""
    try:
        folder.mkdir(parents=True, exist_ok=not everybody)
        if everybody:
            folder.chmod(0o1777)
    except OSError as error:
        message = f"can't make the folder for the traces, {folder}: {error.strerror or error}"
        raise DataError(message, "choose another place with --investigation DIR") from error
