"""The runs of an investigation: an append-only SQLite file. A run once stored is never changed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from decodetop.bench.reading import Run
from decodetop.errors import DataError

SCHEMA = 1
"""`PRAGMA user_version`. A newer file is left alone."""

APPLICATION_ID = 0x64746F70
"""`PRAGMA application_id`: "dtop"."""

FILE = "runs.sqlite"
BUSY_MS = 5000

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
        """Makes folder and file as needed. A file that is no store, or a newer one, is left as it is."""
        self.path = folder / FILE
        self.unreadable = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=BUSY_MS / 1e3, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            hint = "use --investigation DIR with a folder you may write"
            raise DataError(f"can't open {self.path}: {_words(error)}", hint) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._db.close()
            hint = "it is left as it is: move it away, or use --investigation DIR"
            raise DataError(f"{self.path} can't be used as a store of runs: {_words(error)}", hint) from error
        except DataError:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

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
        cursor = self._do(f"INSERT INTO runs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        return msgspec.structs.replace(run, id=cursor.lastrowid)

    def latest(self, count: int = 50) -> tuple[Run, ...]:
        """Newest first. Rows that can't be read are left out, and counted in `unreadable`."""
        rows = self._do("SELECT id, json FROM runs ORDER BY id DESC LIMIT ?", (count,)).fetchall()
        found = []
        for number, text in rows:
            with contextlib.suppress(DataError):
                found.append(self._run(number, text))
        self.unreadable = len(rows) - len(found)
        return tuple(found)

    def get(self, run_id: int) -> Run:
        """Raises DataError when there is none of that number."""
        row = self._do("SELECT id, json FROM runs WHERE id = ?", (run_id,)).fetchone()
        if row is None:
            raise DataError(f"there is no run {run_id} in {self.path}", "`decodetop bench list` shows what there is")
        return self._run(*row)

    @property
    def baseline_id(self) -> int | None:
        row = self._do("SELECT run_id FROM marks WHERE name = 'baseline'").fetchone()
        return None if row is None else int(row[0])

    def mark_baseline(self, run_id: int | None) -> None:
        """None = no baseline. Raises DataError when there is no such run."""
        if run_id is None:
            self._do("DELETE FROM marks WHERE name = 'baseline'")
            return
        self.get(run_id)
        self._do("INSERT OR REPLACE INTO marks (name, run_id) VALUES ('baseline', ?)", (run_id,))

    @property
    def version(self) -> int:
        """Changes when another process wrote to the file."""
        return int(self._do("PRAGMA data_version").fetchone()[0])

    def _prepare(self) -> None:
        application, schema = self._pragma("application_id"), self._pragma("user_version")
        if application == APPLICATION_ID and schema > SCHEMA:
            message = f"{self.path} has schema {schema}; this decodetop reads up to {SCHEMA}"
            raise DataError(message, "it was written by a newer decodetop: upgrade, or use --investigation DIR")
        strange = self._db.execute("SELECT name FROM sqlite_master LIMIT 1").fetchone()
        if application != APPLICATION_ID and strange is not None:
            message = f"{self.path} is a database of something else (it has {strange[0]!r})"
            raise DataError(message, "it is left as it is: use --investigation DIR")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        if application != APPLICATION_ID:
            self._create()

    def _create(self) -> None:
        """All tables or none; another process may be doing the same."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if self._pragma("application_id") != APPLICATION_ID:
                for statement in _statements(_TABLES):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {SCHEMA}")
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._db.execute("ROLLBACK")
            raise

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    def _do(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        try:
            return self._db.execute(statement, values)
        except sqlite3.Error as error:
            hint = "is the disk full, or the folder no longer writable?"
            raise DataError(f"{self.path}: {_words(error)}", hint) from error

    def _run(self, number: int, text: bytes) -> Run:
        try:
            return msgspec.structs.replace(msgspec.json.decode(text, type=Run), id=number)
        except msgspec.MsgspecError as error:
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


def _words(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
