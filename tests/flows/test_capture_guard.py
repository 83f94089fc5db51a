"""The watchdog: whatever ends the process that started a profile, the profile is stopped, and only then."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from decodetop.errors import DataError, RequestError
from decodetop.flows.capture_guard import MARKER, Duty, Guard, forget, left_behind
from decodetop.flows.capture_watchdog import AGAIN_S, TRIES, stopped
from decodetop.steps.reading import LeftProfiling
from support.clock import ManualClock, settle
from support.profiled_engine import ProfiledEngine
from support.token_server import Break, reply

WAIT_S = 60.0

DIES = """
import sys, time
from decodetop.flows.capture_guard import Guard
from decodetop.steps.reading import LeftProfiling
from pathlib import Path
url, folder, armed = sys.argv[1:]
guard = Guard(Path(folder), LeftProfiling(endpoint=url, engine="vllm", host="box", since_wall_ns=1), "sk-secret-1234")
guard.ready()
if armed == "armed":
    guard.arm()
print(guard._child.pid, flush=True)
sys.stdin.readline()
"""
"""A decodetop that is about to be killed."""


def left(url: str, engine: str = "vllm") -> LeftProfiling:
    return LeftProfiling(endpoint=url, engine=engine, host="box", since_wall_ns=1)


async def until(what: Callable[[], object]) -> None:
    """Something that another process does; only a failing test waits long."""
    async with asyncio.timeout(WAIT_S):
        while not what():
            await asyncio.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


async def dying(url: str, folder: Path, armed: str) -> tuple[asyncio.subprocess.Process, int]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        DIES,
        url,
        str(folder),
        armed,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    return process, int(await process.stdout.readline())


@pytest.mark.parametrize("word", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
async def test_a_killed_decodetop_s_profile_is_stopped(word: signal.Signals, tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        engine.profiling = True
        process, watchdog = await dying(engine.url, tmp_path, "armed")
        assert json.loads((tmp_path / MARKER).read_bytes())["endpoint"] == engine.url
        assert engine.controls == [] and left_behind(tmp_path) is None  # somebody looks after it
        process.send_signal(word)
        await process.wait()
        await asyncio.wait_for(engine.stopped.wait(), WAIT_S)
        await until(lambda: gone(watchdog))
        (stop,) = engine.posts("/stop_profile")
        assert stop.headers["authorization"] == "Bearer sk-secret-1234"
        assert not engine.profiling and not (tmp_path / MARKER).exists()


async def test_a_terminal_s_end_does_not_take_the_watchdog_with_it(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        process, watchdog = await dying(engine.url, tmp_path, "armed")
        assert os.getpgid(watchdog) == watchdog and os.getsid(watchdog) == watchdog
        process.kill()
        await process.wait()
        await asyncio.wait_for(engine.stopped.wait(), WAIT_S)


async def test_before_the_profile_starts_there_is_nothing_to_stop(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        process, watchdog = await dying(engine.url, tmp_path, "not yet")
        process.kill()
        await process.wait()
        await until(lambda: gone(watchdog))
        assert engine.controls == [] and left_behind(tmp_path) is None


async def test_a_profile_that_ended_is_not_stopped_again(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        guard = Guard(tmp_path, left(engine.url), None)
        guard.ready()
        guard.arm()
        assert guard.armed and (tmp_path / MARKER).stat().st_size > 0
        guard.disarm()
        guard.disarm()
        assert engine.controls == [] and not guard.armed and not (tmp_path / MARKER).exists()


async def test_one_that_is_let_go_tells_what_came_of_it(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        guard = Guard(tmp_path, left(engine.url), None)
        guard.ready()
        guard.arm()
        outcome = guard.let_go()
        await until(lambda: outcome() is not None)
        assert outcome() == "stopped" and engine.controls == ["/stop_profile"]


async def test_a_watchdog_that_was_killed_is_noticed_before_the_profile_starts(tmp_path: Path) -> None:
    guard = Guard(tmp_path, left("http://127.0.0.1:9"), None)
    guard.ready()
    assert guard._child is not None
    guard._child.kill()
    guard._child.wait()
    with pytest.raises(DataError, match="is gone"):
        guard.arm()
    assert not (tmp_path / MARKER).exists()


async def test_one_capture_at_a_time_in_an_investigation(tmp_path: Path) -> None:
    first, second = Guard(tmp_path, left("http://a"), None), Guard(tmp_path, left("http://b"), None)
    first.ready()
    with pytest.raises(RequestError, match="another capture is under way"):
        second.ready()
    second.disarm()
    assert (tmp_path / MARKER).exists()  # the first one's
    first.disarm()
    second.ready()
    second.disarm()
    assert not (tmp_path / MARKER).exists()


def test_an_investigation_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match="can't write"):
        Guard(tmp_path / "file" / "inv", left("http://a"), None).ready()


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(DataError, match="can't lock"):
        Guard(tmp_path, left("http://a"), None).ready()


def test_a_marker_deleted_while_it_is_taken_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, calls = fcntl.flock, []

    def late(file: BinaryIO, how: int) -> None:
        lock(file, how)
        calls.append(how)
        if len(calls) == 1:
            (tmp_path / MARKER).unlink()

    monkeypatch.setattr(fcntl, "flock", late)
    guard = Guard(tmp_path, left("http://a"), None)
    guard.ready()
    assert len(calls) == 2 and (tmp_path / MARKER).exists()
    guard.disarm()


def test_what_is_left_behind_is_read_from_an_unlocked_marker(tmp_path: Path) -> None:
    assert left_behind(tmp_path) is None
    (tmp_path / MARKER).write_text('{"endpoint":"http://a","engine":"vllm","host":"b","since_wall_ns":5}')
    assert left_behind(tmp_path) == LeftProfiling(endpoint="http://a", engine="vllm", host="b", since_wall_ns=5)
    forget(tmp_path)
    forget(tmp_path)
    assert left_behind(tmp_path) is None
    (tmp_path / MARKER).write_text('{"endpoint":')
    assert left_behind(tmp_path) is None


# the child's own part


async def watch_over(engine: str, url: str, marker: Path) -> tuple[int, float]:
    """Its exit code, and the seconds it waited."""
    clock = ManualClock()
    marker.write_text("{}")
    with marker.open("r+b") as file:
        duty = Duty(endpoint=url, engine=engine, marker=str(marker), lock_fd=file.fileno())
        work = asyncio.ensure_future(stopped(duty, None, clock))
        async with asyncio.timeout(WAIT_S):
            while not work.done():
                await settle()
                await asyncio.sleep(0.01)
                if not work.done() and clock.now_ns() < TRIES * AGAIN_S * 1e9:
                    await clock.advance(0.1)
        return work.result(), clock.now_ns() / 1e9


async def test_a_server_that_is_gone_profiles_nothing(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path) as engine:
        url = engine.url
    code, _ = await watch_over("vllm", url, tmp_path / MARKER)
    assert code == 0 and not (tmp_path / MARKER).exists()


@pytest.mark.parametrize(
    ("kind", "status", "known"),
    [
        ("vllm", "200 OK", True),
        ("vllm", "404 Not Found", True),
        ("vllm", "500 Internal Server Error", False),
        ("vllm", "401 Unauthorized", False),
        ("sglang", "500 Internal Server Error", True),  # none is under way, it says
        ("sglang", "401 Unauthorized", False),
    ],
)
async def test_the_marker_stays_until_the_profiler_is_known_to_be_off(
    kind: str, status: str, known: bool, tmp_path: Path
) -> None:
    async with ProfiledEngine(kind, tmp_path / "prof") as engine:
        engine.answers["/stop_profile"] = lambda seen: [reply(status, b"")]
        code, _ = await watch_over(kind, engine.url, tmp_path / MARKER)
        assert code == (0 if known else 1)
        assert (tmp_path / MARKER).exists() is not known
        assert len(engine.controls) == (1 if known else TRIES)


async def test_a_connection_that_breaks_is_tried_again(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        answers = [[Break(reset=True)], [reply("200 OK", b"")]]
        engine.answers["/stop_profile"] = lambda seen: answers.pop(0)
        code, _ = await watch_over("vllm", engine.url, tmp_path / MARKER)
        assert code == 0 and not (tmp_path / MARKER).exists()
