"""`decodetop log`: what happened in the investigation, in order; what one reads the next morning."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from decodetop.bench.store import FILE as RUNS_FILE
from decodetop.bench.store import RunStore
from decodetop.cli.common import add_common, complain, print_json, print_lines
from decodetop.config import Settings, api_key
from decodetop.core.clock import SystemClock
from decodetop.core.outside import plain
from decodetop.core.stamp import stamp_of
from decodetop.errors import DataError, UsageError
from decodetop.flows.chronicle import of_captures, of_runs, of_todos
from decodetop.log import text
from decodetop.log.reading import KINDS, Entry
from decodetop.log.since import HINT, since_ns
from decodetop.log.store import SCHEMA, LogStore, in_order
from decodetop.server.redact import redact_text
from decodetop.steps.store import CaptureStore
from decodetop.todo.store import TodoStore
from decodetop.todo.view import todos_of

EVERY = -1
"""As SQLite's LIMIT: no limit."""


def configure(parser: argparse.ArgumentParser) -> None:
    _options(parser, default=None)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    show = _action(actions, "show", "show the log (what `log` alone does)")
    _options(show, default=argparse.SUPPRESS)
    add = _action(actions, "add", "write a note into it")
    add.add_argument("text", nargs="+", metavar="TEXT", help="the note")
    add.add_argument("--item", metavar="ID", help="the checklist's item it is about")
    add.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="JSON on stdout")


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.action == "add":
        return _add(args, settings)
    wall_ns = SystemClock().wall_ns()
    begin_ns = since_ns(args.since, wall_ns) if args.since else None
    problems: list[str] = []
    entries = [
        entry
        for entry in whole(settings, problems)
        if (begin_ns is None or entry.wall_ns >= begin_ns) and (not args.kind or entry.kind in args.kind)
    ]
    if args.json:
        found = {"schema": SCHEMA, "path": str(LogStore(settings.investigation).path)}
        print_json({**found, "entries": [_fields(entry) for entry in entries], "errors": problems})
        return 0
    for problem in problems:
        complain(problem)
    print_lines(text.lines(entries) or ["nothing happened" + (f" since {args.since}" if args.since else " yet")])
    return 0


def whole(settings: Settings, problems: list[str]) -> list[Entry]:
    """The log, and what the other stores tell that no decodetop has written into it yet."""
    log = LogStore(settings.investigation)
    log.read()
    if log.unreadable:
        problems.append(f"{log.unreadable} lines of {log.path} can't be read")
    more = [entry for entry in _told(settings, problems) if not log.holds(entry)]
    return in_order([*log.entries, *more])


def _told(settings: Settings, problems: list[str]) -> Iterable[Entry]:
    folder = settings.investigation
    try:
        yield from of_todos(todos_of(TodoStore(folder).read().items))
    except DataError as error:
        problems.append(str(error))
    if (folder / RUNS_FILE).exists():  # opening the store would make one
        try:
            store = RunStore(folder)
            try:
                yield from of_runs(store.latest(EVERY))
            finally:
                store.close()
        except DataError as error:
            problems.append(str(error))
    captures = CaptureStore(folder)
    captures.load()
    yield from of_captures(captures.captures)
    problems += captures.unreadable


def _add(args: argparse.Namespace, settings: Settings) -> int:
    words = plain(redact_text(" ".join(args.text), filter(None, [api_key(settings)])))
    if not words:
        raise UsageError("a note needs words", "for example: decodetop log add reloaded the driver")
    entry = Entry(wall_ns=SystemClock().wall_ns(), kind="note", text=words, ref=args.item)
    LogStore(settings.investigation).append([entry])
    if args.json:
        print_json({"schema": SCHEMA, "entries": [_fields(entry)]})
    else:
        print_lines(text.lines([entry]))
    return 0


def _fields(entry: Entry) -> dict[str, Any]:
    return {
        "at": stamp_of(entry.wall_ns),
        "kind": entry.kind,
        "text": entry.text,
        "ref": entry.ref,
        "data": entry.data,
    }


def _options(parser: argparse.ArgumentParser, default: Any) -> None:
    parser.add_argument("--since", metavar="WHEN", default=default, help=HINT.removeprefix("use "))
    parser.add_argument("--kind", action="append", choices=KINDS, default=default, help="only these (repeatable)")
    json_default = False if default is None else default
    parser.add_argument("--json", action="store_true", default=json_default, help="JSON on stdout")


def _action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    """A parser that takes the common options too, and leaves those alone that stood before the action."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    parser.argument_default = argparse.SUPPRESS
    add_common(parser)
    parser.argument_default = None
    return parser
