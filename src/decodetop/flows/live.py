"""The live box: real probes and services, wired. One place, so that screen, stream, record and report see the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from decodetop.bench.reading import BenchReading
from decodetop.config import Settings, api_key, investigations_root
from decodetop.core.clock import Clock
from decodetop.core.engine import Engine, Probe, Service
from decodetop.core.regular import present
from decodetop.core.sample import Header
from decodetop.core.state import State
from decodetop.flows.bench import BenchService
from decodetop.flows.capture import CaptureService
from decodetop.flows.diagnose import DiagnoseService
from decodetop.flows.evidence import EvidenceService
from decodetop.flows.floor_live import FloorService
from decodetop.flows.investigations import InvestigationsProbe
from decodetop.flows.log import LogService
from decodetop.flows.presets import PresetsWord
from decodetop.flows.record import RecordService
from decodetop.flows.session import new_header
from decodetop.gpu.probe import GpuProbe
from decodetop.host.probe import HostProbe
from decodetop.server.probe import ServerControl, ServerProbe
from decodetop.server.reading import Server, ServerReading
from decodetop.steps.service import StepsService
from decodetop.todo.follow import FollowProbe, follower
from decodetop.todo.service import TodoService

SOURCES = ("gpu", "host", "server", "todo", "bench", "steps", "floor")


class WatchedProcess(NamedTuple):
    """A server's process, as the host probe wants it."""

    pid: int
    root_pid: int
    role: str
    title: str


def build_live(settings: Settings, clock: Clock) -> Engine:
    """The engine for this box. Raises ConfigError for a key file that can't be read."""
    key = api_key(settings)
    server = ServerProbe(clock, endpoints=settings.endpoints, api_key=key, log=settings.server_log)
    probes = (
        FollowProbe(follower(settings.follow), clock),
        InvestigationsProbe(investigations_root(), settings.investigation),
    )
    return assemble(settings, clock, new_header(clock), gpu_probe, server, lambda: key, more_probes=probes)


def gpu_probe(clock: Clock, quiet: Callable[[], bool]) -> Probe:
    """The GPUs of this box."""
    return GpuProbe(clock, quiet=quiet)


def assemble(
    settings: Settings,
    clock: Clock,
    header: Header,
    gpu: Callable[[Clock, Callable[[], bool]], Probe],
    server: ServerProbe,
    key: Callable[[], str | None],
    more: Sequence[Service] = (),
    more_probes: Sequence[Probe] = (),
) -> Engine:
    """An engine with every instrument, on the investigation of the settings; `gpu` makes the GPU probe.

    `more` and `more_probes` stand beside the instruments'; a rate that is asked for is not theirs.
    """
    folder = settings.investigation
    word = PresetsWord(folder)
    presets = word.presets
    steps = StepsService(folder)
    bench, capture = BenchService(folder, presets, key), CaptureService(folder, steps, key)
    engine: Engine

    def state() -> State:
        return engine.state

    probes: Sequence[Probe] = (
        gpu(clock, lambda: bench_is_running(state())),
        HostProbe(clock, watched=lambda: watched(state()), disks=lambda: disks(folder)),
        server,
    )
    for probe in probes:
        probe.period_s = settings.rate_s
    engine = Engine(
        header,
        clock,
        (*probes, *more_probes),
        (
            ServerControl(server),
            TodoService(folder),
            bench,
            steps,
            capture,
            FloorService(folder),
            DiagnoseService(folder, presets, bench, capture),
            RecordService(folder / "tapes", header),
            EvidenceService(),
            word,
            LogService(folder, known=filter(None, [key()])),
            *more,
        ),
        readonly=settings.readonly,
    )
    return engine


def bench_is_running(state: State) -> bool:
    bench = state.last("bench", BenchReading)
    return bench is not None and bench.progress is not None


def watched(state: State) -> tuple[WatchedProcess, ...]:
    """The processes of the servers that run on this box."""
    reading = state.last("server", ServerReading)
    servers: tuple[Server, ...] = reading.servers if reading is not None else ()
    return tuple(
        WatchedProcess(process.pid, server.root_pid or process.pid, process.role, process.title)
        for server in servers
        if server.local
        for process in server.processes
    )


def disks(folder: Path) -> tuple[tuple[str, Path], ...]:
    """Where space matters: the investigation, and the folder engines write their traces to by default."""
    existing = next((path for path in (folder, *folder.parents) if present(path)), Path("/"))
    return (("investigation", existing), ("traces", Path(tempfile.gettempdir())))


def settled(state: State) -> bool:
    """Every source has spoken, and those that count per second twice."""
    spoken = all(state.lane(source).last is not None or state.lane(source).failure is not None for source in SOURCES)
    twice = all(
        len(state.lane(source).history) >= 2 or state.lane(source).failure is not None
        for source in ("gpu", "host", "server")
    )
    return spoken and twice
