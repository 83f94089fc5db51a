"""A capture from the command to the capture on screen, and all the ways in which it can come to nothing."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.bench.launch import Launch, Listener, LoadFailed
from decodetop.bench.reading import BenchReading, Plan, Progress
from decodetop.bench.request import Dialect
from decodetop.bench.wire import Ready, Record, Result, Tick
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine, Probe
from decodetop.core.sample import Command, Header, Notice, Reading, Sample
from decodetop.errors import DecodetopError
from decodetop.flows import capture_profile
from decodetop.flows.capture import CaptureService
from decodetop.flows.capture_guard import MARKER
from decodetop.flows.capture_shot import Patience
from decodetop.flows.claim import claimed
from decodetop.server.probe import ServerProbe
from decodetop.server.reading import Flag, Server, ServerReading
from decodetop.sim.process import start_server
from decodetop.steps.reading import CaptureSteps, StepsReading, StopCapture
from decodetop.steps.service import StepsService
from support.profiled_engine import ProfiledEngine
from support.token_server import Break, Seen, Step, Wait, reply

WAIT_S = 60.0
"""For something that must happen; only a failing test waits so long."""

KEY = "sk-capture-123456"
QUICK = Patience(files_s=1.5, stop_s=5.0, lull_s=0.5)
READY = Ready(dialect=Dialect(), model="tiny")


class Played:
    """Stands for the load processes: the measured run ends at once, the held one when it is told to."""

    def __init__(self, itl_ms: float = 5.0, fault: str | None = None) -> None:
        self.plans: list[Plan] = []
        self.itl_ns = int(itl_ms * 1e6)
        self.fault: Any = fault
        self.holding = False
        self.breaks = asyncio.Event()

    async def __call__(self, plan: Plan, key: str | None, listener: Listener, stop: asyncio.Event) -> Result:
        self.plans.append(plan)
        assert key == KEY
        await listener.ready(READY)
        if len(self.plans) % 2 == 0:
            await self._hold(plan, listener, stop)
        return self._result(plan)

    async def _hold(self, plan: Plan, listener: Listener, stop: asyncio.Event) -> None:
        self.holding = True
        listener.tick([Tick(phase="measuring", first_tokens=plan.streams)])
        waits = [asyncio.ensure_future(event.wait()) for event in (stop, self.breaks)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.holding = False
            for wait in waits:
                wait.cancel()
        if self.breaks.is_set():
            raise LoadFailed(f"the connection was reset, {KEY}", "see its log", "cut")

    def _result(self, plan: Plan) -> Result:
        records = [
            Record(
                index=number,
                due_ns=0,
                write_ns=1,
                chunks_ns=[] if self.fault else [100_000_000 + self.itl_ns * at for at in range(plan.output_tokens)],
                chunk_tokens=[1] * (0 if self.fault else plan.output_tokens),
                output_tokens=plan.output_tokens,
                fault=self.fault,
                message=f"no luck with {KEY}" if self.fault else "",
            )
            for number in range(plan.requests)
        ]
        return Result(
            records=records, source="usage", partial=False, unfinished=0, cpu_percent=1.0, loop_lag_ms_p99=0.1
        )


class Told:
    """A server probe that says what it is told to."""

    source, period_s, deadline_s = "server", 1000.0, 5.0

    def __init__(self, server: Server) -> None:
        self.server = server

    async def read(self) -> Reading:
        return ServerReading(servers=(self.server,), current=self.server.endpoint)

    async def close(self) -> None:
        return None


class OwnBox:
    """The server runs as we do, on our file systems."""

    same: bool | None = True
    variables: Mapping[str, str] = {}

    def same_files(self, pid: int) -> bool | None:
        return self.same

    def user(self, pid: int) -> int | None:
        return os.geteuid()

    def environ(self, pid: int) -> Mapping[str, str] | None:
        return self.variables

    def folder(self, pid: int) -> str | None:
        return None

    def root(self, pid: int) -> Path | None:
        return None


class Desk:
    """An engine with the two services in it, and all that came out."""

    def __init__(self, folder: Path, probe: Probe, launch: Launch | None, readonly: bool, box: OwnBox) -> None:
        self.folder = folder
        self.samples: list[Sample] = []
        self.clock = SystemClock()
        self.steps = StepsService(folder)
        more: dict[str, Any] = {"patience": QUICK, "box": box}
        if launch is not None:
            more["launch"] = launch
        else:
            more["patience"], more["box"] = None, None
        self.service = CaptureService(folder, self.steps, lambda: KEY, **more)
        header = Header(version="0", host="box", started_wall_ns=0)
        self.engine = Engine(header, self.clock, [probe], [self.steps, self.service], readonly=readonly)
        self._heard = asyncio.Event()

    def put(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._heard.set()

    def reset(self) -> None:
        raise AssertionError

    @property
    def reading(self) -> StepsReading:
        return self.engine.state.last("steps", StepsReading) or StepsReading()

    @property
    def notices(self) -> list[Notice]:
        return [sample.reading for sample in self.samples if isinstance(sample.reading, Notice)]

    @property
    def phases(self) -> list[str]:
        """In order, each once."""
        seen = [sample.reading.taking.progress for sample in self.samples if isinstance(sample.reading, StepsReading)]
        return list(dict.fromkeys(progress.phase for progress in seen if progress is not None))

    async def until(self, what: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not what():
                self._heard.clear()
                await self._heard.wait()

    async def told(self, command: Command, word: str) -> Notice:
        """Submit and wait for the notice that has this word in it."""

        def said() -> list[Notice]:
            return [notice for notice in self.notices if word in notice.message + notice.hint]

        self.engine.submit(command)
        await self.until(lambda: said() or self._surprised(word))
        return said()[-1]

    def _surprised(self, word: str) -> bool:
        wrong = [notice for notice in self.notices if notice.level == "error"]
        assert not wrong, f"waited for {word!r}, got {wrong}"
        return False


@asynccontextmanager
async def desk(
    folder: Path, probe: Probe, launch: Launch | None = None, *, readonly: bool = False, box: OwnBox | None = None
) -> AsyncIterator[Desk]:
    one = Desk(folder, probe, launch, readonly, box or OwnBox())
    running = asyncio.ensure_future(one.engine.run(one))
    try:
        await one.until(lambda: one.engine.state.lane("server").last is not None)
        yield one
    finally:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


def served(one: ProfiledEngine, **more: Any) -> Server:
    """As the server probe would say it; vLLM names its trace folder on its command line."""
    config = json.dumps({"profiler": "torch", "torch_profiler_dir": str(one.folder)})
    flags = (Flag(name="profiler_config", requested=config),) if one.engine == "vllm" else ()
    fields: dict[str, Any] = {
        "endpoint": one.url,
        "engine": one.engine,
        "version": one.version,
        "status": "up",
        "served_name": "tiny",
        "root_pid": os.getpid(),
        "tp": 2 if one.engine == "sglang" else 1,
        "flags": flags,
        "running": 0,
    }
    return Server(**(fields | more))


# against the simulated box: real load, real watchdog, real trace reader


async def test_the_simulated_server_from_the_key_to_the_bar(tmp_path: Path) -> None:
    with start_server(tp=2, profile_dir=tmp_path / "elsewhere") as sim:
        probe = ServerProbe(SystemClock(), endpoints=(sim.endpoint,), discover=False, usual_ports=False)
        async with desk(tmp_path / "inv", probe) as d:
            notice = await d.told(CaptureSteps(steps=12), "captured")
            (capture,) = d.reading.captures
            report = capture.report
            assert notice.ring and "2 ranks" in notice.message
            assert [rank.rank for rank in report.ranks] == [0, 1]
            assert all(rank.coverage.ok and rank.steps.found == 11 for rank in report.ranks)
            assert report.ranks[0].batches[0].batch_size == 1  # our one stream and nobody else's
            # the simulated TP2 server takes 3.4 ms a token (more where this machine is busy), 5.2 while profiled
            assert report.itl_ms is not None and 2.5 < report.itl_ms < 50
            real, period = report.ranks[0].real, report.ranks[0].period_us
            assert real is not None and real.step_ms == report.itl_ms
            assert period is not None and period.median / 1e3 > 4.7
            phases = ["measuring", "loading", "profiling", "waiting", "reading"]
            assert d.phases == phases
            for file in capture.files:
                assert Path(file).is_relative_to(tmp_path / "inv" / "captures") and Path(file).is_file()
            assert not (tmp_path / "elsewhere").exists()
            assert not (tmp_path / "inv" / MARKER).exists()
            assert d.reading.taking.progress is None
        assert KEY not in repr(d.samples)
    stored = StepsService(tmp_path / "inv")
    stored._store.load()
    assert stored._store.captures == (capture,)


async def test_requests_of_others_are_captured_as_they_run(tmp_path: Path) -> None:
    with start_server(visitors=3) as sim:
        probe = ServerProbe(SystemClock(), endpoints=(sim.endpoint,), discover=False, usual_ports=False)
        probe.period_s = 0.2
        async with desk(tmp_path, probe) as d:
            await d.until(lambda: (_server(d).running or 0) >= 2)
            await d.told(CaptureSteps(steps=12), "captured")
            (capture,) = d.reading.captures
            assert capture.report.itl_ms is not None and 4.0 < capture.report.itl_ms < 90
            # none of our streams: the visitors of the simulated box would leave for those
            assert "loading" not in d.phases
            seen = [sample.reading.taking.progress for sample in d.samples if isinstance(sample.reading, StepsReading)]
            assert {progress.streams for progress in seen if progress is not None} == {0}


def _server(d: Desk) -> Server:
    reading = d.engine.state.last("server", ServerReading)
    assert reading is not None
    return reading.servers[0]


# an engine that has to be told to stop


async def test_vllm_is_started_under_load_and_stopped(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        (tmp_path / "prof").mkdir()
        (tmp_path / "prof" / "rank0.1.pt.trace.json.gz").write_bytes(b"of an earlier profile")
        launch = Played()
        under_load: list[bool] = []

        def write(folder: Path) -> None:
            under_load.append(launch.holding)
            engine.write(folder)

        engine.writes = write
        async with desk(tmp_path / "inv", Told(served(engine)), launch) as d:
            await d.told(CaptureSteps(), "captured")
            assert engine.controls == ["/start_profile", "/stop_profile"]
            (start,) = engine.posts("/start_profile")
            assert start.body == {"max_iterations": 20}
            assert start.headers["authorization"] == f"Bearer {KEY}"
            assert under_load == [True] and not launch.holding
            assert [(plan.streams, plan.preset) for plan in launch.plans] == [(1, "capture")] * 2
            (capture,) = d.reading.captures
            assert [Path(file).parent for file in capture.files] == [tmp_path / "prof"]  # and not the front end's
            assert capture.report.itl_ms == 5.0 and capture.report.engine == "vllm"
        assert not (tmp_path / "inv" / MARKER).exists()


async def test_a_load_of_many_streams_is_measured_and_profiled_alike(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        launch = Played()
        async with desk(tmp_path / "inv", Told(served(engine)), launch) as d:
            await d.told(CaptureSteps(load=8), "captured")
            assert [plan.streams for plan in launch.plans] == [8, 8]


async def test_sglang_is_asked_for_few_steps_without_stacks_into_the_investigation(tmp_path: Path) -> None:
    async with (
        ProfiledEngine("sglang", tmp_path / "default") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played()) as d,
    ):
        await d.told(CaptureSteps(steps=8), "captured")
        (start,) = engine.posts("/start_profile")
        folder = start.body.pop("output_dir")
        assert start.body == {
            "num_steps": 8, "activities": ["CPU", "GPU"], "with_stack": False, "record_shapes": False,
        }  # fmt: skip
        assert Path(folder).parent == tmp_path / "inv" / "captures"
        assert engine.controls == ["/start_profile"]  # it ends by itself
        assert [Path(file).parent for file in d.reading.captures[0].files] == [Path(folder)] * 2


# refusals: one line each, and nothing is left profiling


def says(status: str, text: bytes) -> Callable[[Seen], Iterable[Step]]:
    return lambda seen: [reply(status, text, "text/plain")]


REFUSALS: list[tuple[str, Callable[[Seen], Iterable[Step]], str, str]] = [
    ("vllm", says("404 Not Found", b'{"detail":"Not Found"}'), "without a profiler", "--profiler-config"),
    ("vllm", says("401 Unauthorized", b"no"), "refuses the key given", "DECODETOP_API_KEY"),
    ("sglang", says("401 Unauthorized", b"no"), "refuses the key given", "admin key"),
    ("sglang", says("500 Internal Server Error", b"Internal Server Error"), "refused to start", "under way already"),
    ("sglang", says("400 Bad Request", b"Profiling is already in progress."), "profiled already", "wait for its end"),
    ("sglang", says("404 Not Found", b""), "no POST /start_profile there", "router"),
    ("vllm", says("503 Service Unavailable", b"loading " + KEY.encode()), "answered 503", "log"),
]


@pytest.mark.parametrize("number", range(len(REFUSALS)))
async def test_a_refusal_is_said_and_nothing_is_stopped(number: int, tmp_path: Path) -> None:
    kind, answer, words, hint = REFUSALS[number]
    async with ProfiledEngine(kind, tmp_path / "prof") as engine:
        engine.answers["/start_profile"] = answer
        launch = Played()
        async with desk(tmp_path / "inv", Told(served(engine)), launch) as d:
            notice = await d.told(CaptureSteps(), words)
            assert notice.level == "error" and hint in notice.hint and "\n" not in notice.message
            assert KEY not in repr(d.samples)
            assert engine.controls == ["/start_profile"]  # somebody else's profile is not ours to stop
            assert not launch.holding and not (tmp_path / "inv" / MARKER).exists()
            assert d.reading.taking.error is not None and words in d.reading.taking.error
            assert d.reading.captures == () and d.reading.taking.progress is None


async def test_a_server_under_a_benchmark_is_not_profiled(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        server = served(engine)
        async with desk(tmp_path / "inv", Told(server), Played()) as d:
            with claimed([server.endpoint], "a benchmark"):
                notice = await d.told(CaptureSteps(), "under load already, by a benchmark")
            assert "wait for its end" in notice.hint and engine.controls == []


async def test_a_start_that_is_never_answered_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_profile, "START_S", 0.3)
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        engine.answers["/start_profile"] = lambda seen: [Wait(WAIT_S)]
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            await d.told(CaptureSteps(), "did not answer POST /start_profile")
            await asyncio.wait_for(engine.stopped.wait(), WAIT_S)  # it may have started all the same
        assert not (tmp_path / "inv" / MARKER).exists()


async def test_a_stop_that_breaks_is_left_to_the_watchdog(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        stops: list[Seen] = []

        def broken_once(seen: Seen) -> Iterable[Step]:
            stops.append(seen)
            return [Break(reset=True)] if len(stops) == 1 else engine._stop()

        engine.answers["/stop_profile"] = broken_once
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            notice = await d.told(CaptureSteps(), "connection broke at POST /stop_profile")
            assert "log" in notice.hint
            assert len(stops) == 2 and not engine.profiling
        assert not (tmp_path / "inv" / MARKER).exists()


async def test_a_server_that_is_gone(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        server = served(engine)
    async with desk(tmp_path / "inv", Told(server), Played()) as d:
        notice = await d.told(CaptureSteps(), "can't connect")
        assert "refused" in notice.message and "is the server up" in notice.hint


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"status": "needs_key", "status_message": "it refuses the key given"}, "wants a key"),
        ({"status": "down", "status_message": "connection refused"}, "is down: connection refused"),
        ({"engine": "llamacpp"}, "llama.cpp has no profiler over HTTP"),
        ({"engine": "unknown"}, "engine is not known"),
        (
            {"flags": (Flag(name="profiler_config", requested='{"profiler":"cuda"}'),)},
            "the profiler 'cuda', which writes no torch trace",
        ),
    ],
)
async def test_servers_that_can_not_be_profiled_are_not_asked(more: dict[str, Any], words: str, tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        launch = Played()
        async with desk(tmp_path / "inv", Told(served(engine, **more)), launch) as d:
            notice = await d.told(CaptureSteps(), words)
            assert notice.level == "error" and notice.hint
            assert engine.server.posts == [] and launch.plans == []


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (CaptureSteps(steps=3), "3 steps are not between 4 and 500"),
        (CaptureSteps(load=0), "0 streams is not between"),
        (CaptureSteps(endpoint="http://127.0.0.1:9"), "no server http://127.0.0.1:9 is watched"),
        (StopCapture(), "no capture is under way"),
    ],
)
async def test_senseless_asks(ask: Command, words: str, tmp_path: Path) -> None:
    async with (
        ProfiledEngine("vllm", tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played()) as d,
    ):
        assert (await d.told(ask, words)).hint
        assert engine.server.posts == []


async def test_readonly_touches_nothing(tmp_path: Path) -> None:
    async with (
        ProfiledEngine("vllm", tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played(), readonly=True) as d,
    ):
        await d.told(CaptureSteps(), "can't profile the server: started with --readonly")
        await d.told(StopCapture(), "can't stop the capture")
        assert engine.server.posts == []


async def test_not_while_a_benchmark_runs(tmp_path: Path) -> None:
    async with (
        ProfiledEngine("vllm", tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played()) as d,
    ):
        progress = Progress(preset="single", endpoint=engine.url, phase="measuring")
        d.engine.emit("bench", BenchReading(progress=progress))
        await d.told(CaptureSteps(), "a benchmark is running")
        assert engine.server.posts == []


async def test_a_load_without_success_is_said_before_anything_is_profiled(tmp_path: Path) -> None:
    async with (
        ProfiledEngine("vllm", tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played(fault="http")) as d,
    ):
        notice = await d.told(CaptureSteps(), "no request of the load succeeded")
        assert "no luck with ***" in notice.message and KEY not in repr(d.samples)
        assert engine.controls == []


# files


async def test_a_trace_that_is_never_finished(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:

        def cut(folder: Path) -> None:
            engine.write(folder)
            for trace in folder.glob("*.gz"):
                trace.write_bytes(trace.read_bytes()[:-2000])

        engine.writes = cut
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            notice = await d.told(CaptureSteps(), "was never finished")
            assert "decodetop steps" in notice.hint and d.reading.captures == ()
            assert not (tmp_path / "inv" / MARKER).exists()


async def test_the_ranks_that_came_are_read_and_the_rest_is_said(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:

        def half(folder: Path) -> None:
            engine.write(folder)
            last = sorted(folder.glob("*.gz"))[-1]
            last.write_bytes(last.read_bytes()[:-2000])

        engine.writes = half
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            await d.told(CaptureSteps(), "captured")
            assert [rank.rank for rank in d.reading.captures[0].report.ranks] == [0]
            words = [notice.message for notice in d.notices if notice.level == "warning"]
            assert any("left out, unfinished" in word and "TP-1" in word for word in words)
            assert any("1 of 2 ranks" in word for word in words)


async def test_files_that_come_bit_by_bit_are_waited_for(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:
        parts: list[tuple[Path, bytes]] = []

        def begin(folder: Path) -> None:
            engine.write(folder)
            for trace in sorted(folder.glob("*.gz")):
                data = trace.read_bytes()
                trace.write_bytes(data[: len(data) // 2])
                parts.append((trace, data))

        engine.writes = begin
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            d.engine.submit(CaptureSteps())
            await d.until(lambda: d.phases[-1:] == ["waiting"])
            for trace, data in parts:
                with trace.open("ab") as file:
                    file.write(data[len(data) // 2 :])
            await d.until(lambda: d.reading.captures)
            report = d.reading.captures[0].report
            assert len(report.ranks) == 2 and all(rank.unreadable_events == 0 for rank in report.ranks)


async def test_no_file_within_the_time_stops_the_profile_and_says_where_it_was_awaited(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:
        engine.writes = lambda folder: None
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            notice = await d.told(CaptureSteps(), "no trace came to")
            assert "container" in notice.hint and "--itl-ms 5" in notice.hint
            assert engine.controls == ["/start_profile", "/stop_profile"]
            assert not (tmp_path / "inv" / MARKER).exists()
            assert list((tmp_path / "inv" / "captures").iterdir()) == []  # an empty folder is taken away


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("vllm", {"local": False, "root_pid": None}, "on another host). There they are in "),
        ("vllm", {"flags": ()}, "torch_profiler_dir it was started with"),
        ("sglang", {"local": False, "root_pid": None}, "SGLANG_TORCH_PROFILER_DIR"),
    ],
)
async def test_traces_that_can_not_be_seen_are_named_as_the_server_names_them(
    kind: str, more: dict[str, Any], words: str, tmp_path: Path
) -> None:
    async with (
        ProfiledEngine(kind, tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine, **more)), Played()) as d,
    ):
        notice = await d.told(CaptureSteps(), "can't be read from here")
        assert words in notice.message and "decodetop steps FILE.. --itl-ms 5" in notice.hint
        assert engine.controls == ["/start_profile", "/stop_profile"]
        assert "output_dir" not in (engine.posts("/start_profile")[0].body or {})


async def test_a_container_s_files_are_named_when_they_can_not_be_reached(tmp_path: Path) -> None:
    box = OwnBox()
    box.same = False
    async with (
        ProfiledEngine("vllm", tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played(), box=box) as d,
    ):
        notice = await d.told(CaptureSteps(), "can't be read from here")
        assert "inside the server's container" in notice.message and str(engine.folder) in notice.message


# the end comes early


async def test_stopped_by_the_operator(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        launch = Played(itl_ms=1000.0)  # a long window
        async with desk(tmp_path / "inv", Told(served(engine)), launch) as d:
            d.engine.submit(CaptureSteps())
            await asyncio.wait_for(engine.started.wait(), WAIT_S)
            marker = tmp_path / "inv" / MARKER
            assert json.loads(marker.read_bytes())["endpoint"] == engine.url
            await d.told(StopCapture(), "the capture was stopped")
            assert not engine.profiling and not launch.holding and not marker.exists()
            assert d.reading.captures == () and d.reading.taking.progress is None
            assert not [notice for notice in d.notices if notice.level != "info"]


async def test_the_end_of_the_engine_stops_the_profile_too(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        async with desk(tmp_path / "inv", Told(served(engine)), Played(itl_ms=1000.0)) as d:
            d.engine.submit(CaptureSteps())
            await asyncio.wait_for(engine.started.wait(), WAIT_S)
        await asyncio.wait_for(engine.stopped.wait(), WAIT_S)
        assert not engine.profiling


async def test_a_second_capture_is_refused_here_and_in_another_decodetop(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        probe = Told(served(engine))
        async with (
            desk(tmp_path / "inv", probe, Played(itl_ms=1000.0)) as d,
            desk(tmp_path / "inv", probe, Played()) as other,
        ):
            d.engine.submit(CaptureSteps())
            await asyncio.wait_for(engine.started.wait(), WAIT_S)
            await d.told(CaptureSteps(), "a capture is under way already")
            await other.told(CaptureSteps(), "under load already, by a capture")
            assert engine.controls == ["/start_profile"]
            d.samples.clear()
            await d.told(StopCapture(), "the capture was stopped")


async def test_a_server_that_dies_while_it_is_profiled(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:
        engine.writes = lambda folder: None
        launch = Played(itl_ms=200.0)
        probe = Told(served(engine))
        async with desk(tmp_path / "inv", probe, launch) as d:
            d.engine.submit(CaptureSteps())
            await asyncio.wait_for(engine.started.wait(), WAIT_S)
            probe.server = msgspec.structs.replace(probe.server, status="down", status_message="connection refused")
            await d.until(lambda: d.reading.taking.error)
            assert "went down while it was profiled" in str(d.reading.taking.error)
            assert "log" in str(d.reading.taking.error)


async def test_a_load_that_breaks_is_the_server_s_end_too(tmp_path: Path) -> None:
    async with ProfiledEngine("sglang", tmp_path / "default") as engine:
        engine.writes = lambda folder: None
        launch = Played(itl_ms=200.0)
        async with desk(tmp_path / "inv", Told(served(engine)), launch) as d:
            d.engine.submit(CaptureSteps())
            await asyncio.wait_for(engine.started.wait(), WAIT_S)
            launch.breaks.set()
            await d.until(lambda: d.reading.taking.error)
            assert "the connection was reset, ***" in str(d.reading.taking.error)
            assert KEY not in repr(d.samples)


# what a dead capture left


async def test_a_profiler_left_running_is_told_at_the_next_start_and_stopped_when_asked(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        engine.profiling = True
        left = {"endpoint": engine.url, "engine": "vllm", "host": "box", "since_wall_ns": 1}
        (tmp_path / MARKER).write_text(json.dumps(left))
        async with desk(tmp_path, Told(served(engine)), Played()) as d:
            await d.until(lambda: d.reading.taking.left and d.notices)
            assert d.notices[0].level == "warning" and engine.url in d.notices[0].message
            refused = await d.told(CaptureSteps(), "may still be profiled by a capture that died")
            assert "--stop" in refused.hint and engine.controls == []
            d.samples.clear()
            await d.told(StopCapture(), "does not run any more")
            assert engine.controls == ["/stop_profile"] and not engine.profiling
            assert d.reading.taking.left is None and not (tmp_path / MARKER).exists()
            await d.told(CaptureSteps(), "captured")


async def test_a_marker_that_tells_of_nothing_is_no_leftover(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        (tmp_path / MARKER).write_bytes(b"")
        async with desk(tmp_path, Told(served(engine)), Played()) as d:
            await d.told(CaptureSteps(), "captured")
            assert d.notices[0].level == "info"


async def test_a_trace_being_read_is_waited_for(tmp_path: Path) -> None:
    async with (
        ProfiledEngine("vllm", tmp_path / "prof") as engine,
        desk(tmp_path / "inv", Told(served(engine)), Played()) as d,
    ):
        held = d.steps._task = asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[assignment]
        d.engine.submit(CaptureSteps())
        await d.until(lambda: d.phases[-1:] == ["reading"])
        assert d.reading.captures == () and d.reading.parsing is None
        d.steps._task = None
        held.cancel()
        await d.until(lambda: d.reading.captures)


async def test_errors_of_the_way_in_are_raised_for_the_command_line(tmp_path: Path) -> None:
    async with ProfiledEngine("vllm", tmp_path / "prof") as engine:
        engine.answers["/start_profile"] = says("404 Not Found", b"")
        async with desk(tmp_path / "inv", Told(served(engine)), Played()) as d:
            with pytest.raises(DecodetopError, match="without a profiler"):
                await d.service.capture(CaptureSteps(), d.engine)
