"""The checklist's file: nothing in it is lost, whoever writes it."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from decodetop.core import atomic
from decodetop.errors import DataError
from decodetop.todo.document import Document
from decodetop.todo.model import add
from decodetop.todo.question import read_question, write_question
from decodetop.todo.reading import AddTodo
from decodetop.todo.store import (
    EARLIER_ITEMS_KEPT,
    EARLIER_KEPT,
    BrokenFileError,
    Known,
    NewerSchemaError,
    TodoStore,
    salvaged,
)


def adding(content: str) -> Any:
    return lambda document: add(document, AddTodo(content=content), 0)[0]


def known(*versions: Document) -> Known:
    """As a screen knows it that wrote the last of these."""
    return Known(agreed=versions[-1], foreign=None, last=versions[-1], versions=versions)


def contents(store: TodoStore) -> list[str]:
    return [item["content"] for item in store.read().items]


def write(store: TodoStore, value: Any) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    store.path.parent.mkdir(parents=True, exist_ok=True)
    store.path.write_bytes(data)
    return data


def test_no_file_is_an_empty_list_and_the_folder_is_made_by_the_first_edit(tmp_path: Path) -> None:
    store = TodoStore(tmp_path / "a" / "b")
    assert store.read() == Document()
    assert not store.path.parent.exists()
    store.update(adding("profile"))
    assert contents(store) == ["profile"]


def test_fields_nobody_here_knows_are_kept_on_both_levels(tmp_path: Path) -> None:
    store = TodoStore(tmp_path)
    unknown = {"a": [1, 1.5, True, None, "ü", "\ud83d"], "big": 2**70}
    write(store, {"tool": unknown, "todos": [{"id": "x", "content": "c", "status": "odd", "deep": unknown}]})
    store.update(adding("more"))
    found = json.loads(store.path.read_bytes())
    assert found["tool"] == unknown
    assert found["todos"][0] == {"id": "x", "content": "c", "status": "odd", "deep": unknown}
    assert (found["schema"], found["next_id"]) == (1, 2)


def test_an_edit_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    store = TodoStore(tmp_path)
    data = write(store, [{"content": "pasted", "status": "in-progress"}])
    store.update(lambda document: document)
    assert store.path.read_bytes() == data


def test_mode_and_symbolic_link_stay(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "list.json"
    real.parent.mkdir()
    real.write_text("[]")
    real.chmod(0o640)
    store = TodoStore(tmp_path / "inv")
    store.path.parent.mkdir()
    store.path.symlink_to(real)
    store.update(adding("x"))
    assert store.path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert [item["content"] for item in json.loads(real.read_bytes())["todos"]] == ["x"]


def test_an_outside_edit_right_before_the_write_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TodoStore(tmp_path)
    store.update(adding("first"))
    real_fsync, outside = os.fsync, ["theirs"]

    def fsync(handle: int) -> None:
        real_fsync(handle)
        if outside:  # another program replaces the file while our new one lies ready
            whole = json.loads(store.path.read_bytes())
            whole["todos"].append({"id": "z", "content": outside.pop(), "status": "pending"})
            write(store, whole)

    monkeypatch.setattr(os, "fsync", fsync)
    store.update(adding("ours"))
    assert contents(store) == ["first", "theirs", "ours"]


def test_a_file_that_never_rests_ends_in_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TodoStore(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda handle: write(store, [{"content": os.urandom(4).hex()}]))
    with pytest.raises(DataError, match="keeps changing"):
        store.update(adding("ours"))


def test_writers_of_one_box_take_turns(tmp_path: Path) -> None:
    store = TodoStore(tmp_path)

    def work(name: str) -> None:
        for number in range(10):
            TodoStore(tmp_path).update(adding(f"{name}{number}"))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(contents(store)) == sorted(f"{name}{number}" for name in "abc" for number in range(10))
    assert len(set(store.read().ids)) == 30
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


BROKEN = [
    (b'{"todos": [{"content": "a"', "line 1, column 27"),
    (b"\xff\xfe", "not UTF-8 text at byte 0"),
    (b'"just text"', "it holds no list of items"),
    (b"[" * 100_000, "nested too deeply"),
]


@pytest.mark.parametrize(("data", "word"), BROKEN)
def test_a_broken_file_is_copied_aside_and_left_alone(tmp_path: Path, data: bytes, word: str) -> None:
    store = TodoStore(tmp_path)
    write(store, data)
    with pytest.raises(BrokenFileError, match=word):
        store.read()
    for _ in range(2):  # the same bytes are kept once
        with pytest.raises(BrokenFileError, match=r"todo\.json\.broken-1") as raised:
            store.update(adding("x"))
        assert word in raised.value.message
    assert store.path.read_bytes() == data
    assert (tmp_path / "todo.json.broken-1").read_bytes() == data
    assert not (tmp_path / "todo.json.broken-2").exists()


def test_other_broken_bytes_get_a_copy_of_their_own(tmp_path: Path) -> None:
    store = TodoStore(tmp_path)
    for number, data in enumerate((b"[1", b"[2"), 1):
        write(store, data)
        store.save(adding("x")(Document()), known(Document()), True)
        assert (tmp_path / f"todo.json.broken-{number}").read_bytes() == data
        assert contents(store) == ["x"]


def test_a_broken_file_is_not_overwritten_if_it_cannot_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TodoStore(tmp_path)
    data = write(store, b"[1")
    real_open = os.open

    def full(path: Any, *args: Any, **more: Any) -> int:
        if ".broken-" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_open(path, *args, **more)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(DataError, match="No space left on device"):
        store.save(adding("x")(Document()), known(Document()), True)
    assert store.path.read_bytes() == data


def test_whole_items_of_a_broken_file_can_be_shown() -> None:
    data = b'{"schema": 1, "todos": [{"id": "t4", "content": "a", "status": "completed"}, {"content": "b"}, {"cont'
    assert [(item["id"], item["content"]) for item in salvaged(data).items] == [("t4", "a"), ("t5", "b")]
    assert salvaged(b"nothing here") == Document()


@pytest.mark.parametrize("schema", [2, "one", True, None])
def test_another_schema_is_read_and_never_written(tmp_path: Path, schema: Any) -> None:
    store = TodoStore(tmp_path)
    data = write(store, {"schema": schema, "todos": [{"id": "t1", "content": "later"}]})
    assert contents(store) == ["later"]
    with pytest.raises(NewerSchemaError, match="leaves it alone"):
        store.update(adding("x"))
    assert store.path.read_bytes() == data


@pytest.mark.parametrize(
    ("code", "hint"),
    [(errno.ENOSPC, "free some space"), (errno.EACCES, "make the folder writable"), (errno.EIO, "use")],
)
@pytest.mark.parametrize("call", ["open", "write", "fsync"])
def test_a_write_that_fails_says_why_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, hint: str
) -> None:
    store = TodoStore(tmp_path)
    store.update(adding("kept"))
    data = store.path.read_bytes()

    def fail(*args: Any, **more: Any) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(DataError) as raised:
        store.update(adding("x"))
    monkeypatch.undo()
    assert os.strerror(code) in raised.value.message and str(tmp_path) in raised.value.message
    assert raised.value.hint.startswith(hint)
    assert store.path.read_bytes() == data
    assert not list(tmp_path.glob("*.tmp")) and not list(tmp_path.glob(".*.tmp"))


def test_a_folder_that_is_a_file_is_a_word(tmp_path: Path) -> None:
    (tmp_path / "inv").write_text("")
    with pytest.raises(DataError, match="can't write"):
        TodoStore(tmp_path / "inv").update(adding("x"))


def test_a_file_that_is_a_folder_is_a_word(tmp_path: Path) -> None:
    (tmp_path / "todo.json").mkdir()
    with pytest.raises(DataError, match="it is a folder"):
        TodoStore(tmp_path).read()


def test_a_link_to_itself_is_a_word(tmp_path: Path) -> None:
    (tmp_path / "todo.json").symlink_to(tmp_path / "todo.json")
    with pytest.raises(DataError):
        TodoStore(tmp_path).update(adding("x"))


def test_a_file_system_without_locks_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic.fcntl, "flock", no_locks)
    store = TodoStore(tmp_path)
    store.update(adding("x"))
    assert contents(store) == ["x"]


def test_an_empty_file_is_an_empty_list_unless_it_held_items_before(tmp_path: Path) -> None:
    store = TodoStore(tmp_path)
    write(store, b" \n")
    assert store.read() == Document()
    base = store.update(adding("x"))
    write(store, b"")
    with pytest.raises(BrokenFileError, match="it is empty"):
        store.save(adding("y")(base), known(base))
    assert store.path.read_bytes() == b""
    assert contents(TodoStore(tmp_path)) == ["x"], "who comes anew knows of them too"
    TodoStore(tmp_path).update(adding("z"))
    assert contents(store) == ["x", "z"]


def test_a_file_that_is_just_being_written_in_place_is_read_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TodoStore(tmp_path)
    whole = write(store, PLAN)
    reads, real = [b"", whole[:20]], TodoStore.read_bytes
    monkeypatch.setattr(TodoStore, "read_bytes", lambda self: reads.pop(0) if reads else real(self))
    store.update(adding("c"))
    assert contents(store) == ["a", "b", "c"] and not list(tmp_path.glob("*broken*"))


def test_a_file_gone_from_disk_is_written_again_with_all_it_held(tmp_path: Path) -> None:
    store = TodoStore(tmp_path)
    base = store.update(adding("x"))
    store.path.unlink()
    store.save(adding("y")(base), known(base))
    assert contents(store) == ["x", "y"]


def test_what_a_foreign_tool_left_out_is_put_back(tmp_path: Path) -> None:
    store = TodoStore(tmp_path)
    base = store.update(lambda document: add(document, AddTodo(content="x", notes="why"), 0)[0])
    write(store, [{"content": "x", "status": "completed"}])
    store.save(base, known(base))
    (item,) = store.read().items
    assert (item["id"], item["status"], item["notes"]) == ("t1", "completed", "why")


def test_the_question_is_kept_beside_the_list(tmp_path: Path) -> None:
    assert read_question(tmp_path) is None
    (tmp_path / "investigation.json").write_text('{"schema": 1, "owner": "me"}')
    write_question(tmp_path, " why\n 51 tok/s? ")
    assert read_question(tmp_path) == "why 51 tok/s?"
    assert json.loads((tmp_path / "investigation.json").read_bytes())["owner"] == "me"


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff"])
def test_a_broken_question_file_is_a_word_and_stays(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "investigation.json").write_bytes(data)
    with pytest.raises(DataError, match=r"investigation\.json"):
        write_question(tmp_path, "why?")
    assert (tmp_path / "investigation.json").read_bytes() == data


def test_what_a_foreign_tool_dropped_while_decodetop_was_away_is_put_back(tmp_path: Path) -> None:
    TodoStore(tmp_path).update(lambda document: add(document, AddTodo(content="x", notes="why"), 0)[0])
    TodoStore(tmp_path).update(adding("y"))
    data = write(TodoStore(tmp_path), [{"content": "y", "status": "completed"}, {"content": "new"}])
    (first, second) = TodoStore(tmp_path).read().items
    assert (first["id"], first["status"], second["id"]) == ("t2", "completed", "t3")
    assert TodoStore(tmp_path).path.read_bytes() == data, "reading writes nothing"
    TodoStore(tmp_path).update(adding("z"))
    assert [(item["id"], item["content"]) for item in TodoStore(tmp_path).read().items] == [
        ("t2", "y"),
        ("t3", "new"),
        ("t4", "z"),
    ]


def test_a_list_begun_anew_gets_nothing_of_the_old_one(tmp_path: Path) -> None:
    store = TodoStore(tmp_path)
    store.update(lambda document: add(document, AddTodo(content="Profile decode", notes="why"), 0)[0])
    write(store, [{"id": "t1", "content": "Upgrade the driver", "status": "pending"}])
    assert store.read().items == ({"id": "t1", "content": "Upgrade the driver", "status": "pending"},)
    store.path.unlink()
    assert store.read() == Document()
    store.update(adding("fresh"))
    assert [(item["id"], item["content"]) for item in store.read().items] == [("t1", "fresh")]


@pytest.mark.parametrize("left", [b"", b"[", b'"x"', b"[" * 100_000])
def test_a_broken_note_of_the_last_version_is_no_trouble(tmp_path: Path, left: bytes) -> None:
    store = TodoStore(tmp_path)
    store.update(adding("a"))
    (tmp_path / ".todo.json.last").write_bytes(left)
    store.update(adding("b"))
    assert contents(store) == ["a", "b"]


PLAN = [{"content": word, "status": "pending"} for word in ("a", "b")]


def test_writers_that_know_nothing_of_each_other_lose_nothing(tmp_path: Path) -> None:
    """An agent sends its whole list from memory, two commands come between, and a screen has not seen either."""
    store = TodoStore(tmp_path)
    write(store, PLAN)
    base = store.read()
    now, seen = store.save(adding("of the screen")(base), known(base))
    for word in ("first command", "second command"):
        store.update(adding(word))
        write(store, [{**PLAN[0], "status": "completed"}, PLAN[1]])
    saved, _ = store.save(adding("of the screen, later")(now), known(base, seen.theirs, now))
    assert sorted(item["content"] for item in saved.items) == [
        "a",
        "b",
        "first command",
        "of the screen",
        "of the screen, later",
        "second command",
    ]
    assert saved.items[0]["status"] == "completed" and len(set(saved.ids)) == 6
    assert contents(store) == [item["content"] for item in saved.items]


def test_an_item_an_agent_takes_out_of_its_own_list_is_out(tmp_path: Path) -> None:
    store = TodoStore(tmp_path)
    write(store, PLAN)
    store.update(adding("ours"))
    write(store, PLAN)
    store.update(adding("ours too"))
    write(store, PLAN[1:])
    assert contents(store) == ["b", "ours", "ours too"]


def test_a_list_read_before_the_last_commands_does_not_take_them_back(tmp_path: Path) -> None:
    """No screen is open: what was written between an agent's reading and its writing is remembered beside the file."""
    store = TodoStore(tmp_path)
    write(store, PLAN)
    for number in range(5):
        store.update(adding(f"before {number}"))
    read = [{name: item[name] for name in ("id", "content", "status")} for item in store.read().items]
    for number in range(3):
        store.update(adding(f"after {number}"))
    write(store, [{**read[0], "status": "completed"}, *read[1:], {"content": "of the agent", "status": "pending"}])
    assert set(contents(store)) == {
        "a", "b", *(f"before {number}" for number in range(5)), *(f"after {number}" for number in range(3)),
        "of the agent",
    }  # fmt: skip


def test_what_is_remembered_stays_small(tmp_path: Path) -> None:
    store = TodoStore(tmp_path)
    for number in range(60):
        store.update(adding(f"item {number}"))
    earlier = store.memory().earlier
    assert 1 <= len(earlier) <= EARLIER_KEPT
    assert sum(len(one.items) for one in earlier) <= EARLIER_ITEMS_KEPT
