"""The stacked bar of a decode step: its parts, their letters and colours, exact to the cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from decodetop.core import words
from decodetop.steps import text
from decodetop.steps.reading import GROUPS, RankSteps
from decodetop_tui.paint import Span
from decodetop_tui.panes._lines import shares, ticks

_GROUP_LOOKS = {
    "compute": ("#", "kind.gemm"),
    "copies": ("c", "kind.copy"),
    "communication": ("C", "kind.communication"),
    "idle": ("░", "kind.idle"),
}


class Part(NamedTuple):
    """A piece of the step with its looks. `kind` names the kernels it is made of, None for idle and for groups.

    `short` is the name where there is little room.
    """

    name: str
    short: str
    us: float
    share: float
    letter: str
    style: str
    kind: str | None = None
    calls: float | None = None


_SHORT = {
    "communication, transfer": "comm move",
    "communication, waiting": "comm wait",
    "communication incl. waiting": "comm + wait",
    "linear attention": "linear attn",
    "elementwise": "elemwise",
}


def kind_parts(rank: RankSteps) -> list[Part]:
    """The kinds of the representative step in the order of the bar; they sum to its period."""
    found = text.parts(rank)
    total = sum(part.us for part in found)
    return [
        Part(
            part.name,
            _SHORT.get(part.name, part.name),
            part.us,
            part.us / total,
            part.letter,
            f"kind.{part.kind}",
            None if part.kind == "idle" else part.kind,
            part.calls,
        )
        for part in found
    ]


def group_parts(rank: RankSteps) -> list[Part]:
    """compute, copies, communication, idle."""
    found = _positive(rank.groups_us)
    total = sum(found.values())
    return [
        Part(group, group, found[group], found[group] / total, *_GROUP_LOOKS[group])
        for group in GROUPS
        if group in found
    ]


def _positive(parts: Mapping[str, float]) -> dict[str, float]:
    return {name: us for name, us in parts.items() if words.known(us) and us > 0}


def bar(parts: Sequence[Part], room: int) -> list[Span]:
    """`▕GGGA░░▏` of exactly `room` cells; each part's cells carry its letter and its colour."""
    if room < 3:
        return []
    cells = shares({part.name: part.us for part in parts}, room - 2)
    inner = [Span(part.letter * cells[part.name], part.style) for part in parts if part.name in cells]
    return [Span("▕", "dim"), *inner, Span("▏", "dim")]


def real_bar(rank: RankSteps, room: int) -> list[Span]:
    """The step as it runs unprofiled, on the scale of the profiled bar: busy solid, estimated idle light.

    Dim: the eye is to meet the measured bar below it first.
    """
    if rank.real is None or not words.known(rank.real.idle_share) or rank.period_us is None or room < 3:
        return []
    scale = rank.real.step_ms * 1e3 / max(rank.period_us.representative, 1e-9)
    if not words.known(scale):
        return []
    inner = max(1, round((room - 2) * min(scale, 1.0)))
    idle = round(inner * min(max(rank.real.idle_share, 0.0), 1.0))
    return [
        Span("▕", "dim"),
        Span("▓" * (inner - idle), "dim"),
        Span("░" * idle, "kind.idle"),
        Span("▏", "dim"),
    ]


def jitter(rank: RankSteps, most: int) -> str:
    """One character a kept step, in time order. Steps within a fifth of each other stay near the middle on purpose."""
    periods = [step.period_us for step in rank.kept_steps if words.known(step.period_us)][:most]
    if len(periods) < 2:
        return ""
    low, high = min(periods), max(periods)
    middle = (low + high) / 2
    return ticks(periods, min(low, 0.915 * middle), max(high, 1.115 * middle))
