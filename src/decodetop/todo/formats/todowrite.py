"""todowrite JSON: an array, {"todos": [...]}, {"plan": [...]}, or any of them somewhere in a pasted text. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from decodetop.core.decode import NotDecoded, decode_lax
from decodetop.todo.document import SCHEMA, normalise, tree
from decodetop.todo.formats.block import Block

_DECODER = json.JSONDecoder()
_START = re.compile(r'\[\s*\{\s*["}]|\{\s*"')
"""Where a list of items or an object may begin; a log is full of other brackets, and each try costs."""
_PIECE, _TOKEN = 8192, 16
"""Characters tried first, and the longest token that their end may cut."""
_BLANK = re.compile(r"\s*")
_WORDS = ("content", "subject", "step", "title", "text", "task", "description")
_NESTING_MAX = 6
"""Levels of JSON inside JSON strings that are looked into: a tool call's arguments in a log line are two."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A list of items somewhere in a text; `whole` is False if the text ends before the list does."""

    entries: tuple[Any, ...]
    whole: bool = True


def parse(text: str) -> Block | None:
    """The last list in the text, with a word if it is cut off or not the only one; None if there is none."""
    found = lists_in_text(text)
    if not found:
        return None
    chosen = found[-1]
    remarks = []
    if len(found) > 1:
        remarks.append(f"{len(found)} lists in the text: the last one is read")
    if not chosen.whole:
        remarks.append(f"the list is cut off: its first {len(chosen.entries)} whole items are read")
    items = tuple(normalise(entry) for entry in chosen.entries)
    return Block(format="json", items=items, depths=(0,) * len(items), remarks=tuple(remarks))


def render(items: Sequence[Mapping[str, Any]]) -> str:
    """The file's own shape, every field kept, in tree order."""
    whole = {"schema": SCHEMA, "todos": [item for item, _ in tree(items)]}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def lists_in_text(text: str) -> list[Found]:
    """Every list of items in the text, in its order."""
    try:
        parsed = decode_lax(text)
    except NotDecoded:
        return _scan(text)
    if isinstance(parsed, list) and all(isinstance(entry, str) or _has_words(entry) for entry in parsed):
        return [Found(entries=tuple(parsed))]
    return [Found(entries=tuple(entries)) for entries in lists_in_value(parsed)] or _lone_items([parsed])


def lists_in_value(value: Any, nesting: int = _NESTING_MAX) -> Iterator[list[Any]]:
    """Lists of items anywhere in a JSON value, also in strings that hold JSON (a tool call's arguments)."""
    if nesting == 0:
        return
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            yield from lists_in_value(decode_lax(value), nesting - 1)
        except NotDecoded:
            return
    elif isinstance(value, list):
        if _is_list(value):
            yield value
        else:
            for entry in value:
                yield from lists_in_value(entry, nesting - 1)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name in ("todos", "plan") and isinstance(inner, list) and all(map(_has_words, inner)):
                yield inner
            else:
                yield from lists_in_value(inner, nesting - 1)


def _scan(text: str) -> list[Found]:
    """Lists in a text that is not JSON as a whole: a log, a chat, a block cut off."""
    found: list[Found] = []
    lone: list[Any] = []
    position = 0
    while match := _START.search(text, position):
        start = match.start()
        try:
            value, position = _decoded(text, start)
        except RecursionError:  # no checklist nests so deep, and a try at each of its brackets would take minutes
            position = _line_end(text, start)
            continue
        except ValueError:
            cut, position = _salvage(text, start) if match[0][0] == "[" else (None, start + 1)
            found += [cut] if cut else []
            continue
        found += [Found(entries=tuple(entries)) for entries in lists_in_value(value) if entries]
        lone.append(value)
    return found or _lone_items(lone)


def _decoded(text: str, start: int) -> tuple[Any, int]:
    """The JSON value at `start` and where it ends. Raises ValueError, RecursionError.

    The error counts the lines of all that was given before it, and a log has many brackets that are no JSON: so a piece
    is tried first, and the whole only if the value may go on behind it.
    """
    piece = text[start : start + _PIECE]
    try:
        value, end = _DECODER.raw_decode(piece)
    except json.JSONDecodeError as error:
        ends_early = error.pos >= len(piece) - _TOKEN or error.msg.startswith("Unterminated string")
        if len(piece) < _PIECE or not ends_early:
            raise
        return _DECODER.raw_decode(text, start)
    return value, start + end


def _salvage(text: str, start: int) -> tuple[Found | None, int]:
    """The whole items of an array that is cut off or has a stray comma, and where reading goes on."""
    entries: list[Any] = []
    position = start + 1
    while True:
        position = _skip_blank(text, position)
        if text[position : position + 1] == "]" and entries:
            return (Found(entries=tuple(entries)) if _is_list(entries) else None), position + 1
        if text[position : position + 1] != "{":
            break
        try:
            entry, after = _decoded(text, position)
        except (ValueError, RecursionError):
            break
        entries.append(entry)
        position = _skip_blank(text, after)
        if text[position : position + 1] == ",":
            position += 1
    if not _is_list(entries):
        return None, start + 1
    return Found(entries=tuple(entries), whole=False), position


def _lone_items(values: Sequence[Any]) -> list[Found]:
    """Items that stand one by one, one JSON object a line."""
    items = [value for value in values if _is_item(value)]
    return [Found(entries=tuple(items))] if items else []


def _is_list(entries: Sequence[Any]) -> bool:
    return bool(entries) and all(map(_has_words, entries)) and any(map(_is_item, entries))


def _is_item(entry: Any) -> bool:
    """Has words and a status: what tells an item from any other object with a `text` in it."""
    return _has_words(entry) and any(name in entry for name in ("status", "done", "completed"))


def _has_words(entry: Any) -> bool:
    return isinstance(entry, dict) and any(isinstance(entry.get(name), str) and entry[name] for name in _WORDS)


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _skip_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position
