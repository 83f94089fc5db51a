"""A diagnosis as it is kept: of what it is, its stages, and what earlier work had of it."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from decodetop.bench.reading import Run
from decodetop.bench.store import RunStore
from decodetop.core.clock import SECOND_NS
from decodetop.diagnosis.reading import Diagnosis, Stage, Subject
from decodetop.flows.standing import flags_of
from decodetop.server.reading import Server
from decodetop.steps.reading import Capture
from decodetop.steps.store import CaptureStore


def new_diagnosis(wall_ns: int, subject: Subject | None) -> Diagnosis:
    stamp = datetime.fromtimestamp(wall_ns // SECOND_NS, UTC).strftime("%Y%m%d-%H%M%S")
    return Diagnosis(id=f"diagnosis-{stamp}", made_wall_ns=wall_ns, subject=subject)


def with_stage(diagnosis: Diagnosis, stage: Stage) -> Diagnosis:
    stages = tuple(stage if one.name == stage.name else one for one in diagnosis.stages)
    return msgspec.structs.replace(diagnosis, stages=stages)


def subject_of(server: Server) -> Subject:
    """The same settings of the same thing: what only differs from start to start is left out."""
    kept = " ".join(f"{name}={value}" for name, value in sorted(flags_of(server).items()))
    return Subject(
        endpoint=server.endpoint,
        engine=server.engine,
        version=server.version,
        model=server.model,
        settings=f"{zlib.crc32(kept.encode()):08x}",
    )


def stored_run(folder: Path, id: int) -> Run:
    """Raises DataError."""
    store = RunStore(folder)
    try:
        return store.get(id)
    finally:
        store.close()


def stored_captures(folder: Path) -> tuple[Capture, ...]:
    store = CaptureStore(folder)
    store.load()
    return store.captures
