"""A finding becomes an item of the investigation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodetop.core.words import clock_time
from decodetop.findings import Finding
from decodetop.todo.reading import CLOSED, AddTodo, Evidence
from decodetop_tui.acts import todo
from decodetop_tui.screens.choose import Choice, Choose

if TYPE_CHECKING:
    from decodetop_tui.face import Face

_ORDER = ("invalid", "suspect", "info")


def found(face: Face) -> list[Finding]:
    """The worst first, as the findings line shows them."""
    findings = face.stage.findings(face.lookout.state)
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


def has_any(face: Face) -> str | None:
    return todo.has_list(face) or (None if found(face) else "there is no finding")


def add(face: Face) -> None:
    """The worst one that no open item speaks of yet."""
    fresh = [finding for finding in found(face) if not _spoken_of(face, finding)]
    if fresh:
        _add(face, fresh[0])
    else:
        face.say("every finding has an open item already")


def choose(face: Face) -> None:
    """All of them with their numbers; Enter makes one an item."""
    findings = {finding.id: finding for finding in found(face)}
    started_ns = face.lookout.state.header.started_wall_ns
    choices = [
        Choice(
            finding.id,
            finding.title,
            f"{finding.evidence}, since {clock_time(started_ns + finding.since_ns)}",
            "item" if _spoken_of(face, finding) else "",
        )
        for finding in findings.values()
    ]

    def use(chosen: str | None) -> None:
        if chosen is not None:
            _add(face, findings[chosen])

    face.ask(Choose(face.palette, "findings: Enter adds an item", choices), use)


def _spoken_of(face: Face, finding: Finding) -> bool:
    return any(
        item.status not in CLOSED and any(one.kind == "finding" and one.ref == finding.id for one in item.evidence)
        for item in todo.items(face)
    )


def _add(face: Face, finding: Finding) -> None:
    summary = f"{finding.title}: {finding.evidence}"
    evidence = Evidence(kind="finding", ref=finding.id, summary=summary)
    priority = "high" if finding.severity == "invalid" else "medium" if finding.severity == "suspect" else "low"
    face.panes["todo"].take_next()
    face.submit(
        AddTodo(content=finding.item, priority=priority, hypothesis=finding.hypothesis or None, evidence=(evidence,))
    )
    face.say(f"item added: {finding.title}")
