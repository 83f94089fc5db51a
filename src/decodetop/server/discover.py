"""Looks for inference servers on this box: processes and sockets by psutil, as whoever runs it.

Blocking; the probe calls it on a thread of its own. Of an environment only CUDA_VISIBLE_DEVICES is kept.
"""

from __future__ import annotations

import re
import socket
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import psutil

from decodetop.server.client import host_port
from decodetop.server.flags import clipped
from decodetop.server.processes import (
    Process,
    Root,
    Socket,
    asked_port,
    flags_of,
    listening_at,
    published_port,
    roots,
    url_of,
)
from decodetop.server.proctable import ProcTable
from decodetop.server.reading import Engine, ServerProcess
from decodetop.server.redact import learn, redact

IN_CONTAINER = "in a container"
"""Why a server has no unit: its command is the container's."""

TUNNELS = ("ssh", "sshd", "autossh", "kubectl", "cloudflared")
"""A program of this name on a loopback port forwards to another host."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A server process of this box. `endpoint` is where it should answer, `listening` whether it was seen to."""

    engine: Engine
    endpoint: str
    listening: bool
    root_pid: int
    started_wall_ns: int
    processes: tuple[ServerProcess, ...]
    command: tuple[str, ...]
    flags: dict[str, str]
    gpu_indices: tuple[int, ...] | None = None
    gpu_uuids: tuple[str, ...] | None = None
    unit: str | None = None
    unit_of_user: bool = False
    log: Path | None = None
    reasons: dict[str, str] = {}


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """`hosts` are this box's own names and addresses; `tunnels` the loopback ports that lead elsewhere."""

    found: tuple[Found, ...] = ()
    processes: int = 0
    hosts: frozenset[str] = frozenset()
    tunnels: frozenset[int] = frozenset()


class Proc:
    """What is read of single processes, so that tests can stand in for it. Every call may raise psutil.Error."""

    def __init__(self) -> None:
        self._table = ProcTable()

    def all(self) -> Iterable[Process]:
        return self._table.look()

    def lives(self, pid: int) -> bool:
        return Path(f"/proc/{pid}").exists()

    def sockets(self, pid: int) -> Sequence[Socket]:
        seen = psutil.Process(pid).net_connections("tcp")
        return [(one.laddr.ip, one.laddr.port) for one in seen if one.status == psutil.CONN_LISTEN and one.laddr]

    def visible_devices(self, pid: int) -> str | None:
        return psutil.Process(pid).environ().get("CUDA_VISIBLE_DEVICES")

    def cgroup(self, pid: int) -> str:
        """Raises OSError."""
        return Path(f"/proc/{pid}/cgroup").read_text("utf-8", "replace")

    def elsewhere(self, pid: int) -> bool:
        """Whether it lives in another network namespace (a container). Raises OSError."""
        return Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()

    def log(self, pid: int) -> Path | None:
        """Its standard output or error where that is a file. Raises OSError."""
        paths = (Path(f"/proc/{pid}/fd/{number}") for number in (1, 2))
        return next((path for path in paths if stat.S_ISREG(path.stat().st_mode)), None)

    def hosts(self) -> frozenset[str]:
        addresses = {one.address.partition("%")[0].lower() for all in psutil.net_if_addrs().values() for one in all}
        return frozenset(addresses | {"0.0.0.0", socket.gethostname().lower()})

    def tunnels(self, processes: Iterable[Process]) -> frozenset[int]:
        """The ports that such programs among `processes` listen on."""
        ports: set[int] = set()
        for process in processes:
            if process.program not in TUNNELS:
                continue
            try:
                ports.update(port for _, port in self.sockets(process.pid))
            except (psutil.Error, OSError):
                continue
        return frozenset(ports)


def scan(proc: Proc, named: Sequence[str] = ()) -> Scan:
    """All servers of this box; `named` are endpoints of the settings. What may not be read is a reason, no error."""
    processes = tuple(proc.all())
    found = tuple(_describe(root, proc, processes) for root in roots(processes))
    seen = Scan(found=found, processes=len(processes), hosts=proc.hosts())
    owned = {host_port(one.endpoint)[1] for one in found}
    if any(is_local(endpoint, seen) and host_port(endpoint)[1] not in owned for endpoint in named):
        seen = msgspec.structs.replace(seen, tunnels=proc.tunnels(processes))
    return seen


def is_local(endpoint: str, seen: Scan) -> bool:
    """Whether the address is this box's and no tunnel to another."""
    host, port = host_port(endpoint)
    here = host in seen.hosts or host in ("localhost", "::1") or host.startswith("127.")
    return here and port not in seen.tunnels


