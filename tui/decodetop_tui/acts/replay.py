"""Moving in a tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from decodetop.core.source import Seek

if TYPE_CHECKING:
    from decodetop_tui.face import Face

When = Callable[["Face"], "str | None"]


def in_replay(face: Face) -> str | None:
    return None if face.lookout.replaying is not None else "works in a replay (decodetop replay TAPE)"


def watching(face: Face) -> str | None:
    """Why nothing but looking is possible here: no engine takes a command."""
    if face.lookout.replaying is not None:
        return "this is a tape; it can only be watched"
    return here(face)


def here(face: Face) -> str | None:
    """Why what works in a tape too does not work: the engine is on another box."""
    return "not over --from; do it on the box itself" if face.piped else None


def live(when: When | None = None) -> When:
    """`when`, but never in a replay or over --from: no command gets through."""

    def check(face: Face) -> str | None:
        why = watching(face)
        return when(face) if why is None and when is not None else why

    return check


def seek(by_s: float) -> Callable[[Face], None]:
    def run(face: Face) -> None:
        face.submit(Seek(by_s=by_s))

    return run
