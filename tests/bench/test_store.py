"""The store of runs: append-only, one file, never overwritten, nothing lost to a crash."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from decodetop.bench.reading import Run
from decodetop.bench.store import APPLICATION_ID, FILE, RunStore
from decodetop.errors import DataError
from support import states
from support.rights import without_rights


def run(tok_s: float = 50.0) -> Run:
    return msgspec.structs.replace(states.run(1, tok_s, 19.3), id=None)


def test_runs_come_back_newest_first_with_their_ids(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "new" / "folder")
    assert store.latest() == ()
    stored = [store.add(run(value)) for value in (1.0, 2.0, 3.0)]
    assert [one.id for one in stored] == [1, 2, 3]
    store.close()
    again = RunStore(tmp_path / "new" / "folder")
    assert list(again.latest()) == stored[::-1]
    assert [one.id for one in again.latest(2)] == [3, 2]
    assert again.get(2) == stored[1]
    with pytest.raises(DataError, match="no run 9"):
        again.get(9)
    again.close()


def test_baseline(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.add(run())
    store.add(run())
    assert store.baseline_id is None
    store.mark_baseline(1)
    store.mark_baseline(2)
    assert store.baseline_id == 2
    with pytest.raises(DataError):
        store.mark_baseline(3)
    store.mark_baseline(None)
    assert store.baseline_id is None
    store.close()


def test_a_stored_run_can_not_be_changed(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.add(run())
    store.close()
    with sqlite3.connect(tmp_path / FILE) as raw:
        for statement in ("UPDATE runs SET preset = 'x'", "DELETE FROM runs"):
            with pytest.raises(sqlite3.Error, match="append-only"):
                raw.execute(statement)
    raw.close()


def test_columns_can_be_queried(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.add(run(51.7))
    store.close()
    raw = sqlite3.connect(tmp_path / FILE)
    assert raw.execute("SELECT preset, streams, output_tok_s, model FROM runs").fetchall() == [
        ("single", 1, 51.7, "dense-8b")
    ]
    assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    raw.close()


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to look at" * 40, b"SQLite format 3\x00junk"]
)
def test_what_is_no_database_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(DataError, match=FILE) as caught:
        RunStore(tmp_path)
    assert "left as it is" in caught.value.hint
    assert (tmp_path / FILE).read_bytes() == content


def test_another_programs_database_is_left_as_it_is(tmp_path: Path) -> None:
    raw = sqlite3.connect(tmp_path / FILE)
    raw.execute("CREATE TABLE recipes (name TEXT)")
    raw.commit()
    raw.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(DataError, match=r"something else \(it has 'recipes'\)"):
        RunStore(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_newer_store_is_left_as_it_is(tmp_path: Path) -> None:
    RunStore(tmp_path).close()
    raw = sqlite3.connect(tmp_path / FILE)
    raw.execute("PRAGMA user_version = 7")
    raw.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(DataError, match="schema 7") as caught:
        RunStore(tmp_path)
    assert "newer" in caught.value.hint
    assert (tmp_path / FILE).read_bytes() == before


def test_an_unreadable_run_hides_no_other(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.add(run())
    store.close()
    raw = sqlite3.connect(tmp_path / FILE)
    raw.execute(
        "INSERT INTO runs (started_wall_ns, preset, endpoint, streams, valid, json) VALUES (1, 'x', 'y', 1, 1, ?)",
        (b"{}",),
    )
    raw.commit()
    raw.close()
    again = RunStore(tmp_path)
    assert [one.id for one in again.latest()] == [1]
    assert again.unreadable == 1
    with pytest.raises(DataError, match="run 2 can't be read"):
        again.get(2)
    again.close()


def test_a_damaged_store_is_said_and_left_as_it_is(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for _ in range(60):
        store.add(run())
    store.close()
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    with pytest.raises(DataError, match="malformed") as caught:
        RunStore(tmp_path).latest()
    assert "move it away" in caught.value.hint
    (tmp_path / FILE).write_bytes(whole)
    broken = sqlite3.connect(tmp_path / FILE)
    broken.execute("DROP TABLE marks")
    broken.close()
    with pytest.raises(DataError, match="no such table: marks") as caught:
        RunStore(tmp_path)
    assert "left as it is" in caught.value.hint


def test_a_page_that_breaks_while_it_is_open(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for _ in range(60):
        store.add(run())
    store.close()
    store = RunStore(tmp_path)
    with (tmp_path / FILE).open("r+b") as file:
        file.seek(8192)
        file.write(b"\xa5" * ((tmp_path / FILE).stat().st_size - 8192))
    with pytest.raises(DataError, match=FILE):
        store.latest()
    with pytest.raises(DataError, match=FILE):
        store.get(7)
    store.close()


@pytest.mark.parametrize("log_left", [False, True])
def test_a_store_that_may_not_be_written_is_still_read(log_left: bool) -> None:
    with tempfile.TemporaryDirectory() as name:  # tmp_path is its owner's alone
        folder = Path(name)
        store = RunStore(folder)
        store.add(run())
        other = sqlite3.connect(folder / FILE)
        other.execute("SELECT count(*) FROM runs").fetchall()  # held open: the log stays
        store.close()
        if not log_left:
            other.close()
        assert (folder / f"{FILE}-wal").exists() is log_left
        for path in folder.iterdir():
            path.chmod(0o444)
        folder.chmod(0o555)

        def look() -> str:
            again = RunStore(folder)
            found = [f"{[one.id for one in again.latest()]} {again.get(1).id} {again.baseline_id}"]
            for write in (lambda: again.add(run()), lambda: again.mark_baseline(1)):
                with pytest.raises(DataError, match=FILE) as caught:
                    write()
                found.append(caught.value.hint)
            again.close()
            return "\n".join(found)

        seen, *hints = without_rights(look).splitlines()
        assert seen == "[1] 1 None"
        assert len(hints) == 2 and all("--investigation" in hint for hint in hints)
        folder.chmod(0o755)
        other.close()


def test_a_full_disk_is_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path)
    store.add(run())
    assert store._db is not None
    store._db.execute("PRAGMA max_page_count = 1")  # no smaller than it is
    with pytest.raises(DataError, match="full") as caught:
        for _ in range(100):
            store.add(run())
    assert "make room" in caught.value.hint
    assert store.latest(200)[-1].id == 1
    store.close()


def test_a_store_that_a_full_disk_left_empty_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was wrong is the disk, not that there is no table."""
    (tmp_path / FILE).touch()

    def full(self: RunStore) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patched, pytest.raises(DataError, match="disk is full") as caught:
        patched.setattr(RunStore, "_prepare", full)
        RunStore(tmp_path)
    assert "make room" in caught.value.hint
    assert RunStore(tmp_path).add(run()).id == 1, "and is used once there is room"


