"""What a foreign write costs beside a live screen: a few calls an item, and no more an item when the list is long."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from decodetop.todo.notebook import Notebook
from decodetop.todo.reading import EditTodo
from decodetop.todo.store import TodoStore

VERSIONS = 6
"""Lists known from before: each write is compared with them all."""
CALLS_AN_ITEM = 300


def calls_an_item(folder: Path, items: int) -> float:
    """Calls of Python functions that taking in a foreign tool's write is made of, and writing it back merged."""
    plan = [{"content": f"step {n}: look at kernel {n * 7}", "status": "pending"} for n in range(items)]
    store, book = TodoStore(folder), Notebook()

    def take_in() -> None:
        store.path.parent.mkdir(exist_ok=True)
        store.path.write_text(json.dumps(plan))
        book.look(store.parse(store.read_bytes(), book.known))
        book.saved(*store.save(book.now, book.known))

    for number in range(VERSIONS):
        plan[number]["status"] = "completed"
        take_in()
        book.edit(EditTodo(id=f"t{number + 20}", status="in_progress"), number + 1)
        book.saved(*store.save(book.now, book.known))
    plan[-1]["status"] = "completed"
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        take_in()
    finally:
        sys.setprofile(None)
    assert [item["status"] for item in book.now.items].count("completed") == VERSIONS + 1
    return calls / items


def test_a_foreign_write_costs_the_same_an_item_however_many_there_are(tmp_path: Path) -> None:
    few, many = calls_an_item(tmp_path / "few", 100), calls_an_item(tmp_path / "many", 400)
    assert many < few and many < CALLS_AN_ITEM, (few, many)
