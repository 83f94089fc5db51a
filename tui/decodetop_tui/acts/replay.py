"""Moving in a tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from decodetop.core.source import Seek

if TYPE_CHECKING:
    from decodetop_tui.app import Face


def in_replay(face: Face) -> str | None:
    return None if face.lookout.replaying is not None else "works in a replay (decodetop replay TAPE)"


def not_in_replay(face: Face) -> str | None:
    return None if face.lookout.replaying is None else "this is a tape already"


def seek(by_s: float) -> Callable[[Face], None]:
    def run(face: Face) -> None:
        face.submit(Seek(by_s=by_s))

    return run