def test_no_number_is_too_large(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with pytest.raises(DataError, match="no run 9"):
        store.get(10**30 - 1)
    store.close()


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="can't open") as caught:
        RunStore(tmp_path / "file" / "folder")
    assert "--investigation" in caught.value.hint


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    store, other = RunStore(tmp_path), RunStore(tmp_path)
    version = store.version
    assert [store.add(run()).id, other.add(run()).id, store.add(run()).id] == [1, 2, 3]
    assert store.version != version
    store.close()
    other.close()


CRASH = """
import os, sys
from pathlib import Path
import msgspec
from decodetop.bench.reading import Run
from decodetop.bench.store import RunStore
store = RunStore(Path(sys.argv[1]))
run = msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=Run)
for _ in range(3):
    store.add(run)
store._db.execute("BEGIN IMMEDIATE")
store._db.execute("INSERT INTO marks VALUES ('half', 1)")
os.kill(os.getpid(), 9)
"""


def test_a_crash_loses_nothing_finished(tmp_path: Path) -> None:
    text = tmp_path / "run.json"
    text.write_bytes(msgspec.json.encode(run()))
    folder = tmp_path / "investigation"
    ended = subprocess.run([sys.executable, "-c", CRASH, folder, text], env=dict(os.environ), check=False)
    assert ended.returncode == -9
    store = RunStore(folder)
    assert [one.id for one in store.latest()] == [3, 2, 1]
    assert store._rows("SELECT count(*) FROM marks") == [(0,)]
    store.close()


def test_the_file_says_whose_it_is(tmp_path: Path) -> None:
    RunStore(tmp_path).close()
    assert int.from_bytes((tmp_path / FILE).read_bytes()[68:72], "big") == APPLICATION_ID
