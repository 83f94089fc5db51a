"""The log's file: only appended to, by turns, and a killed writer costs at most its last line."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop.core.clock import SECOND_NS
from decodetop.errors import DataError
from decodetop.log import store as store_module
from decodetop.log.reading import Entry
from decodetop.log.store import LogStore, in_order
from support.killed import at_each_call, at_random

T_NS = 1_796_000_000 * SECOND_NS


def note(text: str, second: float = 0) -> Entry:
    return Entry(wall_ns=T_NS + int(second * SECOND_NS), kind="note", text=text)


def run(number: int, second: float = 0) -> Entry:
    at = T_NS + int(second * SECOND_NS)
    return Entry(wall_ns=at, kind="run", text=f"#{number}", ref=str(number), key=f"run:{number}")


def finding(second: float, kind: str = "finding") -> Entry:
    return Entry(wall_ns=T_NS + int(second * SECOND_NS), kind=kind, text="hot", key=f"{kind}:thermal")


def held(folder: Path) -> list[Entry]:
    store = LogStore(folder)
    store.read()
    return store.entries


def texts(folder: Path) -> list[str]:
    return [entry.text for entry in held(folder)]


def test_no_file_is_an_empty_log_and_reading_makes_none(tmp_path: Path) -> None:
    assert held(tmp_path / "inv") == [] and not (tmp_path / "inv").exists()


def test_what_is_appended_comes_back_and_each_line_stands_for_itself(tmp_path: Path) -> None:
    one = Entry(wall_ns=T_NS, kind="server", text="restarted", ref="http://x", key="k", data={"flags": {"a": "1"}})
    LogStore(tmp_path / "inv").append([one, note("two", 1)])
    assert held(tmp_path / "inv") == [one, note("two", 1)]
    lines = [json.loads(line) for line in (tmp_path / "inv" / "log.ndjson").read_bytes().splitlines()]
    assert [line["schema"] for line in lines] == [1, 1]
    assert lines[1] == {"schema": 1, "at": "2026-11-30T00:53:21.000Z", "kind": "note", "text": "two"}


@given(st.lists(st.text(max_size=40), max_size=5))
def test_any_words_come_back_as_text_that_can_be_encoded(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    LogStore(folder).append([note(word, at) for at, word in enumerate(words)])
    assert texts(folder) == [word.encode("utf-8", "replace").decode() for word in words]


def test_one_thing_is_logged_once_by_however_many_processes(tmp_path: Path) -> None:
    one, other = LogStore(tmp_path), LogStore(tmp_path)
    one.append([run(1), run(1, 99), finding(0)])
    other.append([run(1), run(2), finding(3), note("a"), note("a")])
    one.append([finding(14), finding(60), finding(2, "cleared")])
    assert [(entry.kind, entry.text) for entry in held(tmp_path)] == [
        ("run", "#1"),
        ("finding", "hot"),
        ("run", "#2"),
        ("note", "a"),
        ("note", "a"),
        ("finding", "hot"),
        ("cleared", "hot"),
    ]


def test_only_what_is_new_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = LogStore(tmp_path), LogStore(tmp_path)
    store.append([note("a")])
    assert other.read() and not other.read()
    store.append([note("b")])
    sizes: list[int] = []
    real = store_module._all_of
    monkeypatch.setattr(store_module, "_all_of", lambda *args: sizes.append(args[2]) or real(*args))
    assert other.read() and [entry.text for entry in other.entries] == ["a", "b"]
    assert sizes == [(tmp_path / "log.ndjson").stat().st_size // 2]


def test_a_log_that_was_put_in_the_place_of_the_old_one_is_read_from_its_beginning(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    store.append([note("a"), note("b")])
    (tmp_path / "log.ndjson").unlink()
    assert store.read() and store.entries == []
    LogStore(tmp_path).append([note("c")])
    assert store.read() and [entry.text for entry in store.entries] == ["c"]


@pytest.mark.parametrize(
    "junk", [b"{", b"not json\n", b"[1]\n", b'{"at": 1}\n', b"\xff\xfe\n", b"\n\n", b"[" * 9999 + b"\n"]
)
def test_lines_that_are_none_are_left_and_passed_over(tmp_path: Path, junk: bytes) -> None:
    LogStore(tmp_path).append([note("a")])
    path = tmp_path / "log.ndjson"
    path.write_bytes(path.read_bytes() + junk)
    LogStore(tmp_path).append([note("b")])
    assert texts(tmp_path) == ["a", "b"] and junk in path.read_bytes()


def test_a_last_line_without_its_end_is_whole_once_somebody_writes_behind_it(tmp_path: Path) -> None:
    LogStore(tmp_path).append([note("a"), note("b")])
    path = tmp_path / "log.ndjson"
    path.write_bytes(path.read_bytes()[:-1])
    LogStore(tmp_path).append([note("c")])
    assert texts(tmp_path) == ["a", "b", "c"]


def test_a_later_schema_is_shown_and_kept(tmp_path: Path) -> None:
    line = b'{"schema": 9, "at": "2026-11-30T00:00:00Z", "kind": "dream", "text": "x", "more": [1]}\n'
    (tmp_path / "log.ndjson").write_bytes(line)
    LogStore(tmp_path).append([note("b")])
    assert texts(tmp_path) == ["x", "b"] and (tmp_path / "log.ndjson").read_bytes().startswith(line)


def test_a_disk_that_fills_up_in_the_middle_of_a_line_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LogStore(tmp_path)
    store.append([note("a")])
    before = (tmp_path / "log.ndjson").read_bytes()
    real, left = os.write, [10]

    def write(handle: int, data: memoryview) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(handle, data[: left[0]])
        left[0] -= written
        return written

    monkeypatch.setattr(store_module.os, "write", write)
    with pytest.raises(DataError, match="No space left on device") as caught:
        store.append([note("b")])
    assert "free some space" in caught.value.hint
    monkeypatch.undo()
    assert (tmp_path / "log.ndjson").read_bytes() == before
    store.append([note("b")])
    assert texts(tmp_path) == ["a", "b"]


def test_a_pipe_in_its_place_is_a_word_and_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.ndjson")
    with pytest.raises(DataError, match="is no file"):
        LogStore(tmp_path).read()
    with pytest.raises(DataError):
        LogStore(tmp_path).append([note("a")])


def test_a_folder_in_its_place_is_a_word(tmp_path: Path) -> None:
    (tmp_path / "log.ndjson").mkdir()
    with pytest.raises(DataError, match=r"log\.ndjson"):
        LogStore(tmp_path).append([note("a")])


def test_what_was_told_late_stands_where_it_belongs() -> None:
    assert [entry.text for entry in in_order([note("b", 2), note("a", 1), note("c", 2)])] == ["a", "b", "c"]


LOG = """
from decodetop.log.reading import Entry
from decodetop.log.store import LogStore

