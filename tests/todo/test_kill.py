"""A writer killed at any point loses nothing: every system call of a write is tried, then random moments."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from decodetop.todo.store import TodoStore

_AT_EACH_CALL = """
import os, signal, sys
from pathlib import Path
from decodetop.todo.model import add
from decodetop.todo.reading import AddTodo
from decodetop.todo.store import TodoStore

folder = Path(sys.argv[1])
store = TodoStore(folder)
calls = ("open", "write", "fsync", "fchmod", "replace", "close", "rename", "unlink", "mkdir")
real = {name: getattr(os, name) for name in calls}
for victim in range(1, 60):
    before = [item["content"] for item in store.read().items]
    child = os.fork()
    if child == 0:
        left = [victim]
        def counted(name):
            def call(*args, **more):
                if left[0] <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return real[name](*args, **more)
            return call
        for name in calls:
            setattr(os, name, counted(name))
        store.update(lambda document: add(document, AddTodo(content=f"n{victim}"), 0)[0])
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    after = [item["content"] for item in store.read().items]
    assert after in (before, [*before, f"n{victim}"]), (victim, before, after)
    if status == 0:
        print(victim, len(after))
        sys.exit(0 if after[-1] == f"n{victim}" else 1)
sys.exit(2)
"""

_FOR_EVER = """
import sys
from pathlib import Path
from decodetop.todo.model import add
from decodetop.todo.reading import AddTodo
from decodetop.todo.store import TodoStore

store = TodoStore(Path(sys.argv[1]))
for number in range(10**9):
    store.update(lambda document: add(document, AddTodo(content=f"{sys.argv[2]}-{number}"), 0)[0])
    print(number, flush=True)
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_killed_at_each_system_call_of_a_write(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _AT_EACH_CALL, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    points, items = map(int, done.stdout.split())
    assert points > 8, "the write is made of more calls than that: the counting does not reach it"
    assert items >= 1
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp"], "the next writer sweeps up"


def test_killed_at_random_moments(tmp_path: Path) -> None:
    chance = random.Random(7)
    told: list[str] = []
    for round in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", _FOR_EVER, str(tmp_path), str(round)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randint(1, 12)):
                told.append(f"{round}-{writer.stdout.readline().strip()}")
            writer.kill()
    held = [item["content"] for item in json.loads((tmp_path / "todo.json").read_bytes())["todos"]]
    assert set(told) <= set(held), "what a writer said was written is there"
    assert len(held) - len(told) < 200 and len(set(held)) == len(held)
    assert TodoStore(tmp_path).read().next_id == len(held) + 1
