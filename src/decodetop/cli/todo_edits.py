"""The edits of `decodetop todo`: what each action does to the checklist."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping

from decodetop.cli.common import ask
from decodetop.core.regular import named_path, read_text, size_words, why
from decodetop.errors import DataError, UsageError
from decodetop.todo import formats, model
from decodetop.todo.document import Document, tree
from decodetop.todo.importing import import_block
from decodetop.todo.reading import AddAttempt, AddEvidence, AddTodo, EditTodo, MoveTodo
from decodetop.todo.store import FILE_MAX_BYTES, TodoStore

STATUS_WORDS = {"done": "done", "cancel": "given up"}

Edit = Callable[[Document, int, list[str]], tuple[Document, list[str]]]
"""(document, epoch ns, what to say) -> the next document and the ids it touched."""


def edit_of(args: argparse.Namespace) -> Edit:
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
        parent=find(document, args.under) if args.under else args.under,
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


def ask_why(args: argparse.Namespace, store: TodoStore) -> None:
    """At a terminal, closing an item of which nothing says what came of it asks; an empty line is an answer too."""
    if args.action not in ("done", "cancel") or args.why is not None or not sys.stdin.isatty() or args.json:
        return
    document = store.read()
    item = model.item_of(document, find(document, args.id))
    if not model.says_what_came(item):
        args.why = ask(f"why is it {STATUS_WORDS[args.action]}?") or None


def advice(args: argparse.Namespace, document: Document, ids: list[str]) -> list[str]:
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


def _read(name: str) -> str:
    """The text of a file, or of standard input. Raises DataError."""
    try:
        if name != "-":
            return read_text(named_path(name, "FILE"), FILE_MAX_BYTES)
        data = sys.stdin.buffer.read(FILE_MAX_BYTES + 1)
        if len(data) > FILE_MAX_BYTES:
            raise DataError(f"standard input is larger than {size_words(FILE_MAX_BYTES)}", "that is not a checklist")
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"can't read {name}: {why(error)}", "give a file, or - for standard input") from error
