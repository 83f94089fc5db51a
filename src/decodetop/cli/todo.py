"""`decodetop todo`: the checklist of the investigation, and all that the pane does to it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from decodetop.cli.common import add_common, print_json, print_lines
from decodetop.config import Settings
from decodetop.core.clock import SystemClock
from decodetop.errors import DataError, UsageError
from decodetop.todo import formats, model, text
from decodetop.todo.atomic import real_path, replace
from decodetop.todo.document import SCHEMA, Document, tree
from decodetop.todo.importing import import_block
from decodetop.todo.question import read_question, write_question
from decodetop.todo.reading import (
    OUTCOMES,
    PRIORITIES,
    AddAttempt,
    AddEvidence,
    AddTodo,
    EditTodo,
    EvidenceKind,
    MoveTodo,
    TodoReading,
)
from decodetop.todo.store import TodoStore
from decodetop.todo.view import todo_of, todos_of

_KINDS = msgspec.inspect.type_info(EvidenceKind).values  # type: ignore[attr-defined]


def configure(parser: argparse.ArgumentParser) -> None:
    """The actions; none = `list`."""
    _json(parser, default=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    _action(actions, "list", "show the checklist (what `todo` alone does)")
    add = _action(actions, "add", "add an item")
    add.add_argument("text", nargs="+", metavar="TEXT")
    add.add_argument("--priority", choices=PRIORITIES, default="medium")
    add.add_argument("--start", action="store_true", help="it is in progress at once")
    add.add_argument("--after", metavar="ID", help="behind this item")
    add.add_argument("--under", metavar="ID", help="a part of this item")
    _texts(add, "notes", "hypothesis", "expected")
    _id(_action(actions, "start", "the item is in progress"))
    _id(_action(actions, "reopen", "the item is to be done again"))
    for name, words in (("done", "the item is done"), ("cancel", "the item is given up")):
        _texts(_id(_action(actions, name, words)), "why")
    edit = _id(_action(actions, "edit", "change an item's words, or what --notes and the others name"))
    edit.add_argument("text", nargs="*", metavar="TEXT")
    edit.add_argument("--blocked-by", metavar="ID", action="append", help='an item that comes first; "" = none')
    _texts(edit, "notes", "hypothesis", "expected", "why")
    priority = _id(_action(actions, "priority", "set an item's priority"))
    priority.add_argument("priority", choices=PRIORITIES)
    move = _id(_action(actions, "move", "move an item among its siblings"))
    move.add_argument("by", type=int, metavar="BY", help="places down; negative = up")
    attempt = _id(_action(actions, "attempt", "record what was tried for an item"))
    attempt.add_argument("text", nargs="+", metavar="TEXT", help="what was changed: flags, a commit")
    attempt.add_argument("--outcome", choices=OUTCOMES, required=True)
    attempt.add_argument("--link", action="append", default=[], metavar="REF", help="a run, capture, commit or file")
    _texts(attempt, "why")
    evidence = _id(_action(actions, "evidence", "link a run, capture or finding to an item"))
    evidence.add_argument("kind", choices=_KINDS)
    evidence.add_argument("ref", metavar="REF")
    _texts(evidence, "summary")
    question = _action(actions, "question", "show or set what the investigation asks")
    question.add_argument("text", nargs="*", metavar="TEXT")
    incoming = _action(actions, "import", "merge a list into the checklist")
    incoming.add_argument("file", metavar="FILE|-")
    incoming.add_argument("--format", choices=("auto", *formats.FORMATS), default="auto")
    outgoing = _action(actions, "export", "write the checklist for another tool")
    outgoing.add_argument("file", metavar="FILE|-", nargs="?", default="-")
    outgoing.add_argument("--format", choices=formats.FORMATS, default="json")


def run(args: argparse.Namespace, settings: Settings) -> int:
    store = TodoStore(settings.investigation)
    if args.action in (None, "list"):
        return _list(args, settings, store)
    if args.action == "export":
        return _export(args, store)
    if args.action == "question":
        return _question(args, settings)
    return _change(args, store)


def find(document: Document, name: str) -> str:
    """The id that `name` means: an id, a place in the list (`#3` or `3`), or an id's only beginning.

    Raises UsageError if it means none, or several.
    """
    ids: list[str] = [item["id"] for item, _ in tree(document.items)]
    if name in ids:
        return name
    number = name.removeprefix("#")
    if number.isdecimal() and 1 <= int(number) <= len(ids):
        return ids[int(number) - 1]
    beginning = [id for id in ids if name and id.startswith(name)]
    if len(beginning) == 1:
        return beginning[0]
    if beginning:
        raise UsageError(f"{name!r} may mean {', '.join(beginning)}", "give more of the id, or the place as #3")
    raise UsageError(f"no item {name!r} in the checklist", "`decodetop todo` lists the items with their ids")


def _list(args: argparse.Namespace, settings: Settings, store: TodoStore) -> int:
    document = store.read()
    title = read_question(settings.investigation)
    if args.json:
        items = [item for item, _ in tree(document.items)]
        print_json({"schema": SCHEMA, "path": str(store.path), "title": title, "todos": items})
    else:
        print_lines(text.lines(TodoReading(path=str(store.path), title=title, todos=todos_of(document.items))))
    return 0


def _change(args: argparse.Namespace, store: TodoStore) -> int:
    """Make one edit on what the file holds at that moment, and say what came of it."""
    wall_ns = SystemClock().wall_ns()
    said: list[str] = []
    ids: list[str] = []
    edit = _edit_of(args)

    def change(document: Document) -> Document:
        said.clear()
        document, ids[:] = edit(document, wall_ns, said)
        return document

    document = store.update(change)
    changed = [item for item, _ in tree(document.items) if item["id"] in ids]
    if args.json:
        print_json({"schema": SCHEMA, "path": str(store.path), "todos": changed})
    else:
        print_lines(
            [*said, *(f"{text.mark(todo_of(item))} {item['id']}  {text.plain(item['content'])}" for item in changed)]
        )
    for word in _advice(args, document, ids):
        print(f"decodetop: {word}", file=sys.stderr)
    return 0


Edit = Callable[[Document, int, list[str]], tuple[Document, list[str]]]


def _edit_of(args: argparse.Namespace) -> Edit:
    """What the action does to a document: the next one and the ids it touched."""
    if args.action == "add":
        return lambda document, wall_ns, _: _add(document, args, wall_ns)
    if args.action == "import":
        block = formats.parse(_read(args.file), args.format)

        def incoming(document: Document, wall_ns: int, said: list[str]) -> tuple[Document, list[str]]:
            document, imported = import_block(document, block, wall_ns)
            said.append(str(imported))
            return document, [*imported.added, *imported.changed]

        return incoming

    def one(document: Document, wall_ns: int, _: list[str]) -> tuple[Document, list[str]]:
        id = find(document, args.id)
        return _ACTIONS[args.action](document, id, args, wall_ns), [id]

    return one


def _add(document: Document, args: argparse.Namespace, wall_ns: int) -> tuple[Document, list[str]]:
    command = AddTodo(
        content=" ".join(args.text),
        priority=args.priority,
        status="in_progress" if args.start else "pending",
        after_id=find(document, args.after) if args.after else None,
        parent=find(document, args.under) if args.under else None,
        notes=args.notes,
        hypothesis=args.hypothesis,
        expected=args.expected,
    )
    document, id = model.add(document, command, wall_ns)
    return document, [id]


def _edit(document: Document, id: str, args: argparse.Namespace, wall_ns: int) -> Document:
    blocked_by = None
    if args.blocked_by is not None:
        blocked_by = tuple(find(document, name) for name in args.blocked_by if name)
    command = EditTodo(
        id=id,
        content=" ".join(args.text) if args.text else None,
        notes=args.notes,
        hypothesis=args.hypothesis,
        expected=args.expected,
        reason=args.why,
        blocked_by=blocked_by,
    )
    if command == EditTodo(id=id):
        raise UsageError("edit changes nothing", "give the new words, or --notes, --hypothesis, --expected, --why")
    return model.edit(document, command, wall_ns)


def _status(status: str) -> Callable[[Document, str, argparse.Namespace, int], Document]:
    def act(document: Document, id: str, args: argparse.Namespace, wall_ns: int) -> Document:
        command = EditTodo(id=id, status=status, reason=getattr(args, "why", None))
        return model.edit(document, command, wall_ns)

    return act


def _attempt(document: Document, id: str, args: argparse.Namespace, wall_ns: int) -> Document:
    links = tuple(args.link)
    command = AddAttempt(id=id, change=" ".join(args.text), outcome=args.outcome, reason=args.why, links=links)
    return model.attempt(document, command, wall_ns)


def _evidence(document: Document, id: str, args: argparse.Namespace, wall_ns: int) -> Document:
    return model.evidence(document, AddEvidence(id=id, kind=args.kind, ref=args.ref, summary=args.summary), wall_ns)


_ACTIONS: Mapping[str, Callable[[Document, str, argparse.Namespace, int], Document]] = {
    "start": _status("in_progress"),
    "done": _status("completed"),
    "cancel": _status("cancelled"),
    "reopen": _status("pending"),
    "edit": _edit,
    "priority": lambda document, id, args, ns: model.edit(document, EditTodo(id=id, priority=args.priority), ns),
    "move": lambda document, id, args, ns: model.move(document, MoveTodo(id=id, by=args.by)),
    "attempt": _attempt,
    "evidence": _evidence,
}


def _advice(args: argparse.Namespace, document: Document, ids: list[str]) -> list[str]:
    """Soft words about what was just done."""
    words = []
    running = model.in_progress(document)
    if len(running) > 1 and set(ids) & set(running) and args.action in ("add", "start"):
        words.append(f"{len(running)} items are in progress: {', '.join(running)} (one at a time is the habit)")
    if args.action in ("done", "cancel"):
        words += [
            f"{id} closed with no word of why (add one with --why, or `decodetop todo attempt`)"
            for id in ids
            if model.closed_without_why(model.item_of(document, id))
        ]
    return words


def _export(args: argparse.Namespace, store: TodoStore) -> int:
    rendered = formats.render(store.read().items, args.format)
    if args.file == "-":
        sys.stdout.write(rendered)
        return 0
    target = real_path(Path(args.file))
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
        print_lines([text.plain(question)] if question else [])
    return 0


def _read(name: str) -> str:
    """The text of a file, or of standard input. Raises DataError."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"can't read {name}: {error.strerror}", "give a file, or - for standard input") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 text", "give a text file") from error


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


def _id(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("id", metavar="ID", help="an item's id, its only beginning, or its place (#3 or 3)")
    return parser


def _texts(parser: argparse.ArgumentParser, *names: str) -> argparse.ArgumentParser:
    for name in names:
        parser.add_argument(f"--{name}", metavar="TEXT")
    return parser
