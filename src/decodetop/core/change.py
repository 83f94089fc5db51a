"""How one tree of plain values differs from another, and the other again from that. Pure.

For tapes: most of a reading is as it was a moment ago. In a change `[value]` replaces, a mapping goes one level down
(items of a list by their place), null takes a key away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Change = dict[str, Any]


def change(before: Any, after: Any) -> Any:
    """What makes `after` of `before`; {} where nothing does. Both are mappings, or lists of one length."""
    if isinstance(before, list):
        pairs = {str(at): pair for at, pair in enumerate(zip(before, after, strict=True))}
        return {at: _one(old, new) for at, (old, new) in pairs.items() if old != new}
    found: Change = {key: _one(before[key], new) for key, new in after.items() if key in before and before[key] != new}
    found |= {key: [new] for key, new in after.items() if key not in before}
    found |= {key: None for key in before if key not in after}
    return found


def changed(before: Any, by: Mapping[str, Any]) -> Any:
    """`before` with a change made to it. Raises ValueError if it does not fit."""
    try:
        if isinstance(before, list):
            after_list = list(before)
            for at, to in by.items():
                after_list[int(at)] = _other(after_list[int(at)], to)
            return after_list
        after = dict(before)
        for key, to in by.items():
            if to is None:
                del after[key]
            else:
                after[key] = _other(after.get(key), to)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"a change that does not fit: {error}") from error
    return after


def _one(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return change(old, new)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and any(map(_holds, old)):
        return change(old, new)
    return [new]


def _holds(item: Any) -> bool:
    return isinstance(item, (dict, list))


def _other(old: Any, to: Any) -> Any:
    return to[0] if isinstance(to, list) else changed(old, to)
