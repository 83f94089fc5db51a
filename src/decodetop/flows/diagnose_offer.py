"""What a diagnosis offers: its moves as items of the checklist, with what they rest on, and the way back."""

from __future__ import annotations

import contextlib
from pathlib import Path

from decodetop.bench.reading import Run
from decodetop.core.words import significant
from decodetop.diagnosis.reading import Diagnosis
from decodetop.errors import DataError
from decodetop.floor.offers import standing, todo_of_move
from decodetop.floor.reading import FloorReport
from decodetop.floor.text import VERDICTS
from decodetop.flows.judging import token_ms
from decodetop.steps.reading import Capture
from decodetop.todo import model
from decodetop.todo.document import Document
from decodetop.todo.edit import EditMade
from decodetop.todo.past import Past
from decodetop.todo.reading import Evidence
from decodetop.todo.store import TodoStore
from decodetop.todo.view import todos_of


def evidence_of(diagnosis: Diagnosis, run: Run | None, capture: Capture | None) -> tuple[Evidence, ...]:
    """What the moves rest on: the run, the capture, the diagnosis itself."""
    found: list[Evidence] = []
    if run is not None and run.id is not None:
        found.append(Evidence(kind="run", ref=str(run.id), summary=f"{significant(token_ms(run))} ms a token"))
    if capture is not None:
        report = capture.report
        used = report.ranks[0].steps.used if report.ranks else 0
        found.append(Evidence(kind="capture", ref=capture.id, summary=f"{used} decode steps"))
    verdict = diagnosis.report.verdict if diagnosis.report is not None else None
    words = None if verdict is None else VERDICTS[verdict.id]
    return (*found, Evidence(kind="report", ref=diagnosis.id, summary=words))


def offer(
    report: FloorReport, folder: Path, wall_ns: int, links: tuple[Evidence, ...] = ()
) -> tuple[tuple[str, ...], EditMade]:
    """The moves as pending items, but those listed or tried already. Ids of those added, and the edit as one.

    Raises DataError.
    """
    added: list[str] = []
    before: list[Document] = []

    def change(document: Document) -> Document:
        added.clear()
        before[:] = [document]
        listed = todos_of(document.items)
        for move in report.moves:
            if standing(move, listed) is None:
                document, id = model.add(document, todo_of_move(move, links), wall_ns)
                added.append(id)
        return document

    after = TodoStore(folder).update(change)
    return tuple(added), EditMade(before=before[0], after=after)


def remember(folder: Path, edit: EditMade) -> None:
    """For `decodetop todo undo`. The items are there; that they can't be taken back is no reason to fail."""
    with contextlib.suppress(DataError):
        Past(folder).record(edit.before, edit.after)
