"""The checklist's service in an engine on a manual clock, its file and what it said."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from decodetop.core.engine import Engine
from decodetop.core.sample import Command, Notice
from decodetop.todo.reading import (
    TodoReading,
)
from decodetop.todo.service import POLL_S, TodoService
from support.clock import ManualClock, settle
from support.disk import Inline, Watched
from support.probes import HEADER, Sink
from support.running import running


class Notes:
    """The service in an engine on a manual clock, its file and what it said."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "todo.json"
        self.clock = ManualClock()
        self.caller = Inline()
        self.watched = Watched()
        self.service = TodoService(folder, self.watched, lambda: self.caller)
        self.engine = Engine(HEADER, self.clock, services=[self.service])
        self.sink = Sink()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Notes]:
        async with running(self.engine, self.sink):
            await settle()
            yield self

    async def do(self, *commands: Command) -> TodoReading:
        for command in commands:
            self.engine.submit(command)
        await settle()
        return self.reading

    async def outside(self, value: Any) -> TodoReading:
        """Another program writes the file, and the watch speaks."""
        self.write(value)
        self.watched.changed.set()
        await settle()
        return self.reading

    async def poll(self) -> TodoReading:
        await self.clock.advance(POLL_S)
        return self.reading

    def write(self, value: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())

    @property
    def reading(self) -> TodoReading:
        reading = self.engine.state.last("todo", TodoReading)
        assert reading is not None
        return reading

    @property
    def notices(self) -> list[str]:
        return [sample.reading.message for sample in self.sink.of("notice") if isinstance(sample.reading, Notice)]

    @property
    def on_disk(self) -> list[str]:
        return [item["content"] for item in json.loads(self.path.read_bytes())["todos"]]


def contents(reading: TodoReading) -> list[str]:
    return [todo.content for todo in reading.todos]
