"""Constants of this box: taken from recordings, kept by card, preferred for what-ifs only."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import pytest

from decodetop.errors import DataError
from decodetop.floor import calibration
from decodetop.floor.calibration import Calibration, completed
from decodetop.floor.floor import compute
from decodetop.floor.hardware import load, named
from decodetop.floor.measured import Measurement, measure
from decodetop.floor.model import open_model
from decodetop.floor.practice import Overrides
from decodetop.floor.reading import FloorReport, Plan
from decodetop.steps.analyse import analyse
from decodetop.steps.reading import StepsReport

TESTS = Path(__file__).resolve().parents[1]
H200 = named("H200", load())


@cache
def steps_of(pattern: str) -> StepsReport:
    return analyse(sorted((TESTS / "captures").glob(pattern)))


def seen(pattern: str, token_ms: float | None, model: str = "qwen3-8b", **plan: int) -> tuple[FloorReport, Measurement]:
    made = Plan(context=500, **plan)  # type: ignore[arg-type]
    opened = open_model(TESTS / "floor" / "configs" / f"{model}.json")
    return compute(opened, made, H200, sweep=False), measure(made, token_ms=token_ms, steps=steps_of(pattern))


def test_constants_of_the_recordings() -> None:
    one = calibration.of(*seen("sglang_tp1_graph/prof_c1/*.gz", 5.112), "a")
    assert one.eta == pytest.approx(0.76, abs=0.01)
    assert one.layer_us == pytest.approx(26, abs=1.5)
    assert one.allreduce_us == {}
    two = calibration.of(*seen("sglang_tp2_graph/prof_c1/*.gz", 3.425, tp=2), "b")
    assert two.allreduce_us == {2: pytest.approx(2.4, abs=0.2)}
    moe = calibration.of(*seen("sglang_moe30b_graph/prof_decode/*.gz", 6.39, "qwen3-30b-a3b", batch=4), "c")
    assert moe.eta is None and moe.layer_us is not None


def test_a_calibrated_what_if_is_near_the_measured_step() -> None:
    """Constants of one GPU and of two give the steps that were measured."""
    known = calibration.of(*seen("sglang_tp1_graph/prof_c1/*.gz", 5.112), "a")
    model = open_model(TESTS / "floor" / "configs" / "qwen3-8b.json")
    plan = Plan(context=500)
    report = compute(model, plan, H200, overrides=completed(Overrides(), known, 1), sweep=False)
    assert report.t_prac_ms == pytest.approx(5.112, rel=0.01)
    assert {one.origin for one in report.constants} == {"measured"}
    assert any("calibration: a" in line for line in report.assumptions)


def test_kept_by_card_and_merged(tmp_path: Path) -> None:
    assert calibration.load(tmp_path) == {}
    calibration.save(tmp_path / "new", "H200", Calibration(eta=0.8, layer_us=30, allreduce_us={2: 2.5}, source="a"))
    calibration.save(tmp_path / "new", "H200", Calibration(layer_us=28, allreduce_us={4: 3.0}, source="b"))
    calibration.save(tmp_path / "new", "A6000", Calibration(eta=0.9))
    cards = calibration.load(tmp_path / "new")
    assert cards["H200"] == Calibration(eta=0.8, layer_us=28, allreduce_us={2: 2.5, 4: 3.0}, source="b")
    assert cards["A6000"].eta == 0.9


def test_what_the_user_gives_goes_first() -> None:
    stored = Calibration(eta=0.8, layer_us=30, allreduce_us={2: 2.5}, source="a")
    assert completed(Overrides(), None, 2) == Overrides()
    merged = completed(Overrides(eta=0.5), stored, 2)
    assert (merged.eta, merged.layer_us, merged.allreduce_us) == (0.5, 30, 2.5)
    assert merged.measured == ("allreduce_us", "layer_us")
    assert completed(Overrides(), stored, 8).allreduce_us is None


def test_what_can_not_calibrate() -> None:
    report, measured = seen("sglang_tp1_graph/prof_c1/*.gz", 5.112)
    with pytest.raises(DataError, match="needs a step breakdown"):
        calibration.of(report, msgspec.structs.replace(measured, breakdown=None), "x")
    with pytest.raises(DataError, match="arithmetic bounds"):
        calibration.of(msgspec.structs.replace(report, bound="compute"), measured, "x")
    with pytest.raises(DataError, match="less than their bytes need"):
        calibration.of(*seen("cast_full.trace.json.gz", None), "x")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / calibration.FILE
    path.write_text("{", "utf-8")
    with pytest.raises(DataError, match=r"can't read .*calibration\.json"):
        calibration.load(tmp_path)
    path.write_text('{"schema": 2}', "utf-8")
    with pytest.raises(DataError, match="newer decodetop"):
        calibration.load(tmp_path)
