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


def live(when: When | None = None) -> When:
    """`when`, but never in a replay: a tape takes no command and would say nothing."""

    def check(face: Face) -> str | None:
        if face.lookout.replaying is not None:
            return "this is a tape; it can only be watched"
        return when(face) if when is not None else None

    return check


def seek(by_s: float) -> Callable[[Face], None]:
    def run(face: Face) -> None:
        face.submit(Seek(by_s=by_s))

    return run
