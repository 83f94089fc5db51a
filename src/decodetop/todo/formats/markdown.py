"""Markdown checklists as on GitHub, and the same as chat tools print them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from decodetop.todo.document import Item, is_known_status, priority_of, status_of, tree
from decodetop.todo.formats.block import Block, encoded

_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_BOX = re.compile(r"^([\s>⎿]*)(?:[-*+•]|\d{1,9}[.)])\s*\[([^\]]|\w+)\](?:[ \t]+|$)(.*)$")
_BARE_BOX = re.compile(r"^([\s>⎿]*)\[([ xX~/✓✔•-])\][ \t]+(.*)$")
_SIGN = re.compile(r"^([\s>⎿]*)(?:[-*+•]\s+)?([☐☑☒✔✓✅✗✘○◻◼▶])\s+(.*)$")
_COMMENT = re.compile(r"\s*<!--((?:\s+[a-z_]+:[^\s]+)+)\s+-->\s*$")
_DETAIL = re.compile(r"^(\s+)(?:(>|[-*+]|\d{1,9}[.)])(?:\s|$))?(.*)$")
_SETTING = re.compile(r"\s*(?:#{1,6}\s.*|[\W_]*)")
"""A heading, a rule, nothing: what stands around a list and is no item anybody could miss."""

_STATUS_OF_MARK = {
    " ": "pending",
    "x": "completed",
    "X": "completed",
    "-": "cancelled",
    "~": "in_progress",
    "/": "in_progress",
    "✓": "completed",
    "✔": "completed",
    "•": "in_progress",
}
_STATUS_OF_SIGN = {
    **dict.fromkeys("☐○◻", "pending"),
    **dict.fromkeys("☑☒✔✓✅", "completed"),
    **dict.fromkeys("✗✘", "cancelled"),
    **dict.fromkeys("▶◼", "in_progress"),
}
_MARK_OF_STATUS = {"pending": " ", "in_progress": "~", "completed": "x", "cancelled": "-"}
_TAB = 4


def parse(text: str) -> Block | None:
    """The checklist items of the text; a list inside a fence counts only if there is none outside. None if none."""
    outside, inside = _by_fence(text.split("\n"))
    return _parse_lines(outside) or _parse_lines(inside)


def render(items: Sequence[Mapping[str, Any]]) -> str:
    """GitHub checklist; id, priority and a status without a box of its own stand in a comment at the line's end."""
    lines = []
    for item, depth in tree(items):
        status = item["status"]
        mark = _MARK_OF_STATUS.get(status) or (status if _is_own_mark(status) else " ")
        facts = [f"id:{encoded(item['id'])}"]
        if isinstance(item.get("priority"), str) and item["priority"]:
            facts.append(f"priority:{encoded(item['priority'])}")
        if status != _STATUS_OF_MARK.get(mark, mark):
            facts.append(f"status:{encoded(status)}")
        indent = "  " * depth
        lines.append(f"{indent}- [{mark}] {' '.join(item['content'].split())} <!-- {' '.join(facts)} -->")
        if isinstance(item.get("notes"), str) and item["notes"]:
            lines += [f"{indent}  > {line}".rstrip() for line in item["notes"].split("\n")]
    return "".join(f"{line}\n" for line in lines)


def _parse_lines(lines: Sequence[str]) -> Block | None:
    items: list[Item] = []
    depths: list[int] = []
    open_indents: list[int] = []
    notes: list[str] = []
    passed: list[str] = []
    joins = False
    for line in [*lines, ""]:
        found = _item_of(line)
        if found is None:
            detail = _detail_of(line, open_indents[-1]) if items else None
            joins = detail is not None and _add_detail(detail, items[-1], notes, joins)
            if detail is None and not _SETTING.fullmatch(line):
                passed.append(line.strip())
            continue
        _close(items, notes)
        indent, item = found
        while open_indents and open_indents[-1] >= indent:
            open_indents.pop()
        depths.append(len(open_indents))
        open_indents.append(indent)
        items.append(item)
        joins = True
    _close(items, notes)
    if not items:
        return None
    return Block(format="markdown", items=tuple(items), depths=tuple(depths), passed=tuple(passed))


def _item_of(line: str) -> tuple[int, Item] | None:
    """The indent and the item of a line, or None."""
    line = line.rstrip("\r")
    box = _BOX.match(line) or _BARE_BOX.match(line)
    if box and (len(box[2]) == 1 or is_known_status(box[2])):
        status = _STATUS_OF_MARK.get(box[2]) or status_of(box[2])
        indent, content = box[1], box[3]
    elif sign := _SIGN.match(line):
        status = _STATUS_OF_SIGN[sign[2]]
        indent, content = sign[1], sign[3]
    else:
        return None
    content, facts = _facts(content)
    if not content:
        return None
    item: Item = {"content": content, "status": status_of(facts.get("status", status))}
    item |= {"id": facts["id"]} if "id" in facts else {}
    item |= {"priority": priority_of(facts["priority"])} if "priority" in facts else {}
    return len(indent.replace("⎿", " ").replace(">", " ").expandtabs(_TAB)), item


def _facts(content: str) -> tuple[str, dict[str, str]]:
    """The words of an item and what the comment behind them says."""
    match = _COMMENT.search(content)
    if match is None:
        return content.strip(), {}
    pairs = (fact.partition(":") for fact in match[1].split())
    return content[: match.start()].strip(), {name: unquote(value) for name, _, value in pairs}


def _detail_of(line: str, indent: int) -> re.Match[str] | None:
    """Text below an item of `indent`, further in."""
    match = _DETAIL.match(line.rstrip("\r"))
    return match if match is not None and line.strip() and len(match[1].expandtabs(_TAB)) > indent else None


def _add_detail(match: re.Match[str], item: Item, notes: list[str], joins: bool) -> bool:
    """More of the item's words if it follows at once, else notes. Says if words may follow."""
    if joins and match[2] is None and "id" not in item:
        item["content"] += " " + match[3].strip()
        return True
    notes.append(match[3])
    return False


def _close(items: list[Item], notes: list[str]) -> None:
    if items and notes:
        items[-1]["notes"] = "\n".join(notes)
    notes.clear()


def _by_fence(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    outside: list[str] = []
    inside: list[str] = []
    fence: str | None = None
    for line in lines:
        match = _FENCE.match(line)
        if match and fence is None:
            fence = match[1]
        elif match and fence is not None and match[1].startswith(fence):
            fence = None
        else:
            (outside if fence is None else inside).append(line)
    return outside, inside


def _is_own_mark(status: str) -> bool:
    """A mark nobody here knows, kept as a status: it can stand in its box again."""
    return len(status) == 1 and status not in _STATUS_OF_MARK and status not in "]\n\r" and not status.isspace()
