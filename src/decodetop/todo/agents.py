"""Where coding agents keep their plans, and how to read them. Read-only: nothing here writes, locks or creates a file.

Places and shapes as in todo formats, C1 of the reference notes: undocumented and changing, so everything is optional.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from decodetop.core.decode import NotDecoded, decode_lax
from decodetop.core.encode import encodable
from decodetop.core.regular import open_regular, present, read_regular
from decodetop.errors import DataError
from decodetop.todo.document import Document, unnamed_document
from decodetop.todo.formats import parse
from decodetop.todo.formats.todowrite import lists_in_value
from decodetop.todo.reading import FollowedPlan, FollowedTodo

NEWEST = 3
"""Plans read per place: agents leave a file for every session they ever had."""
EMPTY_LISTS_PASSED = 50
ROLLOUT_TAIL_BYTES = 16 << 20
"""How far back a session log is searched for its plan."""
_FILE_MAX_BYTES = 4 << 20
TODOS_MOST = 300
"""Items of one plan; more are counted."""
WORDS_MOST = 2_000
"""Characters of one item's words."""
TASK_FILES_MOST = 1_000
_SQL_STEPS, _SQL_ROUNDS = 100_000, 300
"""A query is given up after so many instructions of SQLite's machine: some seconds."""
_MS_NS = 1_000_000
_LATEST_MS = 2**63 // _MS_NS

Reader = Callable[[Path], Iterator[FollowedPlan]]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """`path` need not exist. `named` = the operator asked for it, so its age does not matter."""

    path: Path
    read: Reader
    named: bool = False


def known_places(home: Path, environ: Mapping[str, str]) -> tuple[Place, ...]:
    """Where agents keep plans by default."""
    claude = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
    database = Path(environ.get("OPENCODE_DB") or data / "opencode.db")
    codex = Path(environ.get("CODEX_HOME") or home / ".codex")
    places = [
        Place(path=claude / "tasks", read=claude_tasks),
        Place(path=claude / "todos", read=lambda folder: json_files(folder, "Claude Code")),
        Place(path=database, read=opencode_database),
        Place(path=codex / "sessions", read=CodexSessions()),
        Place(path=home / ".qwen" / "todos", read=lambda folder: json_files(folder, "Qwen Code")),
    ]
    if not present(database):  # once there is a database, the files beside it are stale
        places.append(Place(path=data / "storage" / "todo", read=lambda folder: json_files(folder, "opencode")))
    return tuple(places)


def named_place(path: Path) -> Place:
    """The place the operator named: a database, a session log, a folder of tasks or lists, or a file with a list."""
    if path.suffix in (".db", ".sqlite"):
        return Place(path=path, read=opencode_database, named=True)
    if path.suffix == ".jsonl":
        return Place(path=path, read=CodexSessions(), named=True)
    return Place(path=path, read=_folder_or_file, named=True)


def claude_tasks(folder: Path) -> Iterator[FollowedPlan]:
    """Claude Code's tasks: a folder a session, `<n>.json` an item. Files of finished tasks vanish."""
    for session in _newest(path for path in folder.iterdir() if path.is_dir()):
        yield _task_folder(session)


def json_files(folder: Path, agent: str) -> Iterator[FollowedPlan]:
    """A JSON list a session. Most are empty and never cleaned up, so the newest few that hold items count."""
    left = NEWEST
    for path in _newest(_json_in(folder), EMPTY_LISTS_PASSED):
        plan = _list_file(path, agent, path.stem.partition("-agent-")[0])
        left -= bool(plan.todos)
        yield plan
        if left == 0:
            return


def opencode_database(path: Path) -> Iterator[FollowedPlan]:
    """opencode's table `todo`. Raises sqlite3.Error.

    A database that nobody has open is read as immutable, since SQLite would create files beside it.
    """
    open_regular(path).close()  # SQLite would wait at a pipe
    running = path.with_name(f"{path.name}-wal").exists()
    mode = "mode=ro" if running else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?{mode}", uri=True, timeout=0.5)) as database:
        rounds = iter(range(_SQL_ROUNDS))
        database.set_progress_handler(lambda: next(rounds, None) is None, _SQL_STEPS)
        columns = {row[1] for row in database.execute("PRAGMA table_info(todo)")}
        newest = "max(time_updated)" if "time_updated" in columns else "max(rowid)"
        sessions = database.execute(
            f"SELECT session_id, {newest} FROM todo GROUP BY session_id ORDER BY 2 DESC LIMIT ?", (NEWEST,)
        ).fetchall()
        for session, stamp in sessions:
            rows = database.execute(
                "SELECT content, status, priority FROM todo WHERE session_id = ? ORDER BY position LIMIT ?",
                (session, TODOS_MOST + 1),
            )
            entries = [dict(zip(("content", "status", "priority"), map(_cell, row), strict=True)) for row in rows]
            dated = "time_updated" in columns and isinstance(stamp, (int, float)) and 0 < stamp < _LATEST_MS
            changed = int(stamp) * _MS_NS if dated else path.stat().st_mtime_ns
            yield _plan("opencode", str(_cell(session)), path, entries, changed)


