"""What the file was known to hold, so that a list written from an older one can be told. Pure."""

from __future__ import annotations

from decodetop.todo.document import Document, same

KEPT = 64
ITEMS_KEPT = 20_000
"""Of all versions together: comparing a list with them takes about 30 us an item."""


class Versions:
    """Oldest first. What a foreign tool wrote is kept longest: it goes on from there, whatever happened since."""

    def __init__(self) -> None:
        self._kept: list[tuple[Document, bool]] = []

    def __bool__(self) -> bool:
        return bool(self._kept)

    @property
    def all(self) -> tuple[Document, ...]:
        return tuple(document for document, _ in self._kept)

    @property
    def newest(self) -> Document:
        """Empty if nothing is known."""
        return self._kept[-1][0] if self._kept else Document()

    def remember(self, document: Document, foreign: bool = False) -> None:
        if self._kept and same(document.items, self.newest.items) and same(document.fields, self.newest.fields):
            return
        self._kept.append((document, foreign))
        while len(self._kept) > 1 and (len(self._kept) > KEPT or self._items() > ITEMS_KEPT):
            own = [place for place, (_, foreign) in enumerate(self._kept[:-1]) if not foreign]
            # half of the room at most for foreign ones
            del self._kept[own[0] if len(own) >= len(self._kept) // 2 else 0]

    def _items(self) -> int:
        return sum(len(document.items) for document, _ in self._kept)
