"""The log as a lane: what each source says becomes an entry once, and what can't be written waits."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from decodetop.bench.reading import BenchReading
from decodetop.core.clock import SECOND_NS
from decodetop.core.engine import Engine
from decodetop.core.sample import Notice, Reading
from decodetop.findings import Finding
from decodetop.flows.chronicle import of_todos
from decodetop.flows.log import FINDINGS_NS, LOOK_S, FindingsWatch, LogService
from decodetop.flows.log_server import SETTLED_NS
from decodetop.log import store as store_module
from decodetop.log.reading import AddNote, Entry, LogReading
from decodetop.log.store import LogStore
from decodetop.server.reading import Flag, Server, ServerReading
from decodetop.steps.reading import StepsReading
from decodetop.todo.reading import Attempt, StatusChange, Todo, TodoReading
from support import states
from support.clock import ManualClock, settle
from support.disk import Inline
from support.probes import HEADER, Sink
from support.running import running

T_NS = 1_796_000_000 * SECOND_NS


class Box:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.caller = Inline()
        self.engine = Engine(HEADER, self.clock, services=[LogService(folder, lambda: self.caller, ["s3cr3t"])])
        self.sink = Sink()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Box]:
        async with running(self.engine, self.sink):
            await settle()
            yield self

    async def say(self, source: str, reading: Reading, after_s: float = 0) -> None:
        self.engine.emit(source, reading)
        await settle()
        await self.clock.advance(after_s)

    @property
    def reading(self) -> LogReading:
        found = self.engine.state.last("log", LogReading)
        assert found is not None
        return found

    @property
    def on_disk(self) -> list[tuple[str, str]]:
        store = LogStore(self.folder)
        store.read()
        return [(entry.kind, entry.text) for entry in store.entries]

    @property
    def notices(self) -> list[str]:
        return [sample.reading.message for sample in self.sink.of("notice") if isinstance(sample.reading, Notice)]


def todos(*items: Todo) -> TodoReading:
    return TodoReading(path="todo.json", todos=items)


def changes(*statuses: str) -> tuple[StatusChange, ...]:
    return tuple(StatusChange(status=status, wall_ns=T_NS + at * SECOND_NS) for at, status in enumerate(statuses))


async def test_a_fresh_folder_is_an_empty_log_and_a_note_makes_the_file(tmp_path: Path) -> None:
    async with Box(tmp_path / "inv").running() as box:
        assert box.reading.entries == () and not (tmp_path / "inv").exists()
        box.engine.submit(AddNote(text=" reloaded  the driver \x1b[31m s3cr3t ", item="t1"))
        await settle()
        assert [(one.kind, one.text, one.ref) for one in box.reading.entries] == [
            ("note", "reloaded the driver [31m ***", "t1")
        ]
        assert box.on_disk == [("note", "reloaded the driver [31m ***")]
        box.engine.submit(AddNote(text="  "))
        await settle()
    assert box.notices == ["a note needs words"]


async def test_statuses_and_attempts_are_told_once_with_their_own_times(tmp_path: Path) -> None:
    tried = Attempt(change="--kv fp8", outcome="failed", reason="page_size == 64", wall_ns=T_NS + 9 * SECOND_NS)
    item = Todo(id="t1", content="a", status="in_progress", status_history=changes("pending", "in_progress"))
    done = replace(
        item,
        status="completed",
        reason="one cast",
        attempts=(tried,),
        status_history=changes("pending", "in_progress", "completed"),
    )
    expected = [
        ("status", "added: a"),
        ("status", "started: a"),
        ("status", "done: a (one cast)"),
        ("attempt", "failed: --kv fp8: page_size == 64 (for: a)"),
    ]
    for _ in range(2):  # and not again in the next session
        async with Box(tmp_path).running() as box:
            await box.say("todo", todos(item))
            await box.say("todo", todos(done))
            await box.say("todo", todos(done))
            assert [(one.kind, one.text) for one in box.reading.entries] == box.on_disk == expected
            assert [one.wall_ns for one in box.reading.entries][:2] == [T_NS, T_NS + SECOND_NS]


async def test_a_status_changed_outside_or_taken_back_is_told_now(tmp_path: Path) -> None:
    item = Todo(id="t1", content="a")
    async with Box(tmp_path).running() as box:
        await box.say("todo", todos(item))
        await box.say("todo", todos(replace(item, status="completed")))
        assert box.on_disk == [("changed", "done: a (outside edit, or undone)")]


async def test_runs_and_captures_stand_at_the_time_they_ended(tmp_path: Path) -> None:
    run = states.run(4, 51.7, 19.3)
    async with Box(tmp_path).running() as box:
        await box.say("bench", BenchReading(runs=(run,)))
        await box.say("bench", BenchReading(runs=(states.run(5, 52.0, 19.2), run)))
        await box.say("steps", states.steps())
        await box.say("steps", StepsReading())
    assert [kind for kind, _ in box.on_disk] == ["run", "run", "capture"]
    assert box.on_disk[0][1].startswith("#4 single 1 stream  51.7 tok/s".replace("  ", " "))
    assert box.reading.entries[0].wall_ns == run.started_wall_ns + 42 * SECOND_NS


def server(
    pid: int | None = 7, started_ns: int = 1, status: str = "up", **flags: tuple[str | None, str | None]
) -> ServerReading:
    one = Server(
        endpoint="http://127.0.0.1:30000",
        engine="sglang",
        version="0.5.15",
        status=status,  # type: ignore[arg-type]
        model="dense-8b",
        root_pid=pid,
        started_wall_ns=1,
        tp=1,
        flags=tuple(Flag(name=name, requested=asked, resolved=got) for name, (asked, got) in flags.items()),
        command=("sglang",),
    )
    return ServerReading(servers=(one,), current=one.endpoint)


SETTLED_S = SETTLED_NS / SECOND_NS
GRAPHS_OFF = {"disable_cuda_graph": ("true", "True"), "kv_cache_dtype": (None, "auto"), "random_seed": (None, "1")}
GRAPHS_ON = {"disable_cuda_graph": (None, "False"), "kv_cache_dtype": (None, "fp8"), "random_seed": (None, "2")}


async def stand(box: Box, reading: ServerReading) -> None:
    for _ in range(3):
        await box.say("server", reading, SETTLED_S)


async def test_a_restart_says_what_differs_in_this_session_and_in_the_next(tmp_path: Path) -> None:
    async with Box(tmp_path).running() as box:
        await stand(box, server(**GRAPHS_OFF))
        await stand(box, server(status="down"))
        await stand(box, server(pid=8, **GRAPHS_OFF))
        await stand(box, server(pid=9, **GRAPHS_ON))
    async with Box(tmp_path).running() as box:
        await stand(box, server(pid=9, **GRAPHS_ON))
        await stand(box, server(pid=10, **(GRAPHS_ON | {"disable_cuda_graph": ("true", "True")})))
    title = "SGLang 0.5.15 dense-8b TP1 at http://127.0.0.1:30000"
    assert [one for one in box.on_disk if one[0] == "server"] == [
        ("server", f"{title}: disable_cuda_graph true"),
        ("server", f"{title} restarted with the same flags"),
        (
            "server",
            f"{title} restarted: disable_cuda_graph true -> default (False), kv_cache_dtype auto -> fp8 (by itself)",
        ),
        ("server", f"{title} restarted: disable_cuda_graph default (False) -> true"),
    ]


async def test_a_process_that_is_found_late_is_no_restart(tmp_path: Path) -> None:
    async with Box(tmp_path).running() as box:
        await stand(box, server(None, **GRAPHS_OFF))
        await stand(box, server(7, **GRAPHS_OFF))
        await stand(box, server(8, **GRAPHS_OFF))
    texts = [text.partition("30000")[2] for kind, text in box.on_disk if kind == "server"]
    assert texts == [": disable_cuda_graph true", " restarted with the same flags"]


async def test_a_server_whose_process_cannot_be_seen_is_back_after_it_was_down(tmp_path: Path) -> None:
    async with Box(tmp_path).running() as box:
        for reading in (server(None, **GRAPHS_OFF), server(None, status="down"), server(None, **GRAPHS_OFF)):
            await stand(box, reading)
    texts = [text for kind, text in box.on_disk if kind == "server"]
    assert [text.partition("30000")[2] for text in texts] == [
        ": disable_cuda_graph true",
        " is back with the same flags",
    ]


async def test_flags_that_are_told_piece_by_piece_are_one_entry(tmp_path: Path) -> None:
    async with Box(tmp_path).running() as box:
        await box.say("server", server(disable_cuda_graph=("true", None)), 1)
        await box.say("server", server(**GRAPHS_OFF), 1)
        assert box.on_disk == []
        await stand(box, server(**GRAPHS_OFF))
        assert len(box.on_disk) == 1


def hot(evidence: str = "at 90 °C") -> Finding:
    return Finding(
        id="thermal:0", severity="suspect", title="GPU 0 is slowed", evidence=evidence, source="gpu", since_ns=0
    )


def test_a_finding_is_raised_when_it_stays_and_gone_when_it_stays_away() -> None:
    watch = FindingsWatch()

    def see(*found: Finding, failing: frozenset[str] = frozenset()) -> list[str]:
        return [f"{entry.kind} {entry.text}" for entry in watch.see(found, failing, T_NS)]

    assert see(hot()) == [] and see() == [] and see(hot()) == []
    assert see(hot("at 91 °C")) == ["finding suspect: GPU 0 is slowed: at 91 °C"]
    assert see(hot()) == [] and see() == [] and see() == []
    assert see(hot()) == [] and see() == [] and see() == []
    assert see(failing=frozenset({"gpu"})) == [], "a source that fails tells nothing"
    assert see() == ["cleared gone: GPU 0 is slowed"]
    assert watch.due(FINDINGS_NS) and not watch.due(FINDINGS_NS + 1)


@pytest.mark.parametrize(
    ("call", "number", "word"),
    [("write", errno.ENOSPC, "No space left"), ("open", errno.EROFS, "Read-only file system")],
)
async def test_a_full_disk_or_a_read_only_folder_keeps_the_entries_says_so_once_and_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, word: str
) -> None:
    real = getattr(os, call)

    def refuse(*args: Any, **more: Any) -> Any:
        if call == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR):
            return real(*args, **more)
        raise OSError(number, os.strerror(number))

    async with Box(tmp_path).running() as box:
        with monkeypatch.context() as patch:
            patch.setattr(store_module.os, call, refuse)
            box.engine.submit(AddNote(text="a"))
            await settle()
            await box.clock.advance(3 * LOOK_S)
            box.engine.submit(AddNote(text="b"))
            await settle()
            assert [one.text for one in box.reading.entries] == ["a", "b"]
            assert box.reading.unsaved is not None and word in box.reading.unsaved
            assert len(box.notices) == 1 and "log not saved" in box.notices[0]
        await box.clock.advance(LOOK_S)
        assert box.reading.unsaved is None and box.on_disk == [("note", "a"), ("note", "b")]


async def test_what_waits_is_written_when_leaving(tmp_path: Path) -> None:
    async with Box(tmp_path).running() as box:
        box.caller.stuck = True
        box.engine.submit(AddNote(text="a"))
        await settle()
        box.caller.stuck = False
    assert box.on_disk == [("note", "a")]


async def test_what_another_process_writes_is_shown(tmp_path: Path) -> None:
    async with Box(tmp_path).running() as box:
        LogStore(tmp_path).append([Entry(wall_ns=T_NS, kind="note", text="from the shell")])
        await box.clock.advance(LOOK_S)
        assert [one.text for one in box.reading.entries] == ["from the shell"]


async def test_a_disk_that_does_not_answer_is_a_word_and_the_lane_goes_on(tmp_path: Path) -> None:
    async with Box(tmp_path).running() as box:
        box.caller.stuck = True
        box.engine.submit(AddNote(text="a"))
        await settle()
        await box.clock.advance(20)
        assert box.reading.unsaved is not None and "does not answer" in box.reading.unsaved
        assert [one.text for one in box.reading.entries] == ["a"]
        box.caller.stuck = False


def test_an_item_of_another_tool_without_times_tells_nothing() -> None:
    assert list(of_todos([Todo(id="t1", content="a", status="completed")])) == []
