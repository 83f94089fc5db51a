"""What the checklist says of a move: by its id, whatever the words have become."""

import pytest

from decodetop.floor.offers import standing, todo_of_move
from decodetop.floor.reading import Move
from decodetop.todo.reading import Attempt, Evidence, Todo

MOVE = Move(
    id="kv-16", title="keep KV in 16 bit", set="--kv-cache-dtype bf16", why="", gain_ms=None, gain_words="", effort=1
)
LINK = (Evidence(kind="move", ref="kv-16"),)
TRIED = Attempt(change="bf16", outcome="failed")


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (Todo(id="a", content="my own words", evidence=LINK), "open"),
        (Todo(id="a", content="my own words", evidence=LINK, status="in_progress"), "open"),
        (Todo(id="a", content="my own words", evidence=LINK, attempts=(TRIED,)), "tried"),
        (Todo(id="a", content="my own words", evidence=LINK, status="completed"), "tried"),
        (Todo(id="a", content="b", attempts=(Attempt(change="b", outcome="failed", links=("move kv-16",)),)), "tried"),
        (Todo(id="a", content="keep KV in 16 bit: --kv-cache-dtype bf16"), "open"),
        (Todo(id="a", content="keep KV in 16 bit, for the other server"), None),
        (Todo(id="a", content="b", evidence=(Evidence(kind="run", ref="kv-16"),), attempts=(TRIED,)), None),
    ],
)
def test_by_its_link(item: Todo, said: str | None) -> None:
    assert standing(MOVE, [Todo(id="z", content="other"), item]) == said


def test_its_item_is_linked_to_it() -> None:
    assert todo_of_move(MOVE, (Evidence(kind="run", ref="1"),)).evidence[-1] == LINK[0]
