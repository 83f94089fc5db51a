"""Every store of an investigation on a disk that refuses a call: the old data or the new, and a line that says why."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from decodetop import config
from decodetop.errors import DataError
from decodetop.log.reading import Entry
from decodetop.log.store import LogStore
from decodetop.todo.document import Document
from decodetop.todo.model import add
from decodetop.todo.past import Past
from decodetop.todo.question import read_question, write_question
from decodetop.todo.reading import AddTodo
from decodetop.todo.store import TodoStore
from support.failing import at_each_call


class Kept(NamedTuple):
    """A store: `write` puts a word into it, `held` reads it as a stranger would."""

    write: Callable[[Path, str], Any]
    held: Callable[[Path], Any]


def todo(folder: Path, word: str) -> None:
    TodoStore(folder).update(lambda document: add(document, AddTodo(content=word), 0)[0])


def log(folder: Path, word: str) -> None:
    LogStore(folder).append([Entry(wall_ns=0, kind="note", text=word)])


def logged(folder: Path) -> list[str]:
    store = LogStore(folder)
    store.read()
    return [entry.text for entry in store.entries]


def past(folder: Path, word: str) -> None:
    Past(folder).record(Document(), Document(items=({"id": "t1", "content": word, "status": "pending"},)))


STORES = {
    "checklist": Kept(todo, lambda folder: [item["content"] for item in TodoStore(folder).read().items]),
    "question": Kept(write_question, read_question),
    "log": Kept(log, logged),
    "undo": Kept(past, lambda folder: [after.items[0]["content"] for _, after in Past(folder).undo().done]),
    "opened": Kept(
        lambda folder, word: config.open_investigation(folder / word), lambda _: config.opened_investigation()
    ),
}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("kept", STORES.values(), ids=STORES)
@pytest.mark.parametrize("first", [True, False], ids=["first", "again"])
def test_a_write_that_fails_leaves_what_there_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Kept, number: int, first: bool
) -> None:
    monkeypatch.setattr(config.platformdirs, "user_data_dir", lambda _: str(tmp_path))
    if not first:
        kept.write(tmp_path, "old")
    before = kept.held(tmp_path)
    errors = []
    for error in at_each_call(monkeypatch, number, lambda: kept.write(tmp_path, "new")):
        if error is not None:
            assert isinstance(error, DataError), error
            assert str(tmp_path) in error.message and "\n" not in error.message and error.hint
            assert kept.held(tmp_path) == before
            errors.append(error)
        elif kept.held(tmp_path) != before:  # what was refused was a help only; or nothing was
            break
    assert errors and kept.held(tmp_path) != before
    assert not list(tmp_path.rglob("*.tmp"))