def held():
    store = LogStore(folder)
    store.read()
    return [entry.text for entry in store.entries]

def write(word):
    LogStore(folder).append([Entry(wall_ns=0, kind="note", text=word)])
"""
BOTH = f"""
{LOG}
from decodetop.todo.model import add
from decodetop.todo.reading import AddTodo
from decodetop.todo.store import TodoStore

log = write

def write(word):
    if word.startswith("log"):
        log(word)
    else:
        TodoStore(folder).update(lambda document: add(document, AddTodo(content=word), 0)[0])
"""


def test_log_and_checklist_of_writers_killed_at_random_moments(tmp_path: Path) -> None:
    """Two writers at once, killed: what either said was written is there, whole and once."""
    told = at_random(tmp_path, BOTH, writers=2, seed=11, kinds=2)
    items = [item["content"] for item in json.loads((tmp_path / "todo.json").read_bytes())["todos"]]
    log = texts(tmp_path)
    assert told <= {*items, *log} and len(told) > 16
    assert len(set(items)) == len(items) and len(set(log)) == len(log)
    for line in (tmp_path / "log.ndjson").read_bytes().splitlines()[:-1]:
        assert json.loads(line)["schema"] == 1 or not line


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_killed_at_each_system_call_of_an_append(tmp_path: Path) -> None:
    """A machine may die with half of a line on the disk."""
    points, _ = at_each_call(tmp_path, LOG, ("open", "write", "fsync", "ftruncate", "close", "mkdir"), half=True)
    assert points > 5, "the append is made of more calls than that: the counting does not reach it"
