"""Checklists of other tools, read and written. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from decodetop.errors import DataError, UsageError
from decodetop.todo.formats import markdown, taskwarrior, todotxt, todowrite
from decodetop.todo.formats.block import Block

__all__ = ["FORMATS", "Block", "parse", "render"]

F = TypeVar("F")
_PARSERS: Mapping[str, Callable[[str], Block | None]] = {
    "taskwarrior": taskwarrior.parse,
    "json": todowrite.parse,
    "markdown": markdown.parse,
    "todotxt": todotxt.parse,
}
_RENDERERS: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], str]] = {
    "json": todowrite.render,
    "markdown": markdown.render,
    "todotxt": todotxt.render,
    "taskwarrior": taskwarrior.render,
}
FORMATS = tuple(_RENDERERS)


def parse(text: str, format: str = "auto") -> Block:
    """The list in a text. Raises UsageError for an unknown format and DataError if there is no list in it."""
    text = text.removeprefix("\ufeff")
    if format != "auto":
        block = _of(_PARSERS, format)(text)
        if block is None:
            raise DataError(f"no {format} checklist in the text", "leave out --format to have it recognised")
        return block
    for name, parser in _PARSERS.items():
        if name == "todotxt" and not todotxt.looks_like(text):
            continue
        block = parser(text)
        if block is not None:
            return block
    hint = "it may hold todowrite JSON, a markdown checklist (- [ ] ...), todo.txt or a Taskwarrior export"
    raise DataError("no checklist in the text", hint)


def render(items: Sequence[Mapping[str, Any]], format: str = "json") -> str:
    """The items as a text that `parse` reads back. Raises UsageError for an unknown format."""
    return _of(_RENDERERS, format)(items)


def _of(table: Mapping[str, F], format: str) -> F:
    if format not in table:
        raise UsageError(f"unknown checklist format {format!r}", f"use one of {', '.join(FORMATS)}")
    return table[format]
