"""Which reading each source's lane holds: what the codec needs to read tapes and pipes."""

from __future__ import annotations

from collections.abc import Mapping

from decodetop.bench.reading import BenchReading
from decodetop.core.sample import Reading
from decodetop.core.tape import Codec
from decodetop.diagnosis.reading import DiagnosisReading
from decodetop.floor.reading import FloorReading
from decodetop.gpu.reading import GpuReading
from decodetop.host.reading import HostReading
from decodetop.log.reading import LogReading
from decodetop.server.reading import ServerReading
from decodetop.steps.reading import StepsReading
from decodetop.todo.reading import FollowReading, InvestigationsReading, TodoReading

READINGS: Mapping[str, type[Reading]] = {
    "gpu": GpuReading,
    "host": HostReading,
    "server": ServerReading,
    "todo": TodoReading,
    "follow": FollowReading,
    "log": LogReading,
    "investigations": InvestigationsReading,
    "bench": BenchReading,
    "steps": StepsReading,
    "floor": FloorReading,
    "diagnosis": DiagnosisReading,
}


def codec() -> Codec:
    return Codec(READINGS)
