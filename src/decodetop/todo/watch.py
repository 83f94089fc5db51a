"""Word of changes in a folder. The folder is watched, not the file: a watch on a file dies when it is replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from watchfiles import awatch

from decodetop.core.regular import is_folder

DEBOUNCE_MS = 100
STEP_MS = 300
"""Also how long the watcher needs to notice that it is cancelled. It wakes so often: ten times a second were 5 % of
what watching the box cost."""


async def watch_folder(folder: Path, names: frozenset[str]) -> AsyncIterator[None]:
    """One item each time a file of these names changed in `folder`.

    Ends if the folder can't be watched (it is not there, or the system has no watches left): the caller polls anyway.
    """
    if not is_folder(folder):
        return
    try:
        async for _ in awatch(
            folder,
            watch_filter=lambda _change, path: Path(path).name in names,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            recursive=False,
        ):
            yield
    except (OSError, RuntimeError):  # watchfiles raises RuntimeError for faults of its own
        return
