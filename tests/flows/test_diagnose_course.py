"""A diagnosis that is stopped, breaks or goes on: what is kept, what is tried again, what is said."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodetop.bench.plan import Overrides, load_presets
from decodetop.bench.reading import ClientCheck, Environment, Metrics, Plan, Quantiles, Requests, Run, Tokens
from decodetop.bench.store import RunStore
from decodetop.cli import main
from decodetop.core.clock import SystemClock
from decodetop.core.engine import Engine
from decodetop.core.sample import Command, Header, Notice, Reading, Sample
from decodetop.diagnosis.reading import Diagnose, Diagnosis, DiagnosisReading, StopDiagnosis
from decodetop.diagnosis.store import DiagnosisStore
from decodetop.errors import DecodetopError, RequestError, TraceError, UsageError
from decodetop.floor.hardware import load, named
from decodetop.floor.reading import FloorReading, WhatIf
from decodetop.flows.bench import Outcome
from decodetop.flows.diagnose import DiagnoseService
from decodetop.flows.diagnose_course import Request
from decodetop.flows.floor import Ask
from decodetop.server.reading import Flag, Server, ServerReading
from decodetop.steps.analyse import analyse
from decodetop.steps.reading import Capture
from decodetop.steps.store import CaptureStore
from decodetop.todo.reading import AddTodo, RedoTodo, TodoReading, UndoTodo
from decodetop.todo.service import TodoService
from decodetop.todo.store import TodoStore

TESTS = Path(__file__).resolve().parents[1]
CONFIG = TESTS / "floor" / "configs" / "qwen3-8b.json"
NOGRAPH = next((TESTS / "captures" / "sglang_tp1_nograph" / "prof_c1").glob("*.gz"))
WAIT_S = 60.0
SERVER = Server(
    endpoint="http://127.0.0.1:30000",
    engine="sglang",
    version="0.5.15",
    status="up",
    model=str(CONFIG),
    tp=1,
    flags=(Flag(name="disable_cuda_graph", requested="true"), Flag(name="random_seed", resolved="7")),
)


def one_value(value: float) -> Quantiles:
    return Quantiles(n=9, mean=value, p50=value, p90=value, p99=value)


def a_run(partial: bool = False) -> Run:
    metrics: dict[str, Any] = dict.fromkeys(Metrics.__struct_fields__)
    return Run(
        started_wall_ns=1,
        duration_s=1.0,
        valid=True,
        partial=partial,
        gates=(),
        plan=Plan(
            preset="single", endpoint=SERVER.endpoint, streams=1, requests=4, input_tokens=16, output_tokens=8, seed=1
        ),
        environment=Environment(decodetop="0"),
        requests=Requests(ok=4, failed=0),
        tokens=Tokens(output=32, prompt=64, cached=None, source="usage"),
        metrics=Metrics(**{**metrics, "itl_ms": one_value(19.347)}),
        client=ClientCheck(loop_lag_ms_p99=None, cpu_percent=None, send_delay_ms_p99=None),
    )


class Bench:
    """Stands for the benchmark: stores a run, or breaks, or waits to be stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = 0
        self.error: DecodetopError | None = None
        self.hangs = False
        self.partial = False

    async def measure(self, plans: Any, context: Any, stop: Any = None) -> Outcome:
        self.calls += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            return Outcome(runs=(), error=self.error)
        store = RunStore(self.folder)
        try:
            return Outcome(runs=(store.add(a_run(self.partial)),))
        finally:
            store.close()


