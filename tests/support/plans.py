"""Stores of agents' plans as a test writes them, and one look at them."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from decodetop.core.clock import SECOND_NS
from decodetop.todo.follow import follower
from decodetop.todo.reading import FollowedPlan, FollowReading

NOW_NS = 1_796_000_000 * SECOND_NS


def put(path: Path, value: Any, age_s: float = 60) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    os.utime(path, ns=(NOW_NS - int(age_s * SECOND_NS),) * 2)
    return path


def item(content: str, status: str = "pending", **more: Any) -> dict[str, Any]:
    return {"content": content, "status": status, **more}


def listed(plan: FollowedPlan) -> list[str]:
    return [f"{todo.content} {todo.status}{' gone' if todo.gone else ''}" for todo in plan.todos]


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    before = tree(folder)
    yield
    assert tree(folder) == before, "somebody else's store was written"


def look(home: Path, *named: Path, environ: dict[str, str] | None = None) -> FollowReading:
    return follower(named, home, environ or {}).look(NOW_NS)


def opencode(path: Path, *, stamps: bool = True, wal: bool = False) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path)
    if wal:
        database.execute("PRAGMA journal_mode = WAL")
    more = ", time_created INTEGER, time_updated INTEGER" if stamps else ""
    database.execute(
        f"CREATE TABLE todo (session_id TEXT, content TEXT, status TEXT, priority TEXT, position INTEGER{more})"
    )
    for session, age_s in (("old", 7200), ("new", 60)):
        for position, (content, status) in enumerate((("second", "pending"), ("first", "in_progress"))):
            row = [f"{session} {content}", status, "high", 1 - position]
            stamp = (NOW_NS // SECOND_NS - age_s) * 1000
            values = [session, *row, *([stamp, stamp] if stamps else [])]
            database.execute(f"INSERT INTO todo VALUES ({','.join('?' * len(values))})", values)
    database.commit()
    return database


def opened(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE todo (session_id, content, status, priority, position, time_updated)")
    return database
