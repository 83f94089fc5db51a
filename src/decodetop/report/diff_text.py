"""The difference of two snapshots in words. Pure."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from decodetop.core.outside import plain
from decodetop.core.words import UNKNOWN, delta_percent, gib, number, rate, significant
from decodetop.report.diff import Change, Difference, Side

SIGNS = {"added": "+", "removed": "-", "changed": "~"}
TITLES = {
    "question": "Question",
    "box": "Box",
    "server": "Server",
    "findings": "Findings",
    "floor": "Floor and verdict",
    "step": "Decode step",
    "benchmarks": "Benchmarks",
    "checklist": "Checklist",
}
_ONE_OF = {"attempts": "attempt", "gates": "gate", "moves": "move", "blocked_by": "blocked by"}
_NAMES = {
    "t_phys_ms": "bound",
    "t_prac_ms": "practice",
    "t_meas_ms": "measured step",
    "period_us": "profiled step",
    "output_tok_s": "output",
    "what": "of",
}
_UNITS = {"_ms": "ms", "_us": "us", "_bytes": "GiB", "_mhz": "MHz", "_w": "W", "_tok_s": "tok/s"}


def lines(found: Difference) -> list[str]:
    """A heading a section, a line a change; a word when nothing changed."""
    out = [f"before  {_side(found.before)}", f"after   {_side(found.after)}"]
    out += [f"note: {plain(note)}" for note in found.notes]
    for section, changes in groupby(found.changes, key=lambda change: change.section):
        out += ["", TITLES.get(section, section)]
        for subject, same in groupby(changes, key=lambda change: "" if _whole(change) else change.subject):
            out += [f"  {plain(subject)}"] if subject else []
            out += [f"  {'  ' if subject else ''}{_line(change)}" for change in same]
    return out if found.changes else [*out, "", "Nothing changed."]


def _side(side: Side) -> str:
    question = f"  {plain(side.question)}" if side.question else ""
    return f"{side.made}  {plain(side.host)}{question}"


def _whole(change: Change) -> bool:
    """A thing that appeared or went as a whole."""
    return not change.field


def _line(change: Change) -> str:
    sign = SIGNS[change.what]
    if _whole(change) and change.what != "changed":
        return f"{sign} {plain(change.subject)}"
    if change.what != "changed":
        said = change.after if change.what == "added" else change.before
        return f"{sign} {_ONE_OF.get(change.field, _name(change.field))}: {_shown(said, change.field)}"
    words = f"{_shown(change.before, change.field)} -> {_shown(change.after, change.field)}"
    name = f"{_name(change.field)}: " if change.field else ""
    return f"{sign} {name}{words}{_unit(change)}"


def _name(field: str) -> str:
    """`tpot` of `tpot_ms`: the unit goes behind the figure."""
    if field in _NAMES:
        return _NAMES[field]
    where, _, leaf = field.rpartition(".")
    outer = {"asked": "flag asked for", "in_force": "flag in force", "kinds_us": ""}.get(where, where)
    if where in ("asked", "in_force"):
        return f"{outer} {plain(leaf)}"
    if leaf.endswith(("_ms", "_us", "_bytes", "_mhz", "_w")):
        leaf = leaf.rpartition("_")[0]
    return f"{outer} {plain(leaf.replace('_', ' '))}".strip()


def _unit(change: Change) -> str:
    """The unit, and by how much a time or a rate changed."""
    before, after = change.before, change.after
    unit = next((word for end, word in _UNITS.items() if _measure(change.field).endswith(end)), "")
    if not isinstance(before, float | int) or not isinstance(after, float | int) or isinstance(after, bool):
        return f" {unit}" if unit and (before is not None or after is not None) else ""
    relative = f" ({delta_percent(before, after)})" if unit in ("ms", "us", "tok/s") and before else ""
    return f"{f' {unit}' if unit else ''}{relative}"


def _measure(field: str) -> str:
    """The part of the name that holds the unit."""
    where, _, leaf = field.rpartition(".")
    return where if where.endswith("_us") else leaf if leaf.endswith(tuple(_UNITS)) else ""


def _shown(value: Any, field: str) -> str:
    if value is None or value == "":
        return UNKNOWN if _measure(field) else "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float | int):
        end = _measure(field)
        if end.endswith("_bytes"):
            return gib(value)
        if end.endswith("_tok_s"):
            return rate(value)
        if end.endswith(("_ms", "_us")):
            return significant(value)
        return number(value) if float(value).is_integer() else f"{value:g}"
    return plain(str(value))
