"""The pipe: another decodetop's stream, its end, and what is no stream."""

import asyncio
import contextlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from decodetop.core.feed import Feed
from decodetop.core.pipe import PipeSource
from decodetop.core.sample import Notice, Sample
from decodetop.core.tape import Codec
from decodetop.errors import DataError, UsageError
from support.probes import HEADER, Count, Knock, Sink

SRC = Path(__file__).resolve().parents[2] / "src"
CODEC = Codec({"count": Count})


def command(tmp_path: Path, lines: bytes, complaint: str = "", then: str = "") -> str:
    data = tmp_path / "lines"
    data.write_bytes(lines)
    program = (
        f"import sys; sys.stdout.buffer.write(open({str(data)!r},'rb').read()); sys.stdout.flush();"
        f"sys.stderr.write({complaint!r}); {then}"
    )
    return shlex.join([sys.executable, "-c", program])


def stream(*samples: Sample) -> bytes:
    return CODEC.header_line(HEADER) + b"".join(CODEC.line(sample) for sample in samples)


SAMPLES = [Sample(source="count", t_ns=n, seq=n, reading=Count(n=n)) for n in range(3)]


async def collect(pipe: PipeSource, enough: int) -> Sink:
    sink = Sink()
    task = asyncio.ensure_future(pipe.run(sink))
    for _ in range(500):
        if len(sink.samples) >= enough:
            break
        await asyncio.wait({task}, timeout=0.01)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return sink


async def test_samples_arrive_and_the_end_is_said(tmp_path: Path) -> None:
    pipe = PipeSource(command(tmp_path, stream(*SAMPLES) + b"{broken\n", "connection closed\n"), CODEC)
    await pipe.open()
    assert pipe.header == HEADER
    sink = await collect(pipe, 4)
    assert sink.of("count") == SAMPLES
    failure = sink.of("pipe")[0].failure
    assert failure is not None and failure.kind == "lost" and failure.hint == "connection closed"


async def test_a_feed_may_start_it_before_the_header_is_known(tmp_path: Path) -> None:
    feed = Feed(PipeSource(command(tmp_path, stream(*SAMPLES), then="import time; time.sleep(60)"), CODEC))
    assert feed.latest.header.host == sys.executable
    feed.start()
    for _ in range(500):
        if feed.latest.seq == 2:
            break
        await asyncio.sleep(0.01)
    assert feed.latest.header == HEADER
    assert feed.stop()


async def test_commands_are_refused_in_words(tmp_path: Path) -> None:
    pipe = PipeSource(command(tmp_path, stream(*SAMPLES), then="import time; time.sleep(60)"), CODEC)
    await pipe.open()
    sink = Sink()
    task = asyncio.ensure_future(pipe.run(sink))
    while len(sink.samples) < 3:
        await asyncio.wait({task}, timeout=0.01)
    pipe.submit(Knock())
    (notice,) = sink.of("notice")
    assert isinstance(notice.reading, Notice) and "--from" in notice.reading.message
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("lines", "complaint", "word"),
    [(b"", "ssh: no route to host\n", "no route to host"), (b"Welcome to Ubuntu\n", "", "not a decodetop tape")],
)
async def test_what_is_no_stream_is_refused(tmp_path: Path, lines: bytes, complaint: str, word: str) -> None:
    with pytest.raises(DataError, match=word):
        await PipeSource(command(tmp_path, lines, complaint), CODEC).open()


@pytest.mark.parametrize("argv", ["/nonexistent/command"])
async def test_a_command_that_cannot_run_is_refused(argv: str) -> None:
    with pytest.raises(DataError, match="--from"):
        await PipeSource(argv, CODEC).open()


@pytest.mark.parametrize("words", ['"', "", "'ssh box"])
def test_a_command_that_is_none_is_one_line(words: str) -> None:
    with pytest.raises(UsageError, match="--from") as caught:
        PipeSource(words, CODEC)
    assert caught.value.hint


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def test_a_command_that_never_spoke_ends_with_the_screen(tmp_path: Path) -> None:
    said = tmp_path / "pid"
    program = f"import os,signal; open({str(said)!r},'w').write(str(os.getpid())); signal.pause()"
    pipe = PipeSource(shlex.join([sys.executable, "-c", program]), CODEC)
    task = asyncio.ensure_future(pipe.run(Sink()))
    while not said.exists() or not said.read_text():
        await asyncio.wait({task}, timeout=0.01)
        assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert not alive(int(said.read_text()))


def test_a_command_that_never_spoke_ends_when_we_are_killed(tmp_path: Path) -> None:
    said = tmp_path / "pid"
    child = f"import os,signal; open({str(said)!r},'w').write(str(os.getpid())); signal.pause()"
    program = (
        "import asyncio, sys\nfrom decodetop.core.pipe import PipeSource\nfrom decodetop.core.tape import Codec\n"
        f"asyncio.run(PipeSource({shlex.join([sys.executable, '-c', child])!r}, Codec({{}})).open())"
    )
    with subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(SRC)}) as parent:
        while not said.exists() or not said.read_text():
            assert parent.poll() is None
        pid = int(said.read_text())
        parent.kill()
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=20)
    assert not alive(pid)
