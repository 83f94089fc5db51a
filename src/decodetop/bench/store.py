"""The runs of an investigation: an append-only SQLite file. A run once stored is never changed."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from decodetop.bench.reading import Run
from decodetop.core.decode import NotDecoded, decode
from decodetop.core.regular import is_file
from decodetop.errors import DataError

SCHEMA = 1
"""`PRAGMA user_version`. A newer file is left alone."""

APPLICATION_ID = 0x64746F70
"""`PRAGMA application_id`: "dtop"."""

FILE = "runs.sqlite"
BUSY_MS = 5000
ID_MAX = (1 << 63) - 1

_TABLES = """
CREATE TABLE runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  started_wall_ns INTEGER NOT NULL,
  preset TEXT NOT NULL,
  endpoint TEXT NOT NULL,
  model TEXT,
  streams INTEGER NOT NULL,
  valid INTEGER NOT NULL,
  output_tok_s REAL,
  json BLOB NOT NULL
);
CREATE INDEX runs_started ON runs (started_wall_ns);
CREATE TRIGGER runs_unchanged BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'runs are append-only'); END;
CREATE TRIGGER runs_kept BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'runs are append-only'); END;
CREATE TABLE marks (name TEXT PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES runs (id));
"""


class RunStore:
    """Open for one thread. Every method raises DataError, naming the file and what to do, when the disk refuses."""

    def __init__(self, folder: Path) -> None:
        """Makes folder and file as needed. A file that is no store, or a newer one, is left as it is.

        One that may not be written is opened to be read; `refused` then says why nothing can be added.
        """
        self.path = folder / FILE
        self.unreadable = 0
        self.refused: DataError | None = None
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._db: sqlite3.Connection | None = None
        try:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._db = _connect(f"{self.path.absolute().as_uri()}?mode=rwc")
                self._prepare()
            except (OSError, sqlite3.Error) as error:
                self._read_only(error)
        except BaseException:
            self.close()
            raise

    def _read_only(self, error: Exception) -> None:
        """Open to be read what can't be written. Raises DataError when it can't be read either."""
        self.refused = self._refusal(self._shut() or error)
        if not _unwritable(error) or not is_file(self.path):
            raise self.refused from error
        self.close()
        try:
            self._db = self._for_reading()
            if self._check() != APPLICATION_ID:  # made, and then the disk was full: nothing is in it
                raise self.refused
        except (OSError, sqlite3.Error) as worse:
            raise self.refused from worse

    def _for_reading(self) -> sqlite3.Connection:
        """SQLite reads a WAL file only beside files it may write: what is there is read as it is, or from a copy."""
        uri = self.path.absolute().as_uri()
        try:
            return _readable(f"{uri}?mode=ro")
        except sqlite3.Error:
            log = self.path.with_name(f"{FILE}-wal")
            if not log.exists() or log.stat().st_size == 0:
                return _readable(f"{uri}?immutable=1")
        self._copy = tempfile.TemporaryDirectory(prefix="decodetop-runs-")
        for path in (self.path, log):
            shutil.copyfile(path, Path(self._copy.name) / path.name)
        return _readable((Path(self._copy.name) / FILE).as_uri())

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
        if self._copy is not None:
            self._copy.cleanup()
        self._db = self._copy = None

    def add(self, run: Run) -> Run:
        """Append; the run comes back with its id. It is on disk when this returns."""
        row = (
            run.started_wall_ns,
            run.plan.preset,
            run.plan.endpoint,
            run.environment.model or run.plan.model,
            run.plan.streams,
            run.valid,
            run.metrics.output_tok_s,
            msgspec.json.encode(msgspec.structs.replace(run, id=None)),
        )
        columns = "started_wall_ns, preset, endpoint, model, streams, valid, output_tok_s, json"
        self._write(f"INSERT INTO runs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        return msgspec.structs.replace(run, id=int(self._rows("SELECT last_insert_rowid()")[0][0]))

    def latest(self, count: int = 50) -> tuple[Run, ...]:
        """Newest first. Rows that can't be read are left out, and counted in `unreadable`."""
        rows = self._rows("SELECT id, json FROM runs ORDER BY id DESC LIMIT ?", (count,))
        found = []
        for number, text in rows:
            with contextlib.suppress(DataError):
                found.append(self._run(number, text))
        self.unreadable = len(rows) - len(found)
        return tuple(found)

    def get(self, run_id: int) -> Run:
        """Raises DataError when there is none of that number."""
        rows = self._rows("SELECT id, json FROM runs WHERE id = ?", (run_id,)) if run_id <= ID_MAX else []
        if not rows:
            raise DataError(f"there is no run {run_id} in {self.path}", "`decodetop bench list` shows what there is")
        return self._run(*rows[0])

    @property
    def baseline_id(self) -> int | None:
        rows = self._rows("SELECT run_id FROM marks WHERE name = 'baseline'")
        return int(rows[0][0]) if rows else None

    def mark_baseline(self, run_id: int | None) -> None:
        """None = no baseline. Raises DataError when there is no such run."""
        if run_id is None:
            self._write("DELETE FROM marks WHERE name = 'baseline'")
            return
        self.get(run_id)
        self._write("INSERT OR REPLACE INTO marks (name, run_id) VALUES ('baseline', ?)", (run_id,))

    @property
    def version(self) -> int:
        """Changes when another process wrote to the file."""
        return int(self._rows("PRAGMA data_version")[0][0])

    def _prepare(self) -> None:
        """Raises DataError, or sqlite3.Error."""
        application = self._check()
        db = self._open
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        if application != APPLICATION_ID:
            self._create()
        for table in ("runs", "marks"):
            db.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall()

    def _check(self) -> int:
        """Leave alone what is not ours, or newer. The application's number."""
        application, schema = self._pragma("application_id"), self._pragma("user_version")
        if application == APPLICATION_ID and schema > SCHEMA:
            message = f"{self.path} has schema {schema}; this decodetop reads up to {SCHEMA}"
            raise DataError(message, "it was written by a newer decodetop: upgrade, or use --investigation DIR")
        strange = self._open.execute("SELECT name FROM sqlite_master LIMIT 1").fetchone()
        if application != APPLICATION_ID and strange is not None:
            message = f"{self.path} is a database of something else (it has {strange[0]!r})"
            raise DataError(message, "it is left as it is: use --investigation DIR")
        return application

    def _create(self) -> None:
        """All tables or none; another process may be doing the same."""
        db = self._open
        db.execute("BEGIN IMMEDIATE")
        try:
            if self._pragma("application_id") != APPLICATION_ID:
                for statement in _statements(_TABLES):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {SCHEMA}")
            db.execute("COMMIT")
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back by itself
                db.execute("ROLLBACK")
            raise

    @property
    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            raise DataError(f"{self.path} is closed")
        return self._db

    def _pragma(self, name: str) -> int:
        return int(self._open.execute(f"PRAGMA {name}").fetchone()[0])

    def _write(self, statement: str, values: Sequence[object] = ()) -> None:
        if self.refused is not None:
            raise self.refused
        self._rows(statement, values)

    def _rows(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """All rows at once: a damaged page shows only when it is read."""
        try:
            return self._open.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._refusal(error) from error

    def _shut(self) -> OSError | None:
        """Why its folder can't be entered: of that SQLite says only that it can't open the file."""
        try:
            self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return error
        return None

    def _refusal(self, error: Exception) -> DataError:
        where = f"can't open {self.path}" if isinstance(error, OSError) else str(self.path)
        return DataError(f"{where}: {_words(error)}", _hint(error))

    def _run(self, number: int, text: bytes) -> Run:
        try:
            return msgspec.structs.replace(decode(text, Run), id=number)
        except NotDecoded as error:
            raise DataError(
                f"{self.path}: run {number} can't be read: {error}", "the other runs may still be"
            ) from error


def _statements(script: str) -> list[str]:
    found, part = [], ""
    for line in script.splitlines():
        part += line + "\n"
        if sqlite3.complete_statement(part):
            found.append(part)
            part = ""
    return found


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, timeout=BUSY_MS / 1e3, isolation_level=None, uri=True)


