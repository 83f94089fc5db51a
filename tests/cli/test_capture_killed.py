"""`decodetop steps capture` ended in each of its phases: no process of its own stays, no server stays profiled, and
nothing that came by then is taken for a capture.
"""

from __future__ import annotations

import asyncio
import gzip
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import psutil
import pytest

from decodetop.flows.capture_guard import MARKER
from support.profiled_engine import ProfiledEngine
from support.token_server import HEAD, Seen, Step, Wait, completions, reply

WAIT_S = 60.0
CONFIG = Path(__file__).parents[1] / "floor" / "configs" / "qwen3-8b.json"
FOR_EVER = Wait(1e6)


class Phase:
    """`reached` once the capture is in it; `engine` of the kind that has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reached = asyncio.Event()
        self.made: Path | None = None
        """Where a server was told to write."""

    def measuring(self) -> ProfiledEngine:
        engine = ProfiledEngine("vllm", self.folder / "prof")

        def hang(seen: Seen) -> Iterable[Step]:
            self.reached.set()
            return [HEAD, FOR_EVER]

        engine.answers["/v1/completions"] = hang
        return engine

    def loading(self) -> ProfiledEngine:
        """The load for the profile gets no token."""
        engine = ProfiledEngine("vllm", self.folder / "prof")

        def script(seen: Seen) -> Iterable[Step]:
            if seen.asked < 1024:
                return completions(seen, itl_s=0.001)
            self.reached.set()
            return [HEAD, FOR_EVER]

        engine.answers["/v1/completions"] = script
        return engine

    def starting(self) -> ProfiledEngine:
        """It profiles, and never says so."""
        engine = ProfiledEngine("vllm", self.folder / "prof")

        def hang(seen: Seen) -> Iterable[Step]:
            engine.profiling = True
            self.reached.set()
            return [FOR_EVER]

        engine.answers["/start_profile"] = hang
        return engine

    def stopping(self) -> ProfiledEngine:
        """The first word to stop is not answered."""
        engine = ProfiledEngine("vllm", self.folder / "prof")

        def hang(seen: Seen) -> Iterable[Step]:
            if not self.reached.is_set():
                self.reached.set()
                return [FOR_EVER]
            engine.profiling = False
            return [reply("200 OK", b"")]

        engine.answers["/stop_profile"] = hang
        return engine

    def waiting(self) -> ProfiledEngine:
        """Half a trace comes."""
        engine = ProfiledEngine("sglang", self.folder / "prof")

        def half(folder: Path) -> None:
            self.made = folder
            engine.write(folder)
            for trace in folder.glob("*.gz"):
                trace.write_bytes(trace.read_bytes()[:-2000])
            self.reached.set()

        engine.writes = half
        return engine

    def reading(self) -> ProfiledEngine:
        """A trace that takes the reader long."""
        engine = ProfiledEngine("sglang", self.folder / "prof")

        def long(folder: Path) -> None:
            self.made = folder
            with gzip.open(folder / "1-TP-0.trace.json.gz", "wb", 1) as file:
                file.write(b'{"traceEvents": [\n')
                one = b'{"ph": "X", "cat": "kernel", "name": "k%d", "pid": 0, "tid": 7, "ts": %d, "dur": 1},\n'
                for at in range(400):
                    file.write(b"".join(one % (at, 5000 * at + n) for n in range(5000)))
                file.write(b"{}]}\n")

        engine.writes = long
        return engine


def family(pid: int) -> list[psutil.Process]:
    try:
        one = psutil.Process(pid)
        return [one, *one.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not what():
            await asyncio.sleep(0.02)


def reads(pid: int) -> bool:
    """Whether the trace reader is at work."""

    def is_reader(one: psutil.Process) -> bool:
        try:
            return "decodetop.steps.child" in one.cmdline()
        except psutil.Error:
            return False

    return any(map(is_reader, family(pid)))


PHASES = ("measuring", "loading", "starting", "stopping", "waiting", "reading")
Ended = Callable[[asyncio.subprocess.Process], Awaitable[None]]


CAPTURE = ("steps", "capture", "--yes")
DIAGNOSE = ("diagnose", "--yes", "--gpu", "RTX A6000", "--model", str(CONFIG))
ENDS = [
    *((CAPTURE, name, word) for name in PHASES for word in (signal.SIGKILL, signal.SIGTERM)),
    (CAPTURE, "waiting", signal.SIGHUP),
    (CAPTURE, "measuring", signal.SIGINT),
    (DIAGNOSE, "measuring", signal.SIGKILL),
    (DIAGNOSE, "starting", signal.SIGKILL),
    (DIAGNOSE, "starting", signal.SIGTERM),
    (DIAGNOSE, "stopping", signal.SIGKILL),
]


@pytest.mark.parametrize(("command", "name", "word"), ENDS, ids=[f"{c[0]}-{n}-{w.name}" for c, n, w in ENDS])
async def test_ended_in_a_phase(command: tuple[str, ...], name: str, word: signal.Signals, tmp_path: Path) -> None:
    phase = Phase(tmp_path)
    inv = tmp_path / "inv"
    try:
        async with getattr(phase, name)() as engine:
            argv = [sys.executable, "-m", "decodetop", *command, "--endpoint", engine.url]
            null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                *argv, "--investigation", str(inv), stdin=null, stdout=null, stderr=pipe
            )
            if name == "reading":
                await until(lambda: reads(process.pid) or process.returncode is not None)
            else:
                await asyncio.wait_for(phase.reached.wait(), WAIT_S)
            started = family(process.pid)
            assert alive(started)
            process.send_signal(word)
            _, said = await asyncio.wait_for(process.communicate(), WAIT_S)
            await until(lambda: not alive(started))
            assert not engine.profiling and not (inv / MARKER).exists()
            if name in ("starting", "stopping"):
                assert engine.controls[-1] == "/stop_profile"
        assert process.returncode == (-signal.SIGKILL if word == signal.SIGKILL else 130)
        assert b"Traceback" not in said, said.decode(errors="replace")
        assert list((inv / "captures").glob("*.json") if (inv / "captures").exists() else []) == []
    finally:
        if phase.made is not None:
            shutil.rmtree(phase.made, ignore_errors=True)
