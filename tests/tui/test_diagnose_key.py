"""The key `d`: asks before it diagnoses, stops what runs, and the steps pane tells how it goes."""

from __future__ import annotations

import pytest

from decodetop.core.clock import SECOND_NS
from decodetop.core.state import State
from decodetop.diagnosis.reading import STAGES, Diagnose, Diagnosis, DiagnosisReading, Stage, StageStatus, StopDiagnosis
from decodetop.steps.reading import CAPTURE_COSTS
from decodetop_tui.screens.confirm import Confirm
from support import states
from support.face import Desk, desk


def with_diagnosis(*statuses: StageStatus, running: bool = False, words: str = "") -> State:
    stages = tuple(
        Stage(name=name, status=status, words=words if status in ("running", "failed") else "", since_ns=55 * SECOND_NS)
        for name, status in zip(STAGES, statuses, strict=True)
    )
    latest = Diagnosis(id="diagnosis-1", made_wall_ns=1, subject=None, stages=stages)
    return states.put(states.box(), {"diagnosis": DiagnosisReading(latest=latest, running=running)}, 60)


RUNNING = with_diagnosis("done", "running", "waiting", "waiting", running=True, words="profiling, 1 stream")


async def asked(d: Desk) -> str:
    assert isinstance(d.face.screen, Confirm)
    return " ".join(word for word in " ".join(d.screen()).split() if word not in "│╭╮╰╯─")


async def test_d_says_what_it_does_and_asks() -> None:
    async with desk() as d:
        await d.press("d")
        said = await asked(d)
        assert "Diagnose the server?" in said
        for word in f"one stream is measured, then 20 decode steps are profiled. {CAPTURE_COSTS}".split():
            assert word in said
        assert d.sent == []
        await d.press("y")
        assert d.sent == [Diagnose(endpoint="http://127.0.0.1:30001")]


@pytest.mark.parametrize("key", ["n", "escape"])
async def test_no_is_an_answer(key: str) -> None:
    async with desk() as d:
        await d.press("d", key)
        assert d.sent == [] and not d.face.windowed


@pytest.mark.parametrize("key", ["d", "s"])
async def test_while_it_runs_it_is_stopped_after_a_question(key: str) -> None:
    async with desk(RUNNING) as d:
        await d.press(key)
        assert "Stop the diagnosis?" in await asked(d)
        await d.press("y")
        assert d.sent == [StopDiagnosis()]


async def test_quitting_meanwhile_says_what_is_kept() -> None:
    async with desk(RUNNING) as d:
        await d.press("q")
        said = await asked(d)
        assert "Quit while a diagnosis runs?" in said and "kept" in said


async def test_the_steps_pane_says_how_far_it_is() -> None:
    async with desk(RUNNING, size=(200, 60)) as d:
        said = "\n".join(d.screen())
        assert "diagnosing 2/4 decode steps profiled: profiling, 1 stream" in said


async def test_what_was_stopped_says_what_is_left() -> None:
    async with desk(with_diagnosis("done", "stopped", "waiting", "waiting"), size=(200, 60)) as d:
        said = "\n".join(d.screen())
        assert "diagnosis stopped: one stream kept; left: decode steps profiled" in said


async def test_without_a_server_it_says_so() -> None:
    async with desk(states.bare()) as d:
        await d.press("d")
        assert not d.face.windowed and "no server was found" in d.footer
