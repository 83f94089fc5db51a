"""A diagnosis that is stopped, breaks or goes on: what is kept, what is tried again, what is said."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from decodetop.bench.plan import Overrides
from decodetop.diagnosis.reading import Diagnose, Diagnosis, DiagnosisReading, StopDiagnosis
from decodetop.diagnosis.store import DiagnosisStore
from decodetop.errors import RequestError, TraceError, UsageError
from decodetop.flows.floor import Ask
from decodetop.server.reading import Flag, Server
from support.diagnose_desk import CONFIG, SERVER, Desk


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