def _readable(uri: str) -> sqlite3.Connection:
    """Opened, and once read from: only that shows whether it can be. Raises sqlite3.Error."""
    db = _connect(uri)
    try:
        db.execute("SELECT name FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.Error:
        db.close()
        raise
    return db


_ELSEWHERE = "use --investigation DIR with a folder you may write"
_HINTS = {
    sqlite3.SQLITE_CORRUPT: "it is damaged and left as it is: move it away, or use --investigation DIR",
    sqlite3.SQLITE_NOTADB: "it is left as it is: move it away, or use --investigation DIR",
    sqlite3.SQLITE_ERROR: "it is left as it is: move it away, or use --investigation DIR",
    sqlite3.SQLITE_BUSY: "another program holds it: try again, or use --investigation DIR",
    sqlite3.SQLITE_FULL: "make room on its disk, or use --investigation DIR on another",
    sqlite3.SQLITE_IOERR: "is its disk full or broken? use --investigation DIR on another",
    sqlite3.SQLITE_READONLY: _ELSEWHERE,
    sqlite3.SQLITE_CANTOPEN: _ELSEWHERE,
    sqlite3.SQLITE_PERM: _ELSEWHERE,
}


def _code(error: Exception) -> int | None:
    """SQLite's primary result code."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF


def _unwritable(error: Exception) -> bool:
    codes = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_FULL)
    return isinstance(error, OSError) or _code(error) in codes


def _hint(error: Exception) -> str:
    return _HINTS.get(_code(error) or 0, _ELSEWHERE)


def _words(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
