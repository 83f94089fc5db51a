"""The investigations of this user as a lane, so that the screen can offer another one."""

from __future__ import annotations

from pathlib import Path

from decodetop.core.thread import CallThread
from decodetop.todo.investigations import listed
from decodetop.todo.reading import InvestigationsReading


class InvestigationsProbe:
    """Engine probe of the lane `investigations`; reads a few small files of each folder."""

    source = "investigations"
    period_s = 30.0
    deadline_s = 5.0

    def __init__(self, root: Path, current: Path) -> None:
        self._root = root
        self._current = current
        self._thread: CallThread | None = None

    async def read(self) -> InvestigationsReading:
        if self._thread is None:
            self._thread = CallThread("decodetop-investigations")
        found = await self._thread.call(lambda: listed(self._root, self._current))
        return InvestigationsReading(root=str(self._root), found=found)

    async def close(self) -> None:
        if self._thread is not None:
            self._thread.close()
