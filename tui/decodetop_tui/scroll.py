"""What of a picture longer than its pane is in sight, and where keys take cursor and picture. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Target = tuple[str | None, int | None]
"""The row for the cursor (None = as it is) and the line to scroll to (None = wherever the row is in sight)."""


class Window(NamedTuple):
    """`rows[i]` is the id of line i's row; the first `head` lines stay, below them line `head + top` comes first."""

    rows: Sequence[str | None]
    lines: int
    head: int
    height: int
    top: int

    @property
    def most(self) -> int:
        """The furthest it can be scrolled."""
        return max(0, self.lines - self.height)

    @property
    def first(self) -> int:
        """The first line in sight below the head."""
        return self.head + self.top

    @property
    def last(self) -> int:
        return self.top + self.height - 1

    def hidden_words(self) -> str:
        """`3 more ↑ 5 more ↓`; empty when all of it is in sight."""
        above, below = self.top, max(0, self.most - self.top)
        parts = [f"{above} more ↑" if above else "", f"{below} more ↓" if below else ""]
        return " ".join(part for part in parts if part)

    def top_for(self, row: str | None) -> int:
        """Where to scroll so that all of `row` is in sight; with the first row, also what stands above it."""
        top = max(0, min(self.top, self.most))
        places = self._places()
        if row not in places:
            return top
        start, end = places[row]
        if start < self.head:
            return top
        if row == next(iter(places)) and end < self.height:
            return 0
        top = max(top, end - self.height + 1)
        return max(0, min(top, start - self.head))

    def step(self, cursor: str | None, by: int) -> Target:
        """To the neighbour row when it is in sight or next to what is; else a line on."""
        places = self._places()
        if by > 0:
            unseen = cursor in places and self.first <= places[cursor][1] and places[cursor][1] > self.last
            found = [row for row in self._beyond(cursor, by) if places[row][0] >= self._edge(0)]
            if not unseen and found and places[found[0]][0] <= self.last + 1:
                return found[0], self._tall(*places[found[0]], by)
        else:
            unseen = cursor in places and self.head <= places[cursor][0] < self.first
            found = [row for row in self._beyond(cursor, by) if places[row][1] <= self.last]
            if not unseen and found and places[found[0]][1] >= self._edge(1):
                return found[0], self._tall(*places[found[0]], by)
        return None, self._clamped(self.top + by)

    def page(self, cursor: str | None, by: int) -> Target:
        """A screenful on, one line kept; at the end already: to the last row."""
        top = self._clamped(self.top + by * max(1, self.height - self.head - 1))
        if top == self.top:
            return self.end(by)
        moved = self._replace(top=top)
        seen = [row for row, (start, end) in self._places().items() if start >= moved.first and end <= moved.last]
        if not seen or cursor in seen:
            return cursor, top
        return seen[0 if by > 0 else -1], top

    def end(self, by: int) -> Target:
        rows = list(self._places())
        row = None if not rows else rows[0 if by < 0 else -1]
        return row, 0 if by < 0 else self.most

    def _tall(self, start: int, end: int, by: int) -> int | None:
        """A row that is higher than the pane comes in sight line by line."""
        return self._clamped(self.top + by) if end - start >= self.height - self.head else None

    def _edge(self, near: int) -> int:
        """The first line whose row counts as near; rows in the head are always in sight."""
        return 0 if self.top == 0 else self.first - near

    def _beyond(self, cursor: str | None, by: int) -> list[str]:
        """The rows after the cursor (`by` > 0) or before it, the nearest first."""
        rows = list(self._places())
        if cursor not in rows:
            return rows if by > 0 else rows[::-1]
        at = rows.index(cursor)
        return rows[at + 1 :] if by > 0 else rows[:at][::-1]

    def _places(self) -> dict[str, tuple[int, int]]:
        """First and last line of each row."""
        found: dict[str, tuple[int, int]] = {}
        for at, row in enumerate(self.rows):
            if row is not None:
                found[row] = (found[row][0] if row in found else at, at)
        return found

    def _clamped(self, top: int) -> int:
        return max(0, min(top, self.most))
