"""The checklist in memory: what it is now, what its file was known to hold, and the way back. No I/O."""

from __future__ import annotations

from decodetop.core.sample import Command, Notice
from decodetop.todo import formats, model
from decodetop.todo.document import Document, Item, same
from decodetop.todo.edit import EditMade
from decodetop.todo.importing import import_block
from decodetop.todo.merge import merge3, renames
from decodetop.todo.reading import (
    CLOSED,
    AddAttempt,
    AddEvidence,
    AddTodo,
    EditTodo,
    ImportTodos,
    MoveTodo,
    RedoTodo,
    RestoreTodo,
    UndoTodo,
)
from decodetop.todo.store import Known, Seen
from decodetop.todo.versions import Versions

GONE_KEPT = 50


class Notebook:
    """`agreed` = what the file holds too: what `now` has otherwise is only in memory. `gone` = items that an outside
    edit removed, by id.
    """

    def __init__(self) -> None:
        self.now = Document()
        self.agreed = Document()
        self.versions = Versions()
        self._foreign: Document | None = None
        self._last: Document | None = None
        self.undo = model.Undo()
        self.gone: dict[str, Item] = {}

    @property
    def owes(self) -> bool:
        """Something is only in memory."""
        return not same(self.agreed.items, self.now.items)

    @property
    def known(self) -> Known | None:
        """None before the file could be read."""
        if not self.versions:
            return None
        return Known(agreed=self.agreed, foreign=self._foreign, last=self._last, versions=self.versions.all)

    def look(self, seen: Seen) -> None:
        """Take in what the file holds.

        Edits made before the file could be read are new to it: nothing was agreed then.
        """
        self._remember(seen)
        self.undo = self.undo.renamed(renames(self.agreed, self.now, seen.document))
        self._take(merge3(self.agreed, self.now, seen.document))
        self.agreed = seen.document

    def saved(self, document: Document, seen: Seen) -> None:
        """`document` is in the file now, made from what was `seen` there."""
        self._remember(seen)
        self.undo = self.undo.renamed(renames(self.agreed, self.now, seen.document))
        self.begin(document)

    def begin(self, document: Document) -> None:
        """Start from this, of a file that can't be read whole."""
        self.versions.remember(document)
        self._take(document)
        self.agreed = document

    def _remember(self, seen: Seen) -> None:
        self.versions.remember(seen.theirs, seen.theirs is seen.foreign)
        self._foreign, self._last = seen.foreign, seen.last

    def edit(self, command: Command, wall_ns: int) -> Notice | None:
        """Make an edit; the result is a word to the operator. Raises UsageError and DataError, with nothing changed."""
        if isinstance(command, EditMade):
            self.undo = self.undo.record(command.before, command.after)
            return None
        before = self.now
        notice = self._apply(command, wall_ns)
        if isinstance(command, (UndoTodo, RedoTodo)):
            word = "undone" if isinstance(command, UndoTodo) else "made again"
            return Notice(message=f"{word}: {model.difference(before, self.now)}")
        if not same(before.items, self.now.items):
            self.undo = self.undo.record(before, self.now)
        return notice

    def _apply(self, command: Command, wall_ns: int) -> Notice | None:
        match command:
            case AddTodo():
                self.now, _ = model.add(self.now, command, wall_ns)
            case EditTodo():
                self.now = model.edit(self.now, command, wall_ns)
                return _advice(self.now, command)
            case MoveTodo():
                self.now = model.move(self.now, command)
            case AddAttempt():
                self.now = model.attempt(self.now, command, wall_ns)
            case AddEvidence():
                self.now = model.evidence(self.now, command, wall_ns)
            case UndoTodo():
                self.undo, self.now = self.undo.undo(self.now)
            case RedoTodo():
                self.undo, self.now = self.undo.redo(self.now)
            case RestoreTodo():
                if command.id in self.gone:
                    self.now = model.restore(self.now, self.gone.pop(command.id))
            case ImportTodos():
                self.now, imported = import_block(self.now, formats.parse(command.text), wall_ns)
                return Notice(message=f"import: {imported}")
        return None

    def _take(self, now: Document) -> None:
        """Go on with this, and remember the items that somebody else removed."""
        for item in self.now.items:
            if now.get(item["id"]) is None:
                self.gone[item["id"]] = item
        for id in [id for id in self.gone if now.get(id) is not None] + list(self.gone)[:-GONE_KEPT]:
            self.gone.pop(id, None)
        self.now = now


def _advice(document: Document, command: EditTodo) -> Notice | None:
    """A soft word: more than one item in progress, or one closed without a reason."""
    if command.status == "in_progress" and len(model.in_progress(document)) > 1:
        others = ", ".join(model.words_of(document, id) for id in model.in_progress(document) if id != command.id)
        message = f"in progress beside {others}: {model.words_of(document, command.id)}"
        return Notice(level="warning", message=message, hint="one at a time")
    if command.status in CLOSED and model.closed_without_why(model.item_of(document, command.id)):
        hint = "add a note, an attempt or a benchmark run to it, so that it can be read tomorrow"
        return Notice(
            level="info", message=f"closed with no word of why: {model.words_of(document, command.id)}", hint=hint
        )
    return None