class Captures:
    """Stands for the capture."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = 0
        self.error: DecodetopError | None = None
        self.hangs = False
        self.stopped = False

    async def capture(self, ask: Any, context: Any) -> Capture | None:
        self.calls += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        if self.stopped:
            return None
        capture = Capture(id=f"c{self.calls}", made_wall_ns=5, files=(str(NOGRAPH),), report=analyse([NOGRAPH]))
        store = CaptureStore(self.folder)
        store.add(capture)
        return capture


class Told:
    source, period_s, deadline_s = "server", 1000.0, 5.0

    def __init__(self) -> None:
        self.server = SERVER

    async def read(self) -> Reading:
        return ServerReading(servers=(self.server,), current=self.server.endpoint)

    async def close(self) -> None:
        return None


class Desk:
    def __init__(self, folder: Path, readonly: bool = False) -> None:
        self.folder = folder
        self.bench, self.captures, self.told = Bench(folder), Captures(folder), Told()
        self.samples: list[Sample] = []
        card = named("H200", load())
        bench: Any = self.bench
        captures: Any = self.captures
        self.service = DiagnoseService(folder, load_presets(), bench, captures, lambda server, gpus, problem: card)
        header = Header(version="0", host="box", started_wall_ns=0)
        self.engine = Engine(header, SystemClock(), [self.told], [self.service], readonly=readonly)
        self._heard = asyncio.Event()

    def put(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._heard.set()

    def reset(self) -> None:
        """A live engine never does."""

    async def until(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not seen():
                self._heard.clear()
                await self._heard.wait()

    @property
    def reading(self) -> DiagnosisReading:
        return self.engine.state.last("diagnosis", DiagnosisReading) or DiagnosisReading()

    def statuses(self) -> list[str]:
        return [] if self.reading.latest is None else [stage.status for stage in self.reading.latest.stages]

    def notices(self) -> list[Notice]:
        return [sample.reading for sample in self.samples if isinstance(sample.reading, Notice)]

    async def play(self, work: Callable[[], Awaitable[None]]) -> None:
        running = asyncio.ensure_future(self.engine.run(self))
        try:
            await self.until(lambda: self.engine.state.lane("server").last is not None)
            await work()
        finally:
            running.cancel()
            await asyncio.wait({running})

    async def ask(self, **changes: Any) -> Diagnosis | None:
        return await self.service.diagnose(Request(**changes), self.engine)

    def submit(self, command: Command) -> None:
        self.engine.submit(command)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_the_key_does_all_of_it_and_says_the_verdict(desk: Desk) -> None:
    async def work() -> None:
        desk.submit(Diagnose())
        await desk.until(lambda: any("Host-bound" in one.message for one in desk.notices()))

    await desk.play(work)
    assert desk.statuses() == ["done"] * 4
    assert desk.notices()[-1].ring
    stages = [
        [stage.status for stage in sample.reading.latest.stages]
        for sample in desk.samples
        if isinstance(sample.reading, DiagnosisReading) and sample.reading.latest is not None
    ]
    assert ["running", "waiting", "waiting", "waiting"] in stages
    assert ["done", "running", "waiting", "waiting"] in stages
    assert [sample.seq for sample in desk.samples] == sorted(sample.seq for sample in desk.samples)


async def test_a_finished_one_is_made_anew(desk: Desk) -> None:
    async def work() -> None:
        await desk.ask()
        await desk.ask()

    await desk.play(work)
    assert (desk.bench.calls, desk.captures.calls) == (2, 2)


async def test_stopped_in_the_capture_it_goes_on_there(desk: Desk, tmp_path: Path) -> None:
    desk.captures.hangs = True

    async def stopped() -> None:
        desk.submit(Diagnose())
        await desk.until(lambda: desk.statuses()[1:2] == ["running"] and desk.captures.calls == 1)
        desk.submit(StopDiagnosis())
        await desk.until(lambda: any("was stopped" in one.message for one in desk.notices()))

    await desk.play(stopped)
    assert desk.statuses() == ["done", "stopped", "waiting", "waiting"]
    assert "one stream kept; left: decode steps profiled" in desk.notices()[-1].message

    later = Desk(tmp_path)
    results: list[Diagnosis | None] = []

    async def goes_on() -> None:
        await later.until(lambda: later.reading.latest is not None)
        assert later.statuses()[0] == "done", "a new session shows what there is"
        results.append(await later.ask())

    await later.play(goes_on)
    assert (later.bench.calls, later.captures.calls) == (0, 1)
    (found,) = results
    kept = DiagnosisStore(tmp_path).newest()
    assert found is not None and kept is not None and kept.finished and kept.run_id == 1
    assert len(list(DiagnosisStore(tmp_path).folder.iterdir())) == 1


async def test_the_stages_of_the_one_before_are_not_told_as_its_own(desk: Desk) -> None:
    """`--measured-ms 50` after a diagnosis printed `measure: done, run 1: 19.3 ms a token` and the old verdict."""
    running: list[Diagnosis] = []

    async def work() -> None:
        first = await desk.ask()
        before = len(desk.samples)
        second = await desk.ask(ask=Ask(token_ms=50.0))
        assert first is not None and second is not None and second.run_id is None
        running.extend(
            sample.reading.latest
            for sample in desk.samples[before:]
            if isinstance(sample.reading, DiagnosisReading) and sample.reading.running and sample.reading.latest
        )

    await desk.play(work)
    assert running and all(one.stage("measure").words == "time per token as given" for one in running)


async def test_another_load_than_that_of_what_goes_on_is_measured(desk: Desk) -> None:
    """A diagnosis judged without its capture goes on; with --input-tokens 16000 the run of 16 tokens was taken."""

    async def work() -> None:
        desk.captures.error = TraceError("no trace came", "look at its log")
        await desk.ask()
        await desk.ask(load=Overrides(input_tokens=16))
        assert desk.bench.calls == 1
        await desk.ask(load=Overrides(input_tokens=16_000))

    await desk.play(work)
    assert desk.bench.calls == 2


@pytest.mark.parametrize("change", ["again", "flags", "nothing but the seed"])
async def test_what_is_kept_is_of_the_same_server(tmp_path: Path, change: str) -> None:
    first = Desk(tmp_path)
    first.captures.stopped = True

    async def stopped() -> None:
        assert await first.ask() is None

    await first.play(stopped)
    later = Desk(tmp_path)
    flag = Flag(name="random_seed", resolved="8") if change != "flags" else Flag(name="tp_size", resolved="2")
    later.told.server = Server(
        **{
            **{name: getattr(SERVER, name) for name in SERVER.__struct_fields__},
            "flags": (SERVER.flags[0], flag),
        }
    )

    async def goes_on() -> None:
        assert await later.ask(again=change == "again") is not None

    await later.play(goes_on)
    assert later.bench.calls == (0 if change == "nothing but the seed" else 1)


async def test_a_benchmark_that_breaks_ends_it_in_words(desk: Desk) -> None:
    desk.bench.error = RequestError("no request succeeded", "see its log")

    async def work() -> None:
        with pytest.raises(RequestError):
            await desk.ask()

    await desk.play(work)
    assert desk.statuses() == ["failed", "waiting", "waiting", "waiting"]
    assert "no request succeeded" in (desk.reading.error or "") and not desk.reading.running


async def test_a_benchmark_stopped_by_hand_stops_it(desk: Desk) -> None:
    desk.bench.partial = True

    async def work() -> None:
        assert await desk.ask() is None

    await desk.play(work)
    assert desk.statuses()[0] == "stopped" and desk.captures.calls == 0


async def test_a_capture_that_breaks_is_told_and_tried_again(desk: Desk) -> None:
    desk.captures.error = TraceError("no trace came", "look at its log")

    async def work() -> None:
        found = await desk.ask()
        assert found is not None and found.report is not None and found.report.t_meas_ms == 19.347
        assert [stage.status for stage in found.stages] == ["done", "failed", "done", "done"]
        desk.captures.error = None
        again = await desk.ask()
        assert again is not None and again.finished and again.id == found.id
        assert again.report is not None and again.report.verdict is not None
        assert again.report.verdict.id == "host_bound"

    await desk.play(work)
    assert (desk.bench.calls, desk.captures.calls) == (1, 2)


async def test_an_engine_without_a_profiler_is_judged_without(desk: Desk) -> None:
    desk.told.server = Server(endpoint=SERVER.endpoint, engine="llamacpp", status="up", model=str(CONFIG), tp=1)

    async def work() -> None:
        found = await desk.ask()
        assert found is not None and found.finished
        assert "no profiler over HTTP" in found.stage("steps").words

    await desk.play(work)
    assert desk.captures.calls == 0


@pytest.mark.parametrize(
    ("started", "said"), [(1, "the newest of the investigation"), (9, "no capture of this server")]
)
async def test_without_profiling_the_newest_capture_of_this_very_server_stands_for_it(
    desk: Desk, started: int, said: str
) -> None:
    desk.told.server = msgspec.structs.replace(SERVER, started_wall_ns=started)

    async def work() -> None:
        await desk.captures.capture(None, None)
        found = await desk.ask(profile=False)
        assert found is not None and said in found.stage("steps").words
        assert (found.capture_id == "c1") == (started == 1)

    await desk.play(work)


async def test_a_model_that_is_not_here_costs_no_benchmark(desk: Desk) -> None:
    desk.told.server = Server(endpoint=SERVER.endpoint, engine="sglang", status="up", model="Qwen/Nowhere", tp=1)

    async def work() -> None:
        with pytest.raises(UsageError, match="neither a path nor in the local cache"):
            await desk.ask()

    await desk.play(work)
    assert desk.bench.calls == 0


async def test_readonly_refuses_the_key(tmp_path: Path) -> None:
    desk = Desk(tmp_path, readonly=True)

    async def work() -> None:
        desk.submit(Diagnose())
        await desk.until(lambda: bool(desk.notices()))

    await desk.play(work)
    assert desk.notices()[0].message == "can't diagnose the server: started with --readonly"
    assert desk.bench.calls == 0


async def test_one_at_a_time(desk: Desk) -> None:
    desk.bench.hangs = True

    async def work() -> None:
        desk.submit(Diagnose())
        await desk.until(lambda: desk.bench.calls == 1)
        with pytest.raises(UsageError, match="under way"):
            await desk.ask()

    await desk.play(work)


FAR = msgspec.structs.replace(SERVER, endpoint="http://far.example:30000", local=False)


def unknown_card(server: Server | None, gpus: Any, problem: str | None) -> Any:
    raise UsageError("http://far.example:30000 runs on another host: its GPU is not known", "give its name: --gpu NAME")


async def test_a_server_on_another_host_is_measured_and_what_can_not_be_done_is_said(desk: Desk) -> None:
    desk.told.server, desk.service.card = FAR, unknown_card

    async def work() -> None:
        desk.submit(Diagnose(endpoint=FAR.endpoint))
        await desk.until(lambda: not desk.reading.running and "skipped" in desk.statuses()[2:])

    await desk.play(work)
    assert desk.statuses() == ["done", "skipped", "skipped", "skipped"]
    assert (desk.bench.calls, desk.captures.calls) == (1, 0), "a trace that can't be read is not made"
    assert desk.reading.latest is not None and desk.reading.error is None
    steps, judge = desk.reading.latest.stages[1].words, desk.reading.latest.stages[2].words
    assert "copy them here and open them (o), or give --steps FILE" in steps
    assert "its GPU is not known" in judge and "--gpu NAME --model PATH" in judge
    said = desk.notices()[-1]
    assert said.message.startswith("run 1: 19.3 ms a token, one stream; not judged: ") and said.ring


async def test_a_server_on_another_host_is_judged_by_the_card_that_was_chosen(desk: Desk) -> None:
    desk.told.server, desk.service.card = FAR, unknown_card

    async def work() -> None:
        desk.engine.emit("floor", FloorReading(asked=WhatIf(gpu="H200")))
        desk.submit(Diagnose(endpoint=FAR.endpoint))
        await desk.until(lambda: desk.reading.latest is not None and desk.reading.latest.finished)

    await desk.play(work)
    assert desk.statuses() == ["done", "skipped", "done", "done"]
    assert desk.reading.latest is not None and desk.reading.latest.report is not None
    assert desk.reading.latest.report.hardware.name.startswith("H200")


async def test_the_command_refuses_a_card_that_is_not_known_before_it_measures(desk: Desk) -> None:
    desk.told.server, desk.service.card = FAR, unknown_card

    async def work() -> None:
        with pytest.raises(UsageError, match="its GPU is not known"):
            await desk.ask(endpoint=FAR.endpoint)

    await desk.play(work)
    assert desk.bench.calls == 0


async def test_what_a_diagnosis_put_on_the_list_is_taken_back_as_one_edit(desk: Desk, tmp_path: Path) -> None:
    """Where a screen shows the list by `u`, and what was edited since stays."""
    todo = TodoService(tmp_path)
    desk.engine = Engine(
        Header(version="0", host="box", started_wall_ns=0), SystemClock(), [desk.told], [desk.service, todo]
    )

    def listed() -> TodoReading:
        return desk.engine.state.last("todo", TodoReading) or TodoReading(path="")

    async def work() -> None:
        await desk.until(lambda: listed().revision >= 0)
        await desk.ask()
        await desk.until(lambda: len(listed().todos) > 1 and listed().undo_depth == 1)
        desk.submit(AddTodo(content="of the operator"))
        await desk.until(lambda: listed().undo_depth == 2)
        desk.submit(UndoTodo())
        desk.submit(UndoTodo())
        await desk.until(lambda: not listed().todos)
        desk.submit(RedoTodo())
        await desk.until(lambda: len(listed().todos) > 1)

    await desk.play(work)


async def test_without_a_screen_the_command_takes_it_back(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        await desk.ask()

    await desk.play(work)
    assert len(TodoStore(tmp_path).read().items) > 1
    assert main(["todo", "--investigation", str(tmp_path), "undo"]) == 0
    assert TodoStore(tmp_path).read().items == () and "is gone" in capsys.readouterr().out


async def test_a_checklist_that_can_not_be_written_costs_the_items_only(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "todo.json").mkdir()

    async def work() -> None:
        found = await desk.ask()
        assert found is not None and found.report is not None
        assert [one.status for one in found.stages] == ["done", "done", "done", "failed"]
        assert "todo.json" in found.stage("checklist").words
        (tmp_path / "todo.json").rmdir()
        again = await desk.ask()
        assert again is not None and [one.status for one in again.stages] == ["done"] * 4

    await desk.play(work)
    assert (desk.bench.calls, desk.captures.calls) == (1, 1), "the next start tries the items again, and nothing else"
