"""History and bars drawn with characters: one style a row, so that a change costs few bytes over SSH."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from decodetop.core import words
from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Reading
from decodetop.core.state import HISTORY, Lane

_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
_CELL = [[chr(0x2800 + left + right) if left or right else " " for right in _RIGHT] for left in _LEFT]
_EIGHTHS = "▁▂▃▄▅▆▇█"
MOST_CELLS = HISTORY // 2
WRITTEN_AS_ZERO = 0.005
"""Share of the top below which a percentage reads 0 %: an idle card's trickle is drawn as rest."""


class History(NamedTuple):
    """`text` is one row of braille of exactly the cells asked for; `high` is the most seen in the `seconds` drawn."""

    text: str
    seconds: int
    high: float | None


def braille(values: Sequence[float | None], top: float) -> str:
    """Two values a cell, four dots high: unknown is empty, zero (what is written so) one dot, more two to four."""
    return _dots([value if words.known(value) else None for value in values], top)


def _dots(values: Sequence[float | None], top: float) -> str:
    """`braille` of values that are known or None. One pass without calls: lines of minutes move on each second."""
    if top <= 0 or not words.known(top):
        levels = [0 if value is None else 1 for value in values]
    else:
        zero = top * WRITTEN_AS_ZERO
        levels = [
            0 if value is None else 4 if value >= top else 1 if value < zero else 2 + int(3 * (value / top) - 1e-9)
            for value in values
        ]
    return "".join([_CELL[left][right] for left, right in zip(levels[::2], levels[1::2], strict=True)])


def history(
    lane: Lane, now_ns: int, room: int, value: Callable[[Reading], float | None], top: float | None = None
) -> History:
    """The lane's past as braille of `room` cells, newest at the right; `top` None = the highest seen.

    A cell stands for two whole periods of session time and moves on only when it is full, so a steady value
    changes nothing on the screen.
    """
    room = max(0, min(room, MOST_CELLS))
    step_ns = _step_ns(lane)
    now = now_ns // step_ns
    first = (now // 2 - room + 1) * 2
    count = room * 2
    seen: dict[int, float | None] = {}
    for past in reversed(lane.history):
        at = past.t_ns // step_ns - first
        if at < 0:
            break
        if at < count and at not in seen:
            figure = value(past.reading)
            seen[at] = figure if words.known(figure) else None
    # a sample that came a moment late leaves its slot empty and shares the next: no hole for that
    late = {at: seen[at - 1] for at in range(1, min(count, now - first + 1)) if at not in seen and at - 1 in seen}
    slots = [seen.get(at, late.get(at)) for at in range(count)] if late else list(map(seen.get, range(count)))
    high = max((slot for slot in slots if slot is not None), default=None)
    text = _dots(slots, top if top is not None else (high or 1.0))
    return History(text, room * 2 * step_ns // SECOND_NS, high)


def history_room(room: int) -> int:
    """Cells for a history line in `room`: whole minutes at one reading a second, as far as the lane remembers."""
    return 30 * max(0, min(room, MOST_CELLS) // 30) or max(0, room)


def _step_ns(lane: Lane) -> int:
    """The source's period in whole seconds: the median of its last gaps, so that one late sample changes nothing."""
    times = [past.t_ns for past in lane.history[-8:]]
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    return max(1, round(gaps[len(gaps) // 2] / SECOND_NS)) * SECOND_NS if gaps else SECOND_NS


def ticks(values: Sequence[float], low: float, high: float) -> str:
    """One character a value, eight heights between `low` and `high`."""
    span = high - low
    if not words.known(span) or span <= 0:
        return _EIGHTHS[3] * len(values)
    shares = (min(1.0, max(0.0, (value - low) / span)) if words.known(value) else None for value in values)
    return "".join(" " if share is None else _EIGHTHS[min(7, int(8 * share))] for share in shares)


def shares(parts: Mapping[str, float], room: int) -> dict[str, int]:
    """Cells for each part, in the order given, summing exactly to `room` (largest remainder)."""
    parts = {name: value for name, value in parts.items() if words.known(value)}
    total = sum(value for value in parts.values() if value > 0)
    if not words.known(total) or total <= 0 or room <= 0:
        return {}
    exact = {name: room * (max(value, 0.0) / total) for name, value in parts.items()}
    given = {name: int(value) for name, value in exact.items()}
    by_rest = sorted(exact, key=lambda name: given[name] - exact[name])
    for name in by_rest[: room - sum(given.values())]:
        given[name] += 1
    return {name: count for name, count in given.items() if count}


def progress(share: float, room: int) -> str:
    """`room` cells, the done part solid."""
    done = round(min(max(share, 0.0), 1.0) * room) if words.known(share) else 0
    return "█" * done + "░" * (room - done)
