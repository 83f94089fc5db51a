"""Two screens, commands and an agent that rewrites its whole list from memory, on one checklist in any order."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from decodetop.todo.model import add
from decodetop.todo.notebook import Notebook
from decodetop.todo.reading import AddTodo, EditTodo, RedoTodo, UndoTodo
from decodetop.todo.store import TodoStore

STEPS = 150


class Screen:
    """What the service does, without its loop: look, edit, save, any of them late."""

    def __init__(self, folder: Path, name: str) -> None:
        self.store, self.book, self.name = TodoStore(folder), Notebook(), name
        self.wrote: list[str] = []
        self.closed: set[str] = set()
        self.due, self.now_ns = False, 0

    def look(self) -> None:
        memory = self.store.memory()
        data = self.store.read_bytes()
        seen = self.store.parse(data, self.book.known, memory)
        self.book.look(seen)
        self.due = self.due or (data is not None and not seen.whole)

    def edit(self) -> None:
        self.now_ns += 1
        mine = [item["id"] for item in self.book.now.items if item["content"] in self.wrote]
        if len(mine) > len(self.closed) and self.now_ns % 3 == 0:
            item = self.book.now.get(mine[len(self.closed)])
            assert item is not None
            self.closed.add(item["content"])
            self.book.edit(EditTodo(id=item["id"], status="completed"), self.now_ns)
        else:
            self.wrote.append(f"{self.name} {len(self.wrote)}")
            self.book.edit(AddTodo(content=self.wrote[-1]), self.now_ns)

    def save(self) -> None:
        if self.due or self.book.owes:
            self.book.saved(*self.store.save(self.book.now, self.book.known))
            self.due = False


class Agent:
    """Knows its own list only, without ids."""

    def __init__(self, path: Path, chance: random.Random, wrapped: bool) -> None:
        self.path, self.chance, self.wrapped = path, chance, wrapped
        self.plan = [{"content": f"agent {n}", "status": "pending"} for n in range(4)]

    def write(self) -> None:
        self.chance.choice(self.plan)["status"] = self.chance.choice(("pending", "in_progress", "completed"))
        if self.chance.random() < 0.2:
            self.plan.append({"content": f"agent {len(self.plan)}", "status": "pending"})
        self.path.write_text(json.dumps({"todos": self.plan} if self.wrapped else self.plan))


@pytest.mark.parametrize("late", ["look", "save"])
def test_undo_takes_back_ones_own_item_though_its_id_was_given_away(tmp_path: Path, late: str) -> None:
    """Two screens add an item at once: the second one to write gets another id for its own."""
    a, b = Screen(tmp_path, "a"), Screen(tmp_path, "b")
    for screen in (a, b):
        screen.look()
        screen.edit()
    a.save()
    getattr(b, late)()
    b.save()
    assert {item["content"] for item in a.store.read().items} == {"a 0", "b 0"}
    for command, left in ((UndoTodo(), {"a 0"}), (RedoTodo(), {"a 0", "b 0"}), (UndoTodo(), {"a 0"})):
        b.book.edit(command, 1)
        b.save()
        assert {item["content"] for item in a.store.read().items} == left


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    store = TodoStore(tmp_path)
    screens, agent = [Screen(tmp_path, "a"), Screen(tmp_path, "b")], Agent(store.path, chance, seed % 2 == 1)
    commands: list[str] = []
    agent.write()
    for _ in range(STEPS):
        what = chance.random()
        if what < 0.3:
            agent.write()
        elif what < 0.4:
            commands.append(f"command {len(commands)}")
            store.update(lambda document: add(document, AddTodo(content=commands[-1]), 0)[0])
        else:
            screen = chance.choice(screens)
            chance.choice((screen.look, screen.save, screen.edit, screen.edit))()
    agent.write()
    for screen in (*screens, *screens):
        screen.look()
        screen.save()
    items = store.read().items
    wanted = [
        *commands,
        *(word for screen in screens for word in screen.wrote),
        *(one["content"] for one in agent.plan),
    ]
    assert Counter(item["content"] for item in items) == Counter(wanted)
    assert len({item["id"] for item in items}) == len(items)
    found = {item["content"]: item for item in items}
    assert [found[one["content"]]["status"] for one in agent.plan] == [one["status"] for one in agent.plan]
    for screen in screens:
        assert {word for word in screen.wrote if found[word]["status"] == "completed"} == screen.closed
        assert [item["content"] for item in screen.book.now.items] == [item["content"] for item in items]
    for name in ("agent", "command", "a ", "b "):
        numbers = [int(item["content"].split()[1]) for item in items if item["content"].startswith(name)]
        assert numbers == sorted(numbers), name
    assert not [item["content"] for item in items if item.get("conflicts")], "nobody changed what another one did"
