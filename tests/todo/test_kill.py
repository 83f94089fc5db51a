"""A writer killed at any point loses nothing: every system call of a write is tried, then random moments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decodetop.todo.store import TodoStore
from support.killed import at_each_call, at_random

CALLS = ("open", "write", "fsync", "fchmod", "replace", "close", "rename", "unlink", "mkdir")
STORE = """
from decodetop.todo.model import add
from decodetop.todo.reading import AddTodo
from decodetop.todo.store import TodoStore

store = TodoStore(folder)

def held():
    return [item["content"] for item in store.read().items]

def write(word):
    store.update(lambda document: add(document, AddTodo(content=word), 0)[0])
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_killed_at_each_system_call_of_a_write(tmp_path: Path) -> None:
    points, items = at_each_call(tmp_path, STORE, CALLS)
    assert points > 8, "the write is made of more calls than that: the counting does not reach it"
    assert items >= 1
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp"], "the next writer sweeps up"


OTHERS = {
    "question": """
from decodetop.todo.question import read_question, write_question

def held():
    return (read_question(folder) or "").split("/") if read_question(folder) else []

def write(word):
    write_question(folder, "/".join([*held(), word]))
""",
    "opened": """
from decodetop import config

config.platformdirs.user_data_dir = lambda _: str(folder)

def held():
    opened = config.opened_investigation()
    return [] if opened is None else opened.name.split("+")

def write(word):
    config.open_investigation(folder / "+".join([*held(), word]))
""",
    "undo": """
from decodetop.todo.document import Document
from decodetop.todo.past import Past

def held():
    return [after.items[0]["content"] for _, after in Past(folder).undo().done]

def write(word):
    Past(folder).record(Document(), Document(items=({"id": "t1", "content": word, "status": "pending"},)))
""",
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("store", OTHERS.values(), ids=OTHERS)
def test_what_stands_beside_the_list_is_killed_at_each_call_too(tmp_path: Path, store: str) -> None:
    points, words = at_each_call(tmp_path, store, CALLS, half=True)
    assert points > 4 and words >= 1


def test_killed_at_random_moments(tmp_path: Path) -> None:
    told = at_random(tmp_path, STORE, writers=1, seed=7)
    held = [item["content"] for item in json.loads((tmp_path / "todo.json").read_bytes())["todos"]]
    assert told <= set(held), "what a writer said was written is there"
    assert len(held) - len(told) <= 4 and len(set(held)) == len(held), "at most the one of each round is not told"
    assert TodoStore(tmp_path).read().next_id == len(held) + 1
