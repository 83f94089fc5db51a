"""The floor's page: opened over the dashboard; what-ifs on its rows, its moves into the checklist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from decodetop.core.words import significant
from decodetop.floor.reading import NOTHING_ELSE, AskWhatIf, FloorReading, WhatIf
from decodetop.floor.text import VERDICTS, standing, todo_of_move
from decodetop.todo.reading import Evidence, TodoReading
from decodetop_tui.panes.floor import KNOBS, MOVE, WHAT_IF, as_it_is

if TYPE_CHECKING:
    from decodetop_tui.face import Face

PAGE = "floor"
BATCHES = tuple(2**power for power in range(9))
CONTEXTS = tuple(2**power for power in range(7, 21))
SHARDS = (1, 2, 4, 8, 16)


def page(face: Face) -> None:
    """Open it; there already: back."""
    if face.focused_name == PAGE:
        face.set_zoom(False)
        return
    pane = face.panes[PAGE]
    pane.cursor = pane.cursor or f"{WHAT_IF}{next(iter(KNOBS))}"
    face.focus_pane(PAGE)


def reading(face: Face) -> FloorReading | None:
    return face.lookout.live.last("floor", FloorReading)


def on_knob(face: Face) -> str | None:
    if face.focused_name == PAGE and (face.pane.cursor or "").startswith(WHAT_IF):
        return None if reading(face) is not None else "nothing was computed yet"
    return "works on a what-if row of the floor (f)"


def any_asked(face: Face) -> str | None:
    if face.focused_name != PAGE:
        return "works in the floor (f)"
    return None if asked(face) != NOTHING_ELSE else "nothing is otherwise than it is"


def asked(face: Face) -> WhatIf:
    """What was asked for last: the answer may still be under way."""
    seen = reading(face)
    return face.what_if if face.what_if is not None else seen.asked if seen is not None else NOTHING_ELSE


def change(by: int) -> Callable[[Face], None]:
    """The row under the cursor to its next value (`by` 1) or the one before."""

    def run(face: Face) -> None:
        seen = reading(face)
        name = (face.pane.cursor or "").removeprefix(WHAT_IF)
        if seen is None or name not in KNOBS:
            return
        now = as_it_is(seen.report, name)
        before = asked(face)
        value = getattr(before, name)
        value = stepped(_values(seen, name), now if value is None else value, by)
        _ask(face, msgspec.structs.replace(before, **{name: None if value == now else value}))

    return run


def reset(face: Face) -> None:
    _ask(face, NOTHING_ELSE)


def _ask(face: Face, ask: WhatIf) -> None:
    face.what_if = ask
    face.submit(AskWhatIf(ask=ask))


def _values(seen: FloorReading, name: str) -> Sequence[int | str]:
    choices = seen.choices
    known: dict[str, Sequence[int | str]] = {
        "batch": BATCHES, "context": CONTEXTS, "tp": SHARDS, "kv_dtype": choices.kv_dtypes,
        "weights_dtype": choices.weights_dtypes, "gpu": choices.gpus,
    }  # fmt: skip
    return known[name]


def stepped(values: Sequence[int | str], now: int | str | None, by: int) -> int | str | None:
    """Numbers go up and down and stop at the ends; names go round."""
    if not values:
        return now
    if isinstance(now, int) and all(isinstance(value, int) for value in values):
        numbers = [value for value in values if isinstance(value, int)]
        further = [value for value in numbers if (value > now if by > 0 else value < now)]
        return now if not further else min(further) if by > 0 else max(further)
    if now is None or now not in values:
        return values[0 if by > 0 else -1]
    return values[(list(values).index(now) + by) % len(values)]


def take(face: Face) -> None:
    """The move under the cursor becomes an item of the checklist, with what it rests on."""
    seen, todo = reading(face), face.lookout.live.last("todo", TodoReading)
    number = (face.pane.cursor or "").removeprefix(MOVE)
    moves = seen.report.moves if seen is not None and seen.report is not None else ()
    if seen is None or not number.isdigit() or int(number) >= len(moves):
        return
    move = moves[int(number)]
    if standing(move, todo.todos if todo is not None else ()) == "open":
        face.say("it is in the checklist already", hint="3 shows it")
        return
    face.submit(todo_of_move(move, _links(seen)))
    face.say(f"added to the checklist: {move.title}")


def _links(seen: FloorReading) -> tuple[Evidence, ...]:
    report = seen.report
    found: list[Evidence] = []
    if seen.run_id is not None and report is not None:
        found.append(Evidence(kind="run", ref=str(seen.run_id), summary=f"{significant(report.t_meas_ms)} ms a step"))
    if seen.capture_id is not None:
        verdict = report.verdict if report is not None else None
        words = VERDICTS[verdict.id] if verdict is not None else None
        found.append(Evidence(kind="capture", ref=seen.capture_id, summary=words))
    return tuple(found)
