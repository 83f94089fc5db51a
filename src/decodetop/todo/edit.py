"""What a flow of ours tells the notebook of an edit it made in the file itself."""

from __future__ import annotations

from decodetop.core.sample import Command
from decodetop.todo.document import Document


class EditMade(Command, frozen=True, kw_only=True):
    """A flow of ours wrote the file `after` from `before`: undo takes it back as one edit made here."""

    title = "take note of an edit"

    before: Document
    after: Document
