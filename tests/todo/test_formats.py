"""Checklists of other tools: what is read, what is said, and that it comes back as it went out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodetop.errors import DataError, UsageError
from decodetop.todo.document import Document, Item, document_of, same
from decodetop.todo.formats import FORMATS, parse, render, todowrite
from decodetop.todo.importing import import_block

FEW = settings(max_examples=60, deadline=None)
# words as people and agents type them, with what the formats use as signs
WORD = st.one_of(
    st.sampled_from(
        ["x", "(A)", "[x]", "- [ ]", "<!--", "-->", "2026-11-30", "id:t9", "pri:A", "status:x", "`--tp 2`"]
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=8).filter(str.strip),
)
CONTENT = st.lists(WORD, min_size=1, max_size=4).map(lambda words: " ".join(" ".join(words).split())).filter(bool)
STATUS = st.sampled_from(["pending", "in_progress", "completed", "cancelled", "blocked", "on hold", ">", "!"])
PRIORITY = st.sampled_from([None, "high", "medium", "low", "urgent now"])


@st.composite
def lists(draw: st.DrawFn) -> tuple[Item, ...]:
    items: list[Item] = []
    for number, content in enumerate(draw(st.lists(CONTENT, max_size=5))):
        item: Item = {"id": f"t{number + 1}", "content": content, "status": draw(STATUS)}
        priority = draw(PRIORITY)
        if priority:
            item["priority"] = priority
        if items and draw(st.booleans()):
            item["parent"] = draw(st.sampled_from(items))["id"]
        items.append(item)
    return tuple(items)


def facts(items: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(item.get(name) for name in names) for item in items]


def content_and_status(text: str, format: str = "auto") -> list[tuple[Any, ...]]:
    return facts(parse(text, format).items, "content", "status")


@FEW
@given(lists())
def test_json_comes_back_whole(items: tuple[Item, ...]) -> None:
    if items:
        assert sorted(map(str, parse(render(items)).items)) == sorted(map(str, items))


@FEW
@given(lists(), st.sampled_from(["json", "markdown", "todotxt"]))
def test_an_export_read_again_has_the_same_items(items: tuple[Item, ...], format: str) -> None:
    text = render(items, format)
    if not items:
        return
    names = ("id", "content", "status", "priority")
    assert sorted(facts(parse(text, format).items, *names), key=str) == sorted(facts(items, *names), key=str)


@FEW
@given(lists(), st.sampled_from(FORMATS))
def test_importing_an_own_export_changes_nothing(items: tuple[Item, ...], format: str) -> None:
    if not items:
        return
    if format == "taskwarrior":
        items = tuple({**item, "uuid": f"u-{item['id']}"} for item in items)
    document = Document(items=items)
    after, imported = import_block(document, parse(render(items, format), format), 0)
    assert same(after.items, document.items)
    assert (imported.added, imported.changed) == ((), ())


@FEW
@given(lists())
def test_markdown_keeps_the_nesting(items: tuple[Item, ...]) -> None:
    if not items:
        return
    block = parse(render(items, "markdown"))
    after, _ = import_block(Document(), block, 0)
    wanted = {item["id"]: item.get("parent") for item in items}
    assert {item["id"]: item.get("parent") for item in after.items} == wanted


@FEW
@given(st.text(max_size=60), st.sampled_from(["auto", *FORMATS]))
def test_any_text_is_read_or_refused_in_words(text: str, format: str) -> None:
    try:
        block = parse(text, format)
    except DataError as error:
        assert error.message
    else:
        assert all(isinstance(item["content"], str) and item["status"] for item in block.items)


BLOCK = (
    '[{"content": "Profile", "status": "in_progress", "priority": "high", "id": "1"}, '
    '{"content": "Floor", "status": "pending"}]'
)


@pytest.mark.parametrize(
    "text",
    [
        BLOCK,
        f'{{"todos": {BLOCK}}}',
        f'{{"explanation": "x", "plan": {BLOCK.replace("content", "step")}}}',
        f"Here is the plan:\n\n```json\n{BLOCK}\n```\nShall I go on?",
        f"● TodoWrite(todos={BLOCK}) [ok] [2026-11-30]",
        json.dumps({"type": "tool_use", "name": "TodoWrite", "input": {"todos": json.loads(BLOCK)}}),
        json.dumps({"type": "function_call", "arguments": json.dumps({"plan": json.loads(BLOCK)})}),
        "\n".join(json.dumps(entry) for entry in json.loads(BLOCK)),
        "\ufeff" + BLOCK,
        BLOCK.replace("}]", "},]"),
    ],
)
def test_todowrite_blocks_as_they_are_pasted(text: str) -> None:
    block = parse(text)
    assert (block.format, block.remarks) == ("json", ())
    assert facts(block.items, "content", "status") == [("Profile", "in_progress"), ("Floor", "pending")]


@pytest.mark.parametrize("cut", [1, 5, 20, 40])
@pytest.mark.parametrize("before", ["", '{"schema": 1, "todos": ', "the log says [1] and {x}: "])
def test_a_truncated_array_is_read_up_to_its_last_whole_item_and_said_so(before: str, cut: int) -> None:
    block = parse(before + BLOCK[:-cut])
    whole = 2 if cut == 1 else 1
    assert len(block.items) == whole
    assert block.remarks == (f"the list is cut off: its first {whole} whole items are read",)


def test_of_several_lists_the_last_one_is_read_and_said_so() -> None:
    block = parse(f"{BLOCK}\nlater\n" + BLOCK.replace("in_progress", "completed"))
    assert facts(block.items, "status") == [("completed",), ("pending",)]
    assert block.remarks == ("2 lists in the text: the last one is read",)


@pytest.mark.parametrize(
    ("entry", "content", "status"),
    [
        ({"subject": "a", "description": "b", "status": "completed"}, "a", "completed"),
        ({"step": "a", "status": "in-progress"}, "a", "in_progress"),
        ({"title": "a", "status": "closed"}, "a", "completed"),
        ({"text": "a", "done": True}, "a", "completed"),
        ({"task": "a", "completed": False}, "a", "pending"),
        ({"content": "a", "status": "Cancelled"}, "a", "cancelled"),
        ({"content": "a", "status": "needs review"}, "a", "needs review"),
        ({"content": "a", "status": None}, "a", "pending"),
        ("a", "a", "pending"),
        (7, "7", "pending"),
        ({"status": "pending"}, "", "pending"),
    ],
)
def test_foreign_items_in_our_shape(entry: Any, content: str, status: str) -> None:
    (item,) = document_of([entry]).items
    assert (item["id"], item["content"], item["status"]) == ("t1", content, status)


def test_a_foreign_description_becomes_the_notes() -> None:
    (item,) = document_of([{"subject": "a", "description": "b", "id": 4}]).items
    assert (item["id"], item["notes"]) == ("4", "b")


def test_two_items_of_one_id_are_two_items() -> None:
    document = document_of([{"id": "t2", "content": "a"}, {"id": "t2", "content": "b"}, {"content": "c"}])
    assert facts(document.items, "id", "content") == [("t2", "a"), ("t3", "b"), ("t4", "c")]


MARKDOWN = """\
# Plan [draft]

