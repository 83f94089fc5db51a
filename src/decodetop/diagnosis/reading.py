"""A diagnosis and how far it is; its JSON in the store is `Diagnosis` encoded."""

from __future__ import annotations

from typing import Literal

import msgspec

from decodetop.core.sample import Command, Reading
from decodetop.floor.reading import FloorReport

SCHEMA = 1

StageName = Literal["measure", "steps", "judge", "checklist"]
StageStatus = Literal["waiting", "running", "done", "skipped", "failed", "stopped"]

STAGES: dict[StageName, str] = {
    "measure": "one stream",
    "steps": "decode steps profiled",
    "judge": "floor and verdict",
    "checklist": "moves as items",
}
"""In their order."""

OVER: tuple[StageStatus, ...] = ("done", "skipped")
"""A stage that needs not be done again."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """`words` = what came of it, or while it runs how far it is. `since_ns` = session time at which it began."""

    name: StageName
    status: StageStatus = "waiting"
    words: str = ""
    since_ns: int | None = None


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a diagnosis is of: stages are kept for the same server with the same settings only."""

    endpoint: str
    engine: str = "unknown"
    version: str | None = None
    model: str | None = None
    settings: str = ""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """`run_id` and `capture_id` name what it rests on in their stores; `todo_ids` = items added to the checklist."""

    schema: int = SCHEMA
    id: str
    made_wall_ns: int
    subject: Subject | None
    stages: tuple[Stage, ...] = tuple(Stage(name=name) for name in STAGES)
    run_id: int | None = None
    capture_id: str | None = None
    report: FloorReport | None = None
    todo_ids: tuple[str, ...] = ()

    def stage(self, name: StageName) -> Stage:
        return next(one for one in self.stages if one.name == name)

    @property
    def finished(self) -> bool:
        """Nothing of it is left to do or to try again."""
        return all(stage.status in OVER for stage in self.stages)


class DiagnosisReading(Reading, frozen=True, kw_only=True):
    """`latest` = the one under way, or the last. `error` = why it ended early; `problem` = why it can't be stored."""

    latest: Diagnosis | None = None
    running: bool = False
    error: str | None = None
    problem: str | None = None


class Diagnose(Command, frozen=True, kw_only=True):
    """Measure one stream of `endpoint` (None = the current server), profile it, judge it, offer the moves as items.

    What an unfinished diagnosis of the same server has done is kept, unless `again`.
    """

    touches = True
    title = "diagnose the server"

    endpoint: str | None = None
    again: bool = False


class StopDiagnosis(Command, frozen=True, kw_only=True):
    """Stop it; what is done is kept, and starting again goes on."""

    title = "stop the diagnosis"
