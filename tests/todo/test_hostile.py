"""Lists as no program should write them: any JSON in any field, a file that is another thing each time."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodetop.core.sample import Command
from decodetop.errors import DataError, DecodetopError
from decodetop.todo import formats, text
from decodetop.todo.document import Document, normalise
from decodetop.todo.formats import todowrite
from decodetop.todo.importing import import_block
from decodetop.todo.notebook import Notebook
from decodetop.todo.reading import AddAttempt, AddEvidence, AddTodo, EditTodo, MoveTodo, TodoReading, UndoTodo
from decodetop.todo.store import TodoStore
from decodetop.todo.view import todo_of, todos_of

NAMES = [
    "id", "content", "status", "priority", "notes", "attempts", "evidence", "status_history", "parent", "blocked_by",
    "conflicts", "hypothesis", "uuid", "description", "annotations", "tags", "start", "entry", "subject", "title",
    "todotxt_priority", "todotxt_created",
]  # fmt: skip
VALUES = [
    None, True, 0, -1, 1.5, 1e308, 10**30, "", "x", "\x00", "\ud800", "a\nb", "- [x] y", "<script>", "\x1b[31m",
    "\u202e",
    [], [1], {}, {"a": 1}, [[]], [{"at": 5}], [{"kind": 1, "ref": None}], ["t1"], "t1", "completed", ["", None],
    [{"change": "x", "outcome": "failed", "links": 5}], [{"status": "x", "at": "y"}],
]  # fmt: skip
ENTRY = st.one_of(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=7),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=5).map(
        lambda item: {**item, "uuid": "u1", "description": "d"}
    ),
    st.sampled_from(VALUES),
)
LISTS = st.lists(ENTRY, max_size=4)
WHOLES = st.one_of(
    LISTS,
    LISTS.map(lambda items: {"todos": items}),
    st.tuples(LISTS, st.sampled_from(VALUES), st.sampled_from([1, 2, "x", None])).map(
        lambda made: {"schema": made[2], "next_id": made[1], "title": made[1], "todos": made[0]}
    ),
)
HARD = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@HARD
@given(WHOLES, st.integers(0, 400), st.booleans())
def test_any_list_is_imported_or_refused_in_words(whole: Any, cut: int, is_cut: bool) -> None:
    raw = json.dumps(whole)
    try:
        block = formats.parse(raw[:cut] if is_cut else raw)
        document, said = import_block(Document(), block, 10**18)
    except DecodetopError as error:
        assert error.message
        return
    assert str(said)
    again, said = import_block(document, block, 10**18)
    assert not said.added and again.ids == document.ids
    for name in formats.FORMATS:
        rendered = formats.render(document.items, name)
        with contextlib.suppress(DecodetopError):  # without words, or (Taskwarrior) without a uuid, there is no item
            assert formats.parse(rendered, name).items or not document.items


@HARD
@given(WHOLES)
def test_any_file_is_shown_and_edited_or_refused_in_words(whole: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = TodoStore(Path(folder))
        store.path.write_text(json.dumps(whole), "utf-8")
        book = Notebook()
        try:
            book.look(store.parse(store.read_bytes()))
        except DecodetopError:
            return
        shown = TodoReading(path="x", todos=todos_of(book.now.items))
        assert text.lines(shown) and text.markdown(shown) is not None
        edits: list[Command] = [AddTodo(content="one more")]
        for id in book.now.ids[:1]:
            last = book.now.ids[-1]
            edits += [
                EditTodo(id=id, status="completed"), EditTodo(id=id, parent=last, blocked_by=(last,)),
                AddAttempt(id=id, change="c", outcome="failed"), AddEvidence(id=id, kind="run", ref="1"),
                MoveTodo(id=id, by=1), UndoTodo(),
            ]  # fmt: skip
        for edit in edits:
            with contextlib.suppress(DecodetopError):
                book.edit(edit, 10**18)
        with contextlib.suppress(DecodetopError):
            store.save(book.now, book.known)
            assert store.read().get(book.now.ids[-1]) is not None


def test_items_without_words_are_left_out_and_said() -> None:
    block = formats.parse('["", {"content": " ", "status": "pending"}, "a"]')
    document, said = import_block(Document(), block, 0)
    assert [item["content"] for item in document.items] == ["a"]
    assert "2 items have no words and were left out" in str(said)


@pytest.mark.parametrize(
    ("entry", "content"),
    [
        ({"content": None, "description": "d"}, "d"),
        ({"content": 5, "description": "d"}, "5"),
        ({"content": [1], "title": "d"}, "[1]"),
        ({"content": "", "title": "d"}, "d"),
    ],
)
def test_the_words_of_an_item_are_words(entry: dict[str, Any], content: str) -> None:
    assert normalise(entry)["content"] == content


def test_links_and_notes_of_another_shape_are_passed() -> None:
    item = {"id": "t1", "content": "a", "status": "pending"}
    todo = todo_of({**item, "attempts": [{"change": "c", "outcome": "failed", "links": 5}]})
    assert todo.attempts[0].links == ()
    task = json.dumps([{"uuid": "u", "description": "d", "annotations": True}])
    assert formats.parse(task, "taskwarrior").items[0]["content"] == "d"


@pytest.mark.parametrize("size", [8_100, 8_170, 8_180, 8_190, 8_200, 16_400, 40_000])
def test_a_list_in_a_log_may_be_longer_than_what_is_tried_first(size: int) -> None:
    items = [{"content": "a" * size, "status": "pending"}, {"content": 'b \\" \n é', "status": "completed"}]
    log = f"12:00 [{{'x'}}] start\n{json.dumps(items)}\n12:01 end {{\n"
    assert [item["content"] for item in formats.parse(log).items] == ["a" * size, items[1]["content"].strip()]
    cut = f"log\n{json.dumps([*items, items[0]])}"[: -size // 2]
    assert len(formats.parse(cut).items) == 2


def test_a_log_full_of_brackets_is_read_in_a_time_that_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failure counts the lines of what was given: of all the text before it, a minute for half a megabyte."""
    given: list[int] = []
    real = todowrite._DECODER

    class Counting:
        def raw_decode(self, text: str, start: int = 0) -> tuple[Any, int]:
            given.append(len(text))
            return real.raw_decode(text, start)

    monkeypatch.setattr(todowrite, "_DECODER", Counting())
    log = '2026 INFO [{\'a\'}] [{"k": x}] {"k": y}\n' * 2_000
    with pytest.raises(DataError, match="no checklist"):
        formats.parse(log)
    assert len(given) > 2_000 and sum(given) < 10_000 * len(given)
