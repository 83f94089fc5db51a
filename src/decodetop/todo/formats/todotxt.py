"""todo.txt (todotxt.org): `x ` done, `(A)` priority, dates, +project @context, key:value. Pure.

Projects, contexts and unknown keys stay in the words. What todo.txt has no sign for stands in keys of ours at the
line's end, percent-encoded: `id:` first, then `status:`, `priority:`, and `lead:` when the words begin like a sign.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from decodetop.todo.document import Item, status_of, tree
from decodetop.todo.formats.block import Block, encoded

_LINE = re.compile(
    r"^(?P<done>x )?\s*(?:\((?P<letter>[A-Z])\) )?\s*(?P<dates>(?:\d{4}-\d\d-\d\d ){0,2})\s*(?P<words>.*)$"
)
_SIGN = re.compile(r"^(?:x |\([A-Z]\) )", re.MULTILINE)
_KEY = re.compile(r"(?:^|\s)(id|status|priority|pri|lead):(\S+)$")
_LIKE_A_SIGN = re.compile(r"(x|\([A-Z]\)|\d{4}-\d\d-\d\d)( |$)|(id|status|priority|pri|lead):\S+$")
_LEAD = "~"
_PRIORITY_OF_LETTER = {"A": "high", "B": "medium"}
_LETTER_OF_PRIORITY = {"high": "A", "medium": "B", "low": "C"}


def looks_like(text: str) -> bool:
    """A done mark or a priority begins a line: without one, todo.txt can't be told from any text."""
    return _SIGN.search(text) is not None


def parse(text: str) -> Block | None:
    """One item a line; None if there is no line with words."""
    items = tuple(item for line in text.split("\n") if (item := _item_of(line.strip())) is not None)
    return Block(format="todotxt", items=items, depths=(0,) * len(items)) if items else None


def render(items: Sequence[Mapping[str, Any]]) -> str:
    return "".join(f"{_line_of(item)}\n" for item, _ in tree(items))


def _item_of(line: str) -> Item | None:
    match = _LINE.match(line)
    if match is None or not match["words"].strip():
        return None
    words, keys = _keys(match["words"].strip())
    if keys.get("lead") == _LEAD:
        words = words.removeprefix(_LEAD).strip()
    if not words:
        return None
    item: Item = {
        "content": words,
        "status": status_of(keys.get("status", "completed" if match["done"] else "pending")),
    }
    item |= {"id": keys["id"]} if "id" in keys else {}
    letter = match["letter"] or keys.get("pri", "")
    if "priority" in keys:
        item["priority"] = keys["priority"]
    elif re.fullmatch("[A-Z]", letter):
        item["priority"] = _PRIORITY_OF_LETTER.get(letter, "low")
        item |= {"todotxt_priority": letter} if letter > "C" else {}
    dates = match["dates"].split()
    if dates and match["done"]:
        item["todotxt_completed"] = dates.pop(0)
    if dates:
        item["todotxt_created"] = dates[0]
    return item


def _line_of(item: Mapping[str, Any]) -> str:
    status, priority = item["status"], item.get("priority")
    closed = status in ("completed", "cancelled")
    words = " ".join(item["content"].split())
    keys = {"id": item["id"]}
    letter = _letter(item)
    if isinstance(priority, str) and priority and letter is None:
        keys["priority"] = priority
    if letter is not None and closed:
        keys["pri"] = letter  # a priority before a completion date is not in the format
    if status not in ("pending", "completed"):
        keys["status"] = status
    if _LIKE_A_SIGN.match(words):
        words, keys["lead"] = f"{_LEAD} {words}", _LEAD
    head = "x " if closed else f"({letter}) " if letter is not None else ""
    tail = " ".join(f"{name}:{encoded(value, safe='~')}" for name, value in keys.items())
    return f"{head}{_dates(item, closed)}{words} {tail}"


def _letter(item: Mapping[str, Any]) -> str | None:
    """The letter of the priority; D to Z come back as they came."""
    priority, kept = item.get("priority"), item.get("todotxt_priority")
    if priority == "low" and isinstance(kept, str) and re.fullmatch("[D-Z]", kept):
        return kept
    return _LETTER_OF_PRIORITY.get(priority) if isinstance(priority, str) else None


def _dates(item: Mapping[str, Any], closed: bool) -> str:
    names = ("todotxt_completed", "todotxt_created") if closed else ("todotxt_created",)
    dates = [item.get(name) for name in names]
    if closed and dates[0] is None:  # a lone date of a done item reads as its completion
        return ""
    return "".join(f"{date} " for date in dates if isinstance(date, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", date))


def _keys(words: str) -> tuple[str, dict[str, str]]:
    """The words without our keys at their end, and the keys; what stands before `id:` is not ours."""
    keys: dict[str, str] = {}
    while "id" not in keys and (match := _KEY.search(words)) and match[1] not in keys:
        keys[match[1]] = unquote(match[2])
        words = words[: match.start()].rstrip()
    return words, keys
