"""A load process that is killed, held or left alone: nothing finished is lost, and none of them stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys

import psutil
import pytest

from decodetop.bench import launch
from decodetop.bench.launch import LoadFailed, run_load
from decodetop.bench.measure import figures
from support.loads import Heard, asked, plan_for, slow_after
from support.token_server import TokenServer


def load_processes() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "decodetop.bench.worker" in child.cmdline():
                found.append(child)
    return found


async def test_a_killed_load_process_loses_no_finished_request() -> None:
    heard = Heard()
    async with TokenServer(slow_after(5)) as server:  # the trial, two of warm-up, two measured
        plan = plan_for(server.url, requests=50, warmup_requests=2)
        running = asyncio.ensure_future(run_load(plan, None, heard, asyncio.Event()))
        await asyncio.wait_for(heard.under_way.wait(), 60)
        (child,) = load_processes()
        child.send_signal(signal.SIGKILL)
        result = await running
    assert load_processes() == []
    assert result.partial and result.lost is not None and "by signal 9 before its result" in result.lost
    assert [record.output_tokens for record in result.records] == [8] * len(result.records) != []
    assert result.source == "usage" and figures(result).metrics.tpot_ms is not None


async def test_killed_before_anything_finished_is_a_word() -> None:
    async with TokenServer(slow_after(0)) as server:
        running = asyncio.ensure_future(run_load(plan_for(server.url), None, Heard(), asyncio.Event()))
        await asyncio.wait_for(asked(server), 60)
        (child,) = load_processes()
        child.send_signal(signal.SIGKILL)
        with pytest.raises(LoadFailed, match="by signal 9 before its result") as caught:
            await running
    assert "run it again" in caught.value.hint and load_processes() == []


async def test_of_several_load_processes_one_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "STREAMS_PER_PROCESS", 1)
    heard = Heard()
    async with TokenServer(slow_after(8)) as server:  # two trials, two of warm-up, four measured
        running = asyncio.ensure_future(run_load(plan_for(server.url, requests=50), None, heard, asyncio.Event()))
        await asyncio.wait_for(heard.under_way.wait(), 60)
        load_processes()[0].send_signal(signal.SIGKILL)
        result = await running
    assert load_processes() == [] and result.lost is not None and result.partial and result.records


async def test_a_load_process_that_is_held_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    async with TokenServer(slow_after(4)) as server:
        running = asyncio.ensure_future(run_load(plan_for(server.url, requests=50), None, heard, asyncio.Event()))
        await asyncio.wait_for(heard.under_way.wait(), 60)
        (child,) = load_processes()
        child.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(launch, "LOOK_S", 0.01)
        result = await asyncio.wait_for(running, 60)
    assert result.lost is not None and "said nothing" in result.lost and result.records
    assert load_processes() == []


async def test_a_killed_parent_takes_its_load_process_with_it() -> None:
    """Also where the end of stdin would not be seen: here it stays open."""
    code = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'decodetop.bench.worker'], stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    pipe = asyncio.subprocess.PIPE
    async with TokenServer(slow_after(0)) as server:
        parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=pipe, stdout=pipe)
        assert parent.stdin is not None and parent.stdout is not None
        worker = psutil.Process(int(await parent.stdout.readline()))
        job = {"plan": {"preset": "t", "endpoint": server.url}, "parent": parent.pid}
        parent.stdin.write(json.dumps(job).encode() + b"\n")
        await asked(server)
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
        await asyncio.to_thread(psutil.wait_procs, [worker], 30)
        assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
        parent.stdin.close()


async def test_a_parent_that_died_at_once_is_noticed() -> None:
    job = {"plan": {"preset": "t", "endpoint": "http://127.0.0.1:9"}, "parent": os.getpid() + 1}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "decodetop.bench.worker", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(child.communicate(json.dumps(job).encode() + b"\n"), 60)
    assert (child.returncode, out) == (1, b"")


async def test_cancelled_leaves_no_process() -> None:
    heard = Heard()
    async with TokenServer(slow_after(4)) as server:
        running = asyncio.ensure_future(run_load(plan_for(server.url, requests=50), None, heard, asyncio.Event()))
        await asyncio.wait_for(heard.under_way.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert load_processes() == []


async def test_it_ends_by_itself_when_its_parent_is_gone() -> None:
    async with TokenServer(slow_after(0)) as server:
        job = {"plan": {"preset": "t", "endpoint": server.url}}
        argv = (sys.executable, "-m", "decodetop.bench.worker")
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
        assert child.stdin is not None
        child.stdin.write(json.dumps(job).encode() + b"\n")
        await asked(server)
        child.stdin.close()
        assert await asyncio.wait_for(child.wait(), 20) == 1
        await child.communicate()
