"""From the box's processes to inference servers: whose root, which children, which port. Pure.

Children that set their own title (`sglang::scheduler_TP0`, `VLLM::Worker_TP1`) have no readable environment and no
flags: those are their root's. Titles are matched by their beginning, for ranks and versions change the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

import msgspec

from decodetop.server.flags import clipped, requested_flags, whole
from decodetop.server.reading import Engine, Role, ServerProcess

Socket = tuple[str, int]
"""Address and port somebody listens on."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """`argv` without the empty words that a retitled process carries; `program` is what the kernel calls it."""

    pid: int
    ppid: int
    argv: tuple[str, ...]
    created_s: float = 0.0
    program: str = ""


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """A server: the process started by hand or by a unit, and its children folded in."""

    engine: Engine
    process: Process
    children: tuple[ServerProcess, ...] = ()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def pids(self) -> tuple[int, ...]:
        return (self.pid, *(child.pid for child in self.children))


MODULES: Mapping[str, Engine] = {
    "sglang.launch_server": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
}
"""`python -m MODULE`."""

PROGRAMS: Mapping[tuple[str, str], Engine] = {
    ("sglang", "serve"): "sglang",
    ("vllm", "serve"): "vllm",
    ("ollama", "serve"): "ollama",
    ("lmdeploy", "serve"): "lmdeploy",
    ("llama-server", ""): "llamacpp",
    ("text-generation-launcher", ""): "tgi",
    ("trtllm-serve", ""): "trtllm",
}
"""Program and its first word, the latter empty where any will do. Clients (`sglang.bench_serving`) match none."""

TITLES: Sequence[tuple[str, Role]] = (
    ("sglang::scheduler", "scheduler"),
    ("sglang::detokenizer", "detokenizer"),
    ("sglang::tokenizer", "tokenizer"),
    ("sgl_diffusion::scheduler", "scheduler"),
    ("VLLM::EngineCore", "engine"),
    ("VLLM::Worker", "worker"),
    ("VLLM::APIServer", "api"),
    ("text-generation-router", "api"),
    ("text-generation-server", "worker"),
    ("llama-server", "engine"),
    ("ollama runner", "engine"),
    ("vllm-rs", "api"),
)

PORTS: Mapping[Engine, int] = {
    "sglang": 30000,
    "vllm": 8000,
    "llamacpp": 8080,
    "ollama": 11434,
    "tgi": 3000,
    "lmdeploy": 23333,
    "trtllm": 8000,
}
_PORT_FLAGS = ("port", "server_port")
_PYTHON = re.compile(r"(python|pypy)[\d.]*")


def engine_of(argv: Sequence[str]) -> Engine | None:
    """The engine whose server this command starts. Wrappers (`bash -c`, `docker run`, `sudo`) are none."""
    if not argv:
        return None
    program, rest = PurePath(argv[0]).name, list(argv[1:])
    if _PYTHON.fullmatch(program):
        while rest and rest[0].startswith("-") and rest[0] != "-m":
            rest = rest[2:] if rest[0] in ("-X", "-W") else rest[1:]
        if not rest:
            return None
        if rest[0] == "-m":
            return MODULES.get(rest[1]) if len(rest) > 1 else None
        program, rest = PurePath(rest[0]).name, rest[1:]
    return PROGRAMS.get((program, rest[0] if rest else "")) or PROGRAMS.get((program, ""))


def roots(processes: Iterable[Process]) -> tuple[Root, ...]:
    """One per server, by pid: a forked copy of a root and an engine started by another engine are its children."""
    by_pid = {process.pid: process for process in processes}
    engines = {pid: engine for pid, process in by_pid.items() if (engine := engine_of(process.argv)) is not None}
    tops = {pid: engine for pid, engine in engines.items() if not any(up in engines for up in _above(pid, by_pid))}
    below: dict[int, list[Process]] = {pid: [] for pid in tops}
    for pid, process in by_pid.items():
        top = next((up for up in _above(pid, by_pid) if up in tops), None)
        if top is not None and pid not in tops and not _helper(process.argv):
            below[top].append(process)
    return tuple(
        Root(engine=tops[pid], process=by_pid[pid], children=tuple(map(_child, sorted(below[pid], key=_by_pid))))
        for pid in sorted(tops)
    )


def flags_of(root: Root) -> dict[str, str]:
    return requested_flags(root.engine, root.process.argv)


def asked_port(root: Root) -> int:
    """The port its command line names, else its engine's usual one."""
    flags = flags_of(root)
    return next((port for name in _PORT_FLAGS if (port := whole(flags.get(name)))), PORTS.get(root.engine, 8000))


def listening_at(root: Root, sockets: Mapping[int, Sequence[Socket]]) -> Socket | None:
    """Where the server answers. Schedulers and workers listen on many ports of their own: only the asked port of
    theirs counts; of the root any, if it has one only."""
    port = asked_port(root)
    for pid in root.pids:
        for address, number in sockets.get(pid, ()):
            if number == port:
                return address, number
    own = sorted(set(sockets.get(root.pid, ())))
    return own[0] if len({number for _, number in own}) == 1 else None


def published_port(processes: Iterable[Process], port: int) -> int | None:
    """The host's port that a `docker-proxy` forwards to the container's `port`."""
    for process in processes:
        if process.argv and PurePath(process.argv[0]).name == "docker-proxy":
            flags = requested_flags("unknown", process.argv)
            if whole(flags.get("container_port")) == port:
                return whole(flags.get("host_port"))
    return None


def url_of(address: str, port: int, *, tls: bool = False) -> str:
    """A server that listens everywhere is asked on loopback."""
    scheme = "https" if tls else "http"
    if address in ("0.0.0.0", "::", "", "*"):
        address = "127.0.0.1"
    return f"{scheme}://[{address}]:{port}" if ":" in address else f"{scheme}://{address}:{port}"


def _above(pid: int, by_pid: Mapping[int, Process]) -> Iterator[int]:
    seen = {pid}
    process = by_pid.get(pid)
    while process is not None and process.ppid not in seen:
        seen.add(process.ppid)
        yield process.ppid
        process = by_pid.get(process.ppid)


def _by_pid(process: Process) -> int:
    return process.pid


def _helper(argv: Sequence[str]) -> bool:
    """Python's own bookkeeper of shared memory, one per root."""
    return any("multiprocessing.resource_tracker" in word for word in argv)


def _child(process: Process) -> ServerProcess:
    title = process.argv[0] if process.argv else ""
    name = clipped(title if "::" in title else PurePath(title).name)
    spoken = f"{name} {process.argv[1]}" if len(process.argv) > 1 else name
    # VLLM_PROCESS_NAME_PREFIX may put another word before the colons
    usual = f"VLLM::{spoken.partition('::')[2]}"
    for beginning, role in TITLES:
        if spoken.startswith(beginning) or usual.startswith(beginning):
            return ServerProcess(pid=process.pid, role=role, title=name)
    spawned = any("multiprocessing.spawn" in word for word in process.argv)
    return ServerProcess(pid=process.pid, role="worker" if spawned else "other", title=name)
