"""What the bottom line offers: of the actions that work here and now, those most wanted first."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from decodetop_tui.keymap import Keymap
from decodetop_tui.keys import ACTIONS

if TYPE_CHECKING:
    from decodetop_tui.face import Face

MOST = 10

OFFERED = (
    ("stop", "stop"),
    ("seek-back", "-10 s"),
    ("seek-on", "+10 s"),
    ("what-if-less", "less"),
    ("what-if-more", "more"),
    ("what-if-reset", "as it is"),
    ("adopt", "adopt"),
    ("todo-tick", "tick"),
    ("todo-start", "start"),
    ("todo-edit", "edit"),
    ("todo-attempt", "attempt"),
    ("baseline", "baseline"),
    ("compare", "compare"),
    ("bench", "bench"),
    ("todo-add", "add todo"),
    ("report", "report"),
    ("profile", "profile"),
    ("diagnose", "diagnose"),
    ("enter", "open"),
    ("floor", "floor"),
    ("open-trace", "open trace"),
    ("view", "view"),
    ("commands", "commands"),
    ("help", "help"),
    ("quit", "quit"),
)
"""An action's id and its word, the most wanted first: what ends something, what the row in focus is for, the rest."""

_BY_ID = {action.id: action for action in ACTIONS}


def hints(face: Face, keymap: Keymap) -> list[tuple[str, str]]:
    """Keys that work here and now with their words; an action without a key is not offered."""
    fitting = ((keymap.first(id), word) for id, word in OFFERED if keymap.keys[id] and _BY_ID[id].when(face) is None)
    return list(islice(fitting, MOST))
