"""Edits of the checklist, and taking them back."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from decodetop.core.clock import SECOND_NS
from decodetop.core.stamp import stamp_of, wall_ns_of
from decodetop.errors import UsageError
from decodetop.todo import model
from decodetop.todo.document import Document, bytes_of, document_of, tree
from decodetop.todo.reading import AddAttempt, AddEvidence, AddTodo, Attempt, EditTodo, Evidence, MoveTodo, StatusChange
from decodetop.todo.view import todo_of, todos_of

NOW_NS = 1_796_000_000 * SECOND_NS + 123_456_789
STAMP = "2026-11-30T00:53:20.123Z"


def listed(*contents: str, **of_first: Any) -> Document:
    document = Document()
    for number, content in enumerate(contents):
        document, _ = model.add(document, AddTodo(content=content, **(of_first if number == 0 else {})), NOW_NS)
    return document


def order(document: Document) -> list[str]:
    return [f"{'.' * depth}{item['content']}" for item, depth in tree(document.items)]


def test_an_added_item_has_what_was_said_and_when() -> None:
    command = AddTodo(
        content=" profile\n decode ", priority="high", status="doing", notes="n", hypothesis="h", expected="e"
    )
    document, id = model.add(Document(), command, NOW_NS)
    assert document.items == (
        {
            "id": "t1",
            "content": "profile decode",
            "status": "in_progress",
            "priority": "high",
            "notes": "n",
            "hypothesis": "h",
            "expected": "e",
            "status_history": [{"status": "in_progress", "at": STAMP}],
        },
    )
    assert id == "t1"


def test_ids_are_not_given_again_after_the_last_item_went() -> None:
    document = listed("a", "b")
    shorter = Document(fields=document.fields, items=document.items[:1])
    assert model.add(document_of({**shorter.fields, "todos": list(shorter.items)}), AddTodo(content="c"), 0)[1] == "t3"


@pytest.mark.parametrize("words", ["", " \n\t"])
def test_an_item_needs_words(words: str) -> None:
    with pytest.raises(UsageError, match="needs words"):
        model.add(Document(), AddTodo(content=words), 0)


def test_a_new_item_goes_behind_the_one_named_and_its_parts() -> None:
    document = listed("a", "b")
    document, _ = model.add(document, AddTodo(content="a1", parent="t1"), 0)
    document, _ = model.add(document, AddTodo(content="between", after_id="t1"), 0)
    document, _ = model.add(document, AddTodo(content="a2", after_id="t3"), 0)
    document, _ = model.add(document, AddTodo(content="end", after_id="t99"), 0)
    assert order(document) == ["a", ".a1", ".a2", "between", "b", "end"]


def test_an_edit_changes_what_it_names_and_writes_the_time_of_a_status() -> None:
    document = listed("a", priority="low", notes="n")
    document = model.edit(
        document, EditTodo(id="t1", status="completed", notes="", reason="faster"), NOW_NS + SECOND_NS
    )
    (item,) = document.items
    assert item["status_history"] == [
        {"status": "pending", "at": STAMP},
        {"status": "completed", "at": "2026-11-30T00:53:21.123Z"},
    ]
    assert "notes" not in item and (item["reason"], item["priority"], item["content"]) == ("faster", "low", "a")
    again = model.edit(document, EditTodo(id="t1", status="completed"), NOW_NS)
    assert again.items == document.items


def test_what_an_item_must_have_cannot_be_taken_away() -> None:
    document = listed("a")
    for command in (EditTodo(id="t1", content=" "), EditTodo(id="t1", status="")):
        with pytest.raises(UsageError):
            model.edit(document, command, 0)


def test_editing_a_field_settles_its_conflict() -> None:
    told = [{"field": "content", "theirs": "b"}, {"field": "status", "theirs": "completed"}]
    document = document_of([{"id": "t1", "content": "a", "conflicts": told}])
    document = model.edit(document, EditTodo(id="t1", content="c"), 0)
    assert document.items[0]["conflicts"] == told[1:]
    document = model.edit(document, EditTodo(id="t1", status="completed"), 0)
    assert "conflicts" not in document.items[0]


@pytest.mark.parametrize(
    "act",
    [
        lambda document: model.edit(document, EditTodo(id="t9", content="x"), 0),
        lambda document: model.edit(document, EditTodo(id="t1", blocked_by=("t9",)), 0),
        lambda document: model.move(document, MoveTodo(id="t9", by=1)),
        lambda document: model.attempt(document, AddAttempt(id="t9", change="x", outcome="failed"), 0),
        lambda document: model.evidence(document, AddEvidence(id="t9", kind="run", ref="1"), 0),
    ],
)
def test_an_unknown_id_is_usage(act: Any) -> None:
    with pytest.raises(UsageError, match="no item 't9'"):
        act(listed("a"))


@pytest.mark.parametrize(
    ("id", "by", "expected"),
    [
        ("t1", 1, ["b", "a", ".a1", ".a2", "c"]),
        ("t1", 99, ["b", "c", "a", ".a1", ".a2"]),
        ("t3", -1, ["a", ".a1", ".a2", "c", "b"]),
        ("t3", -99, ["c", "a", ".a1", ".a2", "b"]),
        ("t5", -1, ["a", ".a2", ".a1", "b", "c"]),
        ("t5", 1, ["a", ".a1", ".a2", "b", "c"]),
        ("t2", 0, ["a", ".a1", ".a2", "b", "c"]),
    ],
)
def test_an_item_moves_among_its_siblings_with_its_parts(id: str, by: int, expected: list[str]) -> None:
    document = listed("a", "b", "c")
    for content in ("a1", "a2"):
        document, _ = model.add(document, AddTodo(content=content, parent="t1"), 0)
    moved = model.move(document, MoveTodo(id=id, by=by))
    assert order(moved) == expected
    assert sorted(moved.ids) == sorted(document.ids)


def test_a_circle_of_parents_and_a_missing_parent_show_every_item_once() -> None:
    parents = {"a": "b", "b": "c", "c": "a", "d": "a", "e": "zz", "f": "f"}
    document = document_of([{"id": id, "content": id, "parent": parent} for id, parent in parents.items()])
    assert sorted(line.strip(".") for line in order(document)) == sorted(parents)


def test_attempts_and_evidence_are_read_back_with_their_times() -> None:
    document = listed("a", status="in_progress")
    tried = AddAttempt(id="t1", change="trtllm_mla", outcome="failed", reason="qk_nope_head_dim", links=("run 3",))
    document = model.attempt(document, tried, NOW_NS)
    document = model.evidence(document, AddEvidence(kind="run", ref="4", summary="51.7 tok/s"), NOW_NS)
    document = model.evidence(document, AddEvidence(id="t1", kind="run", ref="4", summary="said twice"), NOW_NS)
    (todo,) = todos_of(document.items)
    ms_ns = NOW_NS // 1_000_000 * 1_000_000
    assert todo.attempts == (
        Attempt(change="trtllm_mla", outcome="failed", reason="qk_nope_head_dim", links=("run 3",), wall_ns=ms_ns),
    )
    assert todo.evidence == (Evidence(kind="run", ref="4", summary="51.7 tok/s", wall_ns=ms_ns),)
    assert todo.status_history == (StatusChange(status="in_progress", wall_ns=ms_ns),)
    assert todo.extra == {}


def test_evidence_with_nothing_in_progress_goes_nowhere() -> None:
    document = listed("a")
    assert model.evidence(document, AddEvidence(kind="run", ref="4"), 0) is document


def test_fields_of_an_odd_shape_are_kept_and_shown_as_extra() -> None:
    odd = {"attempts": "none yet", "evidence": [1], "notes": 5, "status_history": [{"status": "x"}], "mine": [1]}
    document = document_of([{"id": "t1", "content": "a", "priority": 2, **odd}])
    todo = todo_of(document.items[0])
    assert (todo.attempts, todo.notes, todo.priority) == ((), None, "2")
    assert todo.extra == {**odd}
    document = model.attempt(document, AddAttempt(id="t1", change="x", outcome="worked"), NOW_NS)
    assert document.items[0]["attempts"][0] == "none yet" and len(document.items[0]["attempts"]) == 2


def test_undo_and_redo() -> None:
    undo, steps = model.Undo(), [Document(), listed("a"), listed("a", "b")]
    for before, after in itertools.pairwise(steps):
        undo = undo.record(before, after)
    now = steps[-1]
    undo, now = undo.undo(now)
    assert order(now) == ["a"]
    undo, now = undo.undo(now)
    assert order(now) == []
    undo, now = undo.undo(now)
    assert order(now) == [] and (len(undo.done), len(undo.undone)) == (0, 2)
    undo, now = undo.redo(now)
    undo, now = undo.redo(now)
    assert order(now) == ["a", "b"] and now.items == steps[-1].items
    undo, now = undo.redo(now)
    assert order(now) == ["a", "b"]


def test_a_new_edit_ends_redo() -> None:
    undo = model.Undo().record(Document(), listed("a"))
    undo, _ = undo.undo(listed("a"))
    assert undo.record(Document(), listed("b")).undone == ()


def test_undo_leaves_edits_made_elsewhere_since() -> None:
    before = listed("a", "b")
    after = model.edit(before, EditTodo(id="t1", status="completed"), NOW_NS)
    elsewhere = model.edit(after, EditTodo(id="t1", content="a, said better"), NOW_NS)
    elsewhere = model.edit(elsewhere, EditTodo(id="t2", status="cancelled"), NOW_NS)
    elsewhere, _ = model.add(elsewhere, AddTodo(content="c"), NOW_NS)
    _, now = model.Undo().record(before, after).undo(elsewhere)
    assert [(item["content"], item["status"]) for item in now.items] == [
        ("a, said better", "pending"),
        ("b", "cancelled"),
        ("c", "pending"),
    ]
    assert len(now.items[0]["status_history"]) == 1
    assert not any("conflicts" in item for item in now.items)


def test_undo_is_bounded() -> None:
    undo = model.Undo()
    for _ in range(model.UNDO_DEPTH + 5):
        undo = undo.record(Document(), listed("a"))
    assert len(undo.done) == model.UNDO_DEPTH


def test_closed_without_a_word_of_why() -> None:
    closed = {"id": "t1", "content": "a", "status": "completed"}
    assert model.closed_without_why(closed)
    assert not model.closed_without_why({**closed, "status": "pending"})
    for name in ("evidence", "attempts", "reason", "notes"):
        assert not model.closed_without_why({**closed, name: ["x"]})


@pytest.mark.parametrize(
    ("stamp", "wall_ns"),
    [
        (STAMP, NOW_NS // 1_000_000 * 1_000_000),
        ("2026-11-30T00:53:20", 1_796_000_000 * SECOND_NS),
        ("2026-11-30T01:53:20+01:00", 1_796_000_000 * SECOND_NS),
        ("yesterday", None),
        (5, None),
    ],
)
def test_stamps(stamp: Any, wall_ns: int | None) -> None:
    assert wall_ns_of(stamp) == wall_ns
    if stamp == STAMP:
        assert stamp_of(NOW_NS) == STAMP


def test_the_file_is_written_the_same_for_the_same_list() -> None:
    document = listed("ü", "b")
    assert bytes_of(document) == bytes_of(listed("ü", "b"))
    assert bytes_of(document).decode().startswith('{\n  "schema": 1,\n  "next_id": 3,\n  "todos": [')


def test_an_item_becomes_a_part_of_another_and_comes_out_behind_it() -> None:
    document = listed("a", "b", "c", "d")
    document = model.edit(document, EditTodo(id="t2", parent="t1"), NOW_NS)
    document = model.edit(document, EditTodo(id="t3", parent="t1"), NOW_NS)
    assert [(item["id"], depth) for item, depth in tree(document.items)] == [("t1", 0), ("t2", 1), ("t3", 1), ("t4", 0)]
    document = model.edit(document, EditTodo(id="t2", parent=""), NOW_NS)
    assert [(item["id"], depth) for item, depth in tree(document.items)] == [("t1", 0), ("t3", 1), ("t2", 0), ("t4", 0)]
    assert "parent" not in (document.get("t2") or {})


@pytest.mark.parametrize("parent", ["t1", "t2", "t9"])
def test_an_item_is_no_part_of_itself_nor_of_its_parts_nor_of_nothing(parent: str) -> None:
    document = model.edit(listed("a", "b"), EditTodo(id="t2", parent="t1"), NOW_NS)
    with pytest.raises(UsageError):
        model.edit(document, EditTodo(id="t1", parent=parent), NOW_NS)


def test_an_item_waits_for_others_until_they_are_closed_and_never_for_itself() -> None:
    document = model.edit(listed("a", "b"), EditTodo(id="t2", blocked_by=("t1", "t1")), NOW_NS)
    assert [(todo.blocked_by, todo.blocked) for todo in todos_of(document.items)] == [((), False), (("t1",), True)]
    document = model.edit(document, EditTodo(id="t1", status="completed"), NOW_NS)
    assert not todos_of(document.items)[1].blocked
    with pytest.raises(UsageError):
        model.edit(document, EditTodo(id="t2", blocked_by=("t2",)), NOW_NS)
