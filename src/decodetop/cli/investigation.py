"""`decodetop investigation`: the investigations there are, a new one, another one, one put away."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from decodetop.cli.common import add_common, complain, print_json, print_lines
from decodetop.config import Settings, default_investigation, investigations_root, open_investigation
from decodetop.core.clock import SystemClock
from decodetop.core.outside import plain
from decodetop.core.stamp import stamp_of
from decodetop.core.words import UNKNOWN
from decodetop.todo import investigations
from decodetop.todo.reading import Investigation

SCHEMA = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """The actions; none = `list`."""
    _json(parser, default=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    listed = _action(actions, "list", "the investigations, the last changed first (what `investigation` alone does)")
    listed.add_argument("--all", action="store_true", help="those put away too")
    new = _action(actions, "new", "begin one and open it")
    new.add_argument("name", metavar="NAME", help="of its folder; with a slash it is a path")
    new.add_argument("question", nargs="*", metavar="QUESTION", help="what it asks: why 51 tok/s?")
    for name, words in (("open", "go on with one: commands and the screen use it"), ("archive", "put one away")):
        _action(actions, name, words).add_argument("name", metavar="NAME", help="as `list` shows it, or its path")


def run(args: argparse.Namespace, settings: Settings) -> int:
    root = investigations_root()
    if args.action == "new":
        folder = investigations.create(root, args.name, " ".join(args.question))
        return _opened(args, settings, folder)
    if args.action == "open":
        folder = investigations.existing(root, args.name)
        if investigations.look(folder, settings.investigation).archived:
            investigations.archive(folder, None)
        return _opened(args, settings, folder)
    if args.action == "archive":
        return _archive(args, settings, investigations.existing(root, args.name))
    found = investigations.listed(root, settings.investigation)
    shown = [one for one in found if not one.archived or one.current or getattr(args, "all", False)]
    return _print(args, shown)


def _opened(args: argparse.Namespace, settings: Settings, folder: Path) -> int:
    open_investigation(folder)
    where = settings.origin.get("investigation", "default")
    if where not in ("default", "opened"):
        complain(f"{where} names {settings.investigation}, and comes first", "take it away to use the one opened")
    return _print(args, [investigations.look(folder, folder)])


def _archive(args: argparse.Namespace, settings: Settings, folder: Path) -> int:
    investigations.archive(folder, SystemClock().wall_ns())
    one = investigations.look(folder, settings.investigation)
    if one.current and settings.origin.get("investigation") == "opened":
        open_investigation(default_investigation())
    return _print(args, [one])


def _print(args: argparse.Namespace, found: list[Investigation]) -> int:
    if args.json:
        print_json({"schema": SCHEMA, "investigations": [_fields(one) for one in found]})
    else:
        print_lines(line for one in found for line in _lines(one))
    return 0


def _lines(one: Investigation) -> list[str]:
    counts = UNKNOWN if one.todos is None else f"{one.closed}/{one.todos} closed"
    changed = "" if one.changed_wall_ns is None else stamp_of(one.changed_wall_ns)[:16].replace("T", " ") + "Z"
    away = "  (put away)" if one.archived else ""
    mark = "*" if one.current else " "
    found = [f"{mark} {plain(one.name):<24} {counts:>12}  {changed:<17}  {plain(one.question or '')}{away}".rstrip()]
    return [*found, f"    {plain(one.problem)}"] if one.problem else found


def _fields(one: Investigation) -> dict[str, Any]:
    fields = {field: getattr(one, field) for field in one.__struct_fields__ if field != "changed_wall_ns"}
    return {**fields, "changed": None if one.changed_wall_ns is None else stamp_of(one.changed_wall_ns)}


def _action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    """A parser that takes the common options too, and leaves those alone that stood before the action."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    parser.argument_default = argparse.SUPPRESS
    add_common(parser)
    _json(parser, default=argparse.SUPPRESS)
    parser.argument_default = None
    return parser


def _json(parser: argparse.ArgumentParser, default: Any) -> None:
    parser.add_argument("--json", action="store_true", default=default, help="JSON on stdout")