def _cell(value: Any) -> Any:
    """A value of a database whose columns may hold anything."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class CodexSessions:
    """Codex's session logs: the last `update_plan` call of each. Keeps its place, so that only news are read."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[int, FollowedPlan | None]] = {}

    def __call__(self, path: Path) -> Iterator[FollowedPlan]:
        logs = _newest(_rollouts(path)) if path.is_dir() else [path]
        self._read = {log: self._follow(log) for log in logs}
        yield from (plan for _, plan in self._read.values() if plan is not None)

    def _follow(self, log: Path) -> tuple[int, FollowedPlan | None]:
        size = log.stat().st_size
        offset, plan = self._read.get(log, (max(0, size - ROLLOUT_TAIL_BYTES), None))
        if size < offset:  # begun anew
            offset, plan = 0, None
        with open_regular(log) as file:
            file.seek(offset)
            data = file.read(ROLLOUT_TAIL_BYTES)
        whole, newline, _ = data.rpartition(b"\n")
        if not newline and len(data) == ROLLOUT_TAIL_BYTES:  # no line of a plan is as long: on behind it
            return offset + len(data), plan
        for line in whole.split(b"\n"):
            entries = _plan_call(line) if b'"update_plan"' in line else None
            if entries is not None:
                session = log.stem.removeprefix("rollout-")
                plan = _plan("Codex", session, log, entries, log.stat().st_mtime_ns)
        return offset + len(whole) + len(newline), plan


def _rollouts(sessions: Path) -> Iterator[Path]:
    """Logs of the last days that have any: YYYY/MM/DD/rollout-*.jsonl."""
    days = sorted(sessions.glob("[0-9]*/[0-9]*/[0-9]*"), reverse=True)
    for day in days[:NEWEST]:
        yield from day.glob("rollout-*.jsonl")


def _plan_call(line: bytes) -> list[Any] | None:
    """The plan of a log line that calls `update_plan`, whose arguments are a JSON string."""
    try:
        entry = decode_lax(line)
    except NotDecoded:
        return None
    call = entry.get("payload", entry) if isinstance(entry, dict) else None
    if not isinstance(call, dict) or call.get("name") != "update_plan":
        return None
    return next(lists_in_value(call.get("arguments")), None)


def _folder_or_file(path: Path) -> Iterator[FollowedPlan]:
    if not path.is_dir():
        yield _list_file(path, path.name, path.stem)
    elif any(entry.stem.isdecimal() for entry in _json_in(path)):
        yield _task_folder(path)
    else:
        yield from json_files(path, path.name)


def _task_folder(folder: Path) -> FollowedPlan:
    files = sorted((path for path in _json_in(folder) if path.stem.isdecimal()), key=lambda path: int(path.stem))
    entries: list[Any] = []
    problem = None
    changed = folder.stat().st_mtime_ns
    for path in files[:TASK_FILES_MOST]:
        try:
            entries.append(decode_lax(read_regular(path, _FILE_MAX_BYTES)))
            changed = max(changed, path.stat().st_mtime_ns)
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = f"{path.name}: {error.strerror or error}"
        except NotDecoded:
            problem = f"{path.name} is not JSON (yet)"
    return _plan("Claude Code", folder.name, folder, entries, changed, problem)


def _list_file(path: Path, agent: str, session: str) -> FollowedPlan:
    """A file with a list in any format; one that holds none right now says so."""
    problem = None
    entries: list[Any] = []
    text = ""
    try:
        changed = path.stat().st_mtime_ns
        with open_regular(path) as file:
            text = file.read(_FILE_MAX_BYTES).decode("utf-8", "replace")
        block = parse(text)
        entries, problem = list(block.items), "; ".join(block.remarks) or None
    except FileNotFoundError:
        return _plan(agent, session, path, [], 0)
    except OSError as error:
        problem = error.strerror or str(error)
    except DataError as error:
        problem = None if text.strip() in ("", "[]", "{}") else f"{error.message} (yet)"
    return _plan(agent, session, path, entries, changed, problem)


def _plan(
    agent: str, session: str, path: Path, entries: list[Any], changed: int, problem: str | None = None
) -> FollowedPlan:
    document: Document = unnamed_document(encodable(entries[:TODOS_MOST]))
    todos = tuple(
        FollowedTodo(
            content=item["content"][:WORDS_MOST],
            status=item["status"][:WORDS_MOST],
            priority=item["priority"][:WORDS_MOST] if isinstance(item.get("priority"), str) else None,
            id=item.get("id"),
        )
        for item in document.items
    )
    if len(entries) > TODOS_MOST:
        problem = f"only the first {TODOS_MOST} items are shown" + (f"; {problem}" if problem else "")
    return FollowedPlan(
        agent=agent, session=session, path=str(path), changed_wall_ns=changed, todos=todos, problem=problem
    )


def _json_in(folder: Path) -> Iterator[Path]:
    """Unlike `glob`, this says when the folder may not be read."""
    return (path for path in folder.iterdir() if path.suffix == ".json")


def _newest(paths: Iterator[Path], count: int = NEWEST) -> list[Path]:
    """The newest few; what vanishes while it is looked at is left out, and what leads nowhere."""
    stamped = []
    for path in paths:
        try:
            stamped.append((path.stat().st_mtime_ns, path))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP):
                raise
    return [path for _, path in sorted(stamped, reverse=True)[:count]]
