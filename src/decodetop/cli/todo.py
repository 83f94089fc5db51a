"""`decodetop todo`: the checklist of the investigation, and all that the pane does to it."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

import msgspec

from decodetop.cli.common import add_common, complain, print_json, print_lines, print_text
from decodetop.cli.todo_edits import advice, ask_why, edit_of
from decodetop.config import Settings
from decodetop.core.atomic import real_path, replace
from decodetop.core.clock import SystemClock
from decodetop.core.encode import encodable
from decodetop.core.outside import plain
from decodetop.core.regular import named_path
from decodetop.errors import DataError, UsageError
from decodetop.todo import formats, text
from decodetop.todo.document import SCHEMA, Document, tree
from decodetop.todo.follow import follower
from decodetop.todo.model import Undo, difference
from decodetop.todo.past import Past
from decodetop.todo.question import read_question, write_question
from decodetop.todo.reading import (
    OUTCOMES,
    PRIORITIES,
    EvidenceKind,
    TodoReading,
)
from decodetop.todo.store import TodoStore
from decodetop.todo.view import todo_of, todos_of

_KINDS = msgspec.inspect.type_info(EvidenceKind).values  # type: ignore[attr-defined]


_TEXTS = {
    "notes": "whatever should be kept beside it",
    "hypothesis": "what is thought to be the cause",
    "expected": "what it should bring",
    "why": "the reason, kept with it",
    "summary": "what it shows, in a line",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The actions; none = `list`."""
    _json(parser, default=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    _action(actions, "list", "show the checklist (what `todo` alone does)")
    add = _action(actions, "add", "add an item")
    add.add_argument("text", nargs="+", metavar="TEXT", help="what is to be done")
    add.add_argument("--priority", choices=PRIORITIES, default="medium", help="(medium)")
    add.add_argument("--start", action="store_true", help="it is in progress at once")
    add.add_argument("--after", metavar="ID", help="behind this item")
    add.add_argument("--under", metavar="ID", help="a part of this item")
    _texts(add, "notes", "hypothesis", "expected")
    _id(_action(actions, "start", "the item is in progress"))
    _id(_action(actions, "reopen", "the item is to be done again"))
    for name, words in (("done", "the item is done"), ("cancel", "the item is given up")):
        _texts(_id(_action(actions, name, words)), "why")
    edit = _id(_action(actions, "edit", "change an item's words, or what --notes and the others name"))
    edit.add_argument("text", nargs="*", metavar="TEXT", help="its new words")
    edit.add_argument("--blocked-by", metavar="ID", action="append", help='an item that comes first; "" = none')
    edit.add_argument("--under", metavar="ID", help='it is a part of this item; "" = of none')
    _texts(edit, "notes", "hypothesis", "expected", "why")
    priority = _id(_action(actions, "priority", "set an item's priority"))
    priority.add_argument("priority", choices=PRIORITIES, help="what matters most is high")
    move = _id(_action(actions, "move", "move an item among its siblings"))
    move.add_argument("by", type=int, metavar="BY", help="places down; negative = up")
    attempt = _id(_action(actions, "attempt", "record what was tried for an item"))
    attempt.add_argument("text", nargs="+", metavar="TEXT", help="what was changed: flags, a commit")
    attempt.add_argument("--outcome", choices=OUTCOMES, required=True, help="how it ended")
    attempt.add_argument("--link", action="append", default=[], metavar="REF", help="a run, capture, commit or file")
    _texts(attempt, "why")
    evidence = _id(_action(actions, "evidence", "link a run, capture or finding to an item"))
    evidence.add_argument("kind", choices=_KINDS, help="what it is")
    evidence.add_argument("ref", metavar="REF", help="the run's number, the capture's or finding's id, a path")
    _texts(evidence, "summary")
    _action(actions, "undo", "take back the last edit that a command made")
    _action(actions, "redo", "make it again")
    question = _action(actions, "question", "show or set what the investigation asks")
    question.add_argument("text", nargs="*", metavar="TEXT", help="the new one; nothing: show it")
    incoming = _action(actions, "import", "merge a list into the checklist")
    incoming.add_argument("file", metavar="FILE|-", help="the list; - reads standard input")
    incoming.add_argument("--format", choices=("auto", *formats.FORMATS), default="auto", help="(auto: as it looks)")
    outgoing = _action(actions, "export", "write the checklist for another tool")
    outgoing.add_argument("file", metavar="FILE|-", nargs="?", default="-", help="where to (standard output)")
    outgoing.add_argument("--format", choices=formats.FORMATS, default="json", help="(json)")
    follow = _action(actions, "follow", "show the plans of coding agents on this box (read-only)")
    follow.add_argument("path", nargs="*", metavar="PATH", help="a plan's file, folder or database instead")


def run(args: argparse.Namespace, settings: Settings) -> int:
    store = TodoStore(settings.investigation)
    if args.action in (None, "list"):
        return _list(args, settings, store)
    if args.action == "export":
        return _export(args, store)
    if args.action in ("undo", "redo"):
        return _back(args, settings, store)
    if args.action == "question":
        return _question(args, settings)
    if args.action == "follow":
        return _follow(args)
    return _change(args, settings, store)


def _list(args: argparse.Namespace, settings: Settings, store: TodoStore) -> int:
    document = store.read()
    title = read_question(settings.investigation) or document.title
    if args.json:
        items = [item for item, _ in tree(document.items)]
        print_json({"schema": SCHEMA, "path": str(store.path), "title": title, "todos": items})
    else:
        print_lines(text.lines(TodoReading(path=str(store.path), title=title, todos=todos_of(document.items))))
    return 0


def _change(args: argparse.Namespace, settings: Settings, store: TodoStore) -> int:
    """Make one edit on what the file holds at that moment, and say what came of it."""
    ask_why(args, store)
    wall_ns = SystemClock().wall_ns()
    said: list[str] = []
    ids: list[str] = []
    before: list[Document] = []
    edit = edit_of(args)

    def change(document: Document) -> Document:
        said.clear()
        before[:] = [document]
        document, ids[:] = edit(document, wall_ns, said)
        return document

    document = store.update(change)
    with contextlib.suppress(DataError):  # the edit is made; that it can't be taken back is no reason to fail
        Past(settings.investigation).record(before[0], document)
    touched = set(ids)
    changed = [item for item, _ in tree(document.items) if item["id"] in touched]
    if args.json:
        print_json({"schema": SCHEMA, "path": str(store.path), "todos": changed})
    else:
        print_lines(
            [*said, *(f"{text.mark(todo_of(item))} {item['id']}  {plain(item['content'])}" for item in changed)]
        )
    for word in advice(args, document, ids):
        complain(word)
    return 0


def _back(args: argparse.Namespace, settings: Settings, store: TodoStore) -> int:
    """Take a command's edit back, or make it again; what was edited elsewhere since then stays."""
    again = args.action == "redo"
    documents: list[Document] = []

    def step(undo: Undo) -> Undo:
        if not (undo.undone if again else undo.done):
            raise UsageError(f"nothing to {args.action}", "the screen's own edits are taken back there (u)")
        kept: list[Undo] = []

        def change(document: Document) -> Document:
            after, merged = undo.redo(document) if again else undo.undo(document)
            kept[:], documents[:] = [after], [document]
            return merged

        documents.append(store.update(change))
        return kept[0]

    try:
        Past(settings.investigation).change(step)
    except DataError as error:
        if len(documents) < 2:
            raise
        complain(f"{args.action} is made, but not remembered: {error.message}", error.hint)
    before, document = documents
    words = f"{'made again' if again else 'undone'}: {difference(before, document)}"
    if args.json:
        print_json({"schema": SCHEMA, "path": str(store.path), "said": words})
    else:
        print_lines([words])
    return 0


def _export(args: argparse.Namespace, store: TodoStore) -> int:
    rendered = formats.render(encodable(list(store.read().items)), args.format)
    if args.file == "-":
        print_text(rendered)
        return 0
    target = real_path(named_path(args.file, "FILE"))
    if target == real_path(store.path):
        raise UsageError(f"{target} is the checklist itself", "give another FILE")
    try:
        replace(target, rendered.encode())
    except DataError as error:
        raise DataError(error.message, "give another FILE, or - for standard output") from error
    return 0


def _question(args: argparse.Namespace, settings: Settings) -> int:
    if args.text:
        write_question(settings.investigation, " ".join(args.text))
    question = read_question(settings.investigation)
    if args.json:
        print_json({"schema": SCHEMA, "question": question})
    else:
        print_lines([plain(question)] if question else [])
    return 0


def _action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    """A parser that takes the common options too, and leaves those alone that stood before the action."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    parser.argument_default = argparse.SUPPRESS
    add_common(parser)
    _json(parser, default=argparse.SUPPRESS)
    parser.argument_default = None
    return parser


def _follow(args: argparse.Namespace) -> int:
    """Exit code 1 if a place that was named can't be read."""
    reading = follower([named_path(name, "PATH") for name in args.path]).look(SystemClock().wall_ns())
    if args.json:
        print_json({"schema": SCHEMA, **msgspec.to_builtins(reading)})
    else:
        print_lines(text.follow_lines(reading))
    unread = reading.reasons or any(plan.problem is not None for plan in reading.plans)
    return 1 if args.path and unread else 0


def _json(parser: argparse.ArgumentParser, default: Any) -> None:
    parser.add_argument("--json", action="store_true", default=default, help="JSON on stdout")


def _id(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("id", metavar="ID", help="an item's id, its only beginning, or its place (#3 or 3)")
    return parser


def _texts(parser: argparse.ArgumentParser, *names: str) -> argparse.ArgumentParser:
    for name in names:
        parser.add_argument(f"--{name}", metavar="TEXT", help=_TEXTS[name])
    return parser
