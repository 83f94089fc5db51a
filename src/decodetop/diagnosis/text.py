"""A diagnosis in words. Pure."""

from __future__ import annotations

from decodetop.core.outside import plain
from decodetop.diagnosis.reading import STAGES, Diagnosis, Stage, StageStatus
from decodetop.server.reading import ENGINE_NAMES, Server
from decodetop.steps.reading import CAPTURE_COSTS, CAPTURE_STEPS

MARKS: dict[StageStatus, str] = {
    "waiting": "○", "running": "▶", "done": "✓", "skipped": "–", "failed": "✗", "stopped": "■",
}  # fmt: skip


def question(endpoint: str | None, server: Server | None) -> str:
    """What will be done to whom, before it is."""
    where = endpoint or (server.endpoint if server is not None else "the server")
    who = where
    if server is not None:
        named = [ENGINE_NAMES.get(server.engine, server.engine), server.version, server.served_name or server.model]
        who = f"{' '.join(word for word in named if word)} at {where}"
    if server is not None and not server.local:
        return plain(
            f"{who}: one stream is measured. It runs on another host: its decode steps can't be profiled from here, "
            "and it is judged where its card is chosen (f) and its model is known here."
        )
    running = 0 if server is None or server.generated_tok_s == 0 else server.running or 0
    busy = f" {running} requests of others run there: the step is theirs too." if running else ""
    return plain(
        f"{who}: one stream is measured, then {CAPTURE_STEPS} decode steps are profiled.{busy} {CAPTURE_COSTS}"
    )


def stage_line(stage: Stage) -> str:
    """measure: done, run 4: 5.11 ms a token, one stream."""
    return plain(f"{stage.name}: {stage.status}{f', {stage.words}' if stage.words else ''}")


def under_way(diagnosis: Diagnosis) -> str:
    """2/4 decode steps profiled: waiting for the trace files."""
    for at, stage in enumerate(diagnosis.stages, 1):
        if stage.status == "running":
            words = f": {stage.words}" if stage.words else ""
            return plain(f"{at}/{len(diagnosis.stages)} {STAGES[stage.name]}{words}")
    return ""


def kept_words(diagnosis: Diagnosis) -> str:
    """What a stopped or broken diagnosis has, and what is left; empty when nothing is."""
    done = [STAGES[stage.name] for stage in diagnosis.stages if stage.status in ("done", "skipped")]
    left = [STAGES[stage.name] for stage in diagnosis.stages if stage.status not in ("done", "skipped")]
    if not left:
        return ""
    have = f"{', '.join(done)} kept; " if done else ""
    return f"{have}left: {', '.join(left)}"
