"""The floor in the report and on a tape: the same sentence, figures and moves as on the screen."""

from __future__ import annotations

from decodetop.core.sample import Sample
from decodetop.diagnosis.reading import Diagnosis, DiagnosisReading, Stage
from decodetop.floor.reading import FloorReading, WhatIf
from decodetop.flows.catalog import codec
from decodetop.report import markdown
from support import floors, states


def section(text: str) -> str:
    return text.split("## Can this hardware do better?\n")[1].split("\n## ")[0]


def test_the_section_answers_its_question() -> None:
    text = markdown(floors.judged())
    said = section(text)
    assert text.index("## Can this hardware do better?") < text.index("## Decode step")
    for words in (
        "bound 3.16 ms, practice 4.71 ms, measured 19.3 ms a step",
        "| weights at full bandwidth | 3.14 | 15.14 |",
        "| from bound to measured | ms |",
        "**host-bound** (high confidence): Host-bound: the GPU has nothing to do for 75 % of the step",
        "- not communication: one GPU: no communication",
        "1. turn CUDA graphs on: remove --disable-cuda-graph",
        "by batch:",
        "step: █ bound, ░ practice",
        "Assumed:",
    ):
        assert words in said, words
    assert "Host-bound: the GPU has nothing to do for 75 %" in text.split("## Can this hardware")[0]


def test_without_a_floor_it_says_why() -> None:
    said = section(markdown(floors.judged(seen=floors.reading(model="Qwen/Nowhere"))))
    assert "No floor: " in said and "neither a path nor in the local cache" in said


def test_a_tape_holds_it_whole() -> None:
    readings = (floors.reading(), floors.reading(asked=WhatIf(tp=2)), floors.reading(None))
    for reading in readings:
        kept = codec().sample(codec().line(Sample(source="floor", t_ns=1, seq=1, reading=reading)))
        assert kept is not None and kept.reading == reading
    latest = Diagnosis(
        id="d", made_wall_ns=1, subject=None, report=floors.reading().report,
        stages=(Stage(name="measure", status="done", words="run 1"),),
    )  # fmt: skip
    told = DiagnosisReading(latest=latest, running=True)
    kept = codec().sample(codec().line(Sample(source="diagnosis", t_ns=1, seq=1, reading=told)))
    assert kept is not None and kept.reading == told


def test_what_was_computed_once_is_drawn_again_from_the_state_alone() -> None:
    state = floors.judged()
    assert isinstance(state.lane("floor").last, FloorReading)
    assert markdown(state) == markdown(states.put(state, {}, 60))