def _describe(root: Root, proc: Proc, processes: Iterable[Process]) -> Found:
    reasons: dict[str, str] = {}
    sockets = _sockets(root, proc, reasons)
    at = listening_at(root, sockets)
    address, port = at or ("127.0.0.1", asked_port(root))
    flags = flags_of(root)
    if flags.get("node_rank", "0") != "0":
        reasons["endpoint"] = f"node rank {flags['node_rank']}: the server answers on the node of rank 0"
    if _elsewhere(root.pid, proc):
        reasons["endpoint"] = "in a container of its own network: give --endpoint if it does not answer here"
        port = published_port(processes, port) or port
        address = "127.0.0.1"
    learn(root.process.argv)
    unit, of_user = unit_of(root.pid, proc, reasons)
    indices, uuids = _devices(root.pid, proc, reasons)
    return Found(
        engine=root.engine,
        endpoint=url_of(address, port, tls=any(name.startswith("ssl_cert") for name in flags)),
        listening=at is not None,
        root_pid=root.pid,
        started_wall_ns=int(root.process.created_s * 1e9),
        processes=(ServerProcess(pid=root.pid, role="api", title=_title(root)), *root.children),
        command=redact(root.process.argv),
        flags=flags,
        gpu_indices=indices,
        gpu_uuids=uuids,
        unit=unit,
        unit_of_user=of_user,
        log=_log(root.pid, proc),
        reasons=reasons,
    )


def _title(root: Root) -> str:
    return clipped(Path(root.process.argv[0]).name)


def _sockets(root: Root, proc: Proc, reasons: dict[str, str]) -> dict[int, Sequence[Socket]]:
    sockets: dict[int, Sequence[Socket]] = {}
    for pid in root.pids:
        try:
            sockets[pid] = proc.sockets(pid)
        except psutil.AccessDenied:
            reasons["sockets"] = "no permission to see its sockets: the port is the one its command line names"
        except (psutil.Error, OSError):
            continue
    return sockets


def _elsewhere(pid: int, proc: Proc) -> bool:
    try:
        return proc.elsewhere(pid)
    except OSError:
        return False


def _devices(pid: int, proc: Proc, reasons: dict[str, str]) -> tuple[tuple[int, ...] | None, tuple[str, ...] | None]:
    """CUDA_VISIBLE_DEVICES as indices or UUIDs. Indices are CUDA's order, NVML's with CUDA_DEVICE_ORDER=PCI_BUS_ID
    and wherever all GPUs of the box are of one kind."""
    try:
        value = proc.visible_devices(pid)
    except psutil.AccessDenied:
        reasons["gpu_indices"] = reasons["gpu_uuids"] = "no permission to read its environment"
        return None, None
    except (psutil.Error, OSError) as error:
        reasons["gpu_indices"] = reasons["gpu_uuids"] = f"its environment can't be read: {type(error).__name__}"
        return None, None
    if value is None:
        reasons["gpu_indices"] = reasons["gpu_uuids"] = "CUDA_VISIBLE_DEVICES is not set: all GPUs"
        return None, None
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if parts and all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        reasons["gpu_uuids"] = "given as indices"
        return tuple(int(part) for part in parts), None
    if parts and all(re.match(r"(GPU|MIG)-", part) for part in parts):
        reasons["gpu_indices"] = "given as UUIDs"
        return None, tuple(parts)
    reasons["gpu_indices"] = reasons["gpu_uuids"] = f"CUDA_VISIBLE_DEVICES={value[:60]!r}"
    return None, None


def _log(pid: int, proc: Proc) -> Path | None:
    try:
        return proc.log(pid)
    except OSError:
        return None


def unit_of(pid: int, proc: Proc, reasons: dict[str, str]) -> tuple[str | None, bool]:
    """The systemd unit by the process's cgroup, and whether a user's own manager runs it; None (and why) when it was
    started by hand or in a container."""
    try:
        text = proc.cgroup(pid)
    except OSError:
        reasons["unit"] = "its cgroup can't be read"
        return None, False
    parts = [part for line in text.splitlines() for part in line.rpartition(":")[2].split("/") if part]
    units = [part for part in parts if part.endswith(".service") and not part.startswith("user@")]
    if any(re.match(r"(docker|cri-containerd|libpod|crio)[-:]|kubepods", part) for part in parts) or "docker" in parts:
        reasons["unit"] = IN_CONTAINER
        return None, False
    if not units:
        reasons["unit"] = "started by hand, by no unit"
        return None, False
    return units[-1], any(part.startswith("user@") for part in parts)