* [x] Done
- [X] Done too
1. [ ] Open
   - [/] Below, as Obsidian marks it
       and its second line
     > a note
   - [~] Below too
+ [-] Given up
- [>] Sent on
- [doing] A word in the box
- [a link](http://x) is no item
- plain bullet

```
- [ ] in a fence
```
"""


def test_markdown_checklists() -> None:
    block = parse(MARKDOWN)
    assert facts(block.items, "content", "status") == [
        ("Done", "completed"),
        ("Done too", "completed"),
        ("Open", "pending"),
        ("Below, as Obsidian marks it and its second line", "in_progress"),
        ("Below too", "in_progress"),
        ("Given up", "cancelled"),
        ("Sent on", ">"),
        ("A word in the box", "in_progress"),
    ]
    assert block.depths == (0, 0, 0, 1, 1, 0, 0, 0)
    assert block.items[3]["notes"] == "a note"


def test_a_checklist_only_in_a_fence_is_read() -> None:
    assert content_and_status("```md\n- [ ] a\n```\n") == [("a", "pending")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "● Update Todos\n  ⎿  ☒ Read trace\n     ☐ Write it up\n",
            [("Read trace", "completed"), ("Write it up", "pending")],
        ),
        ("[✓] a\n[•] b\n[ ] c\n", [("a", "completed"), ("b", "in_progress"), ("c", "pending")]),
        ("> - [x] quoted\n", [("quoted", "completed")]),
    ],
)
def test_checklists_as_chat_tools_print_them(text: str, found: list[tuple[str, str]]) -> None:
    assert content_and_status(text) == found


def test_todo_txt() -> None:
    block = parse(
        "(A) 2026-11-01 profile decode +sglang @box due:2026-12-01\n"
        "x 2026-11-30 2026-11-02 read trace pri:B\n"
        "\n"
        "(F) write up\n"
        "xylophone\n"
    )
    assert block.format == "todotxt"
    assert facts(block.items, "content", "status", "priority", "todotxt_created", "todotxt_completed") == [
        ("profile decode +sglang @box due:2026-12-01", "pending", "high", "2026-11-01", None),
        ("read trace", "completed", "medium", "2026-11-02", "2026-11-30"),
        ("write up", "pending", "low", None, None),
        ("xylophone", "pending", None, None, None),
    ]
    document, _ = import_block(Document(), block, 0)
    assert render(document.items, "todotxt") == (
        "(A) 2026-11-01 profile decode +sglang @box due:2026-12-01 id:t1\n"
        "x 2026-11-30 2026-11-02 read trace id:t2 pri:B\n"
        "(F) write up id:t3\n"
        "xylophone id:t4\n"
    )


TASK = {
    "id": 3,
    "description": "profile",
    "entry": "20141018T050231Z",
    "modified": "20141018T050231Z",
    "priority": "H",
    "project": "sglang",
    "start": "20141019T050231Z",
    "status": "pending",
    "uuid": "d67fce70-c0b6-43c5-affc-a21e64567d40",
    "annotations": [{"entry": "20141018T050231Z", "description": "see run 4"}],
    "urgency": 12.4,
}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([TASK, {**TASK, "uuid": "b", "status": "deleted"}]),
        f"{json.dumps(TASK)},\n{json.dumps({**TASK, 'uuid': 'b', 'status': 'deleted'})}\n",
    ],
)
def test_taskwarrior(text: str) -> None:
    block = parse(text)
    assert block.format == "taskwarrior"
    assert facts(block.items, "content", "status", "priority", "notes", "project", "id", "urgency") == [
        ("profile", "in_progress", "high", "see run 4", "sglang", None, None),
        ("profile", "cancelled", "high", "see run 4", "sglang", None, None),
    ]
    document, _ = import_block(Document(), block, 0)
    tasks = json.loads(render(document.items, "taskwarrior"))
    derived = {"id", "urgency"}
    assert tasks[0] == {name: value for name, value in TASK.items() if name not in derived}
    again, imported = import_block(document, parse(json.dumps([{**TASK, "status": "completed"}])), 0)
    assert (imported.changed, again.items[0]["status"]) == (("t1",), "completed")


def test_the_same_block_again_changes_statuses_only() -> None:
    document, first = import_block(Document(), parse(BLOCK), 0)
    assert (first.added, str(first)) == (("1", "t1"), "2 added, 0 changed, 0 as they were")
    document = Document(items=tuple({**item, "notes": "mine", "priority": "low"} for item in document.items))
    again, second = import_block(document, parse(BLOCK), 5)
    assert same(again.items, document.items) and second.unchanged == 2
    later, third = import_block(document, parse(BLOCK.replace("in_progress", "completed")), 1_000_000_000)
    assert third.changed == ("1",)
    assert facts(later.items, "status", "notes", "priority") == [
        ("completed", "mine", "low"),
        ("pending", "mine", "low"),
    ]
    assert later.items[0]["status_history"][-1] == {"status": "completed", "at": "1970-01-01T00:00:01.000Z"}


def test_items_without_ids_are_matched_by_words_and_their_number() -> None:
    text = '[{"content": "bench", "status": "completed"}, {"content": "BENCH ", "status": "pending"}]'
    document, _ = import_block(Document(), parse(text), 0)
    again, imported = import_block(document, parse(text.replace("pending", "completed")), 0)
    assert imported.changed == ("t2",) and len(again.items) == 2


def test_an_edited_export_edits_and_a_new_plan_with_old_ids_adds() -> None:
    document, _ = import_block(
        Document(), parse('[{"id": "1", "content": "Profile SGLang decode", "status": "pending"}]'), 0
    )
    edited = '[{"id": "1", "content": "Profile SGLang decode at 8 streams", "status": "pending"}]'
    after, imported = import_block(document, parse(edited), 0)
    assert facts(after.items, "id", "content") == [("1", "Profile SGLang decode at 8 streams")]
    assert imported.changed == ("1",)
    other = '[{"id": "1", "content": "Upgrade the driver", "status": "pending"}]'
    after, imported = import_block(document, parse(other), 0)
    assert facts(after.items, "id", "content") == [("1", "Profile SGLang decode"), ("t1", "Upgrade the driver")]
    assert imported.remarks == ("id 1 is another item's here: imported as t1",)


@pytest.mark.parametrize("text", ["", "hello", "[]]", "{}", '{"text": "no status", "type": "text"}', "[1] a footnote"])
def test_a_text_without_a_list_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="no checklist in the text"):
        parse(text)


def test_an_unknown_format_is_usage() -> None:
    with pytest.raises(UsageError, match="unknown checklist format 'xml'"):
        render((), "xml")
    with pytest.raises(UsageError):
        parse("x", "xml")


def test_lines_that_are_no_items_are_told_to_who_imports_them() -> None:
    text = "# Plan\n\nbuy milk\n- [ ] first\n  more words\n- plain bullet\n---\n- [x] second\n"
    block = parse(text)
    assert block.passed == ("buy milk", "- plain bullet") and block.remarks == ()
    _, imported = import_block(Document(), block, 0)
    assert str(imported) == "2 added, 0 changed, 0 as they were; 2 lines are no items and were left out: buy milk"
    assert "left out" not in str(import_block(Document(), parse("# Plan\n- [ ] first\n"), 0)[1])


def test_a_text_that_nests_too_deep_is_passed_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    class Counting(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            tries.append(idx)
            assert len(tries) < 100, "every bracket is tried"
            return super().raw_decode(s, idx)

    monkeypatch.setattr(todowrite, "_DECODER", Counting())
    deep = '[{"traceEvents":[{"args":' + '{"a":' * 100_000
    items = '[{"content": "profile", "status": "pending"}]'
    block = parse(f"{deep}\n{items}\n{deep}")
    assert block is not None and [item["content"] for item in block.items] == ["profile"]
