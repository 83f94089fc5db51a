"""A capture from the command to the capture on screen."""

from __future__ import annotations

from pathlib import Path

from decodetop.core.clock import SystemClock
from decodetop.flows.capture_guard import MARKER
from decodetop.server.probe import ServerProbe
from decodetop.server.reading import Server, ServerReading
from decodetop.sim.process import start_server
from decodetop.steps.reading import CaptureSteps, StepsReading
from decodetop.steps.service import StepsService
from support.capture_desk import KEY, Desk, Played, Told, desk, served
from support.profiled_engine import ProfiledEngine

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
