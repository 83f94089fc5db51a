"""Many small kernels a layer are said beside the verdict, with what two engines' recordings have."""

from __future__ import annotations

import msgspec
import pytest

from decodetop.floor.floor import compute
from decodetop.floor.hardware import load, named
from decodetop.floor.matrices import KERNELS_A_LAYER, kernels_a_layer
from decodetop.floor.measured import measure
from decodetop.floor.reading import Plan, Verdict
from decodetop.floor.verdict import judged
from decodetop.steps.reading import StepsReport
from support.judged import FILES, config_of, judge, rank, steps_of

H200 = named("H200", load())


def made(kernels: int | None, calls: dict[str, float] | None = None) -> StepsReport:
    steps = rank(gemm=5.0, norm=4.0)
    one = msgspec.structs.replace(steps.ranks[0], kernels_per_step=kernels, calls_per_step=calls or {})
    return msgspec.structs.replace(steps, ranks=(one,))


def verdict_of(
    kernels: int | None, model: str = "gemma-3-12b", calls: dict[str, float] | None = None, **plan: int
) -> Verdict:
    at = Plan(context=500, **plan)
    seen = measure(at, token_ms=12.0, steps=made(kernels, calls))
    found = judged(compute(config_of(model), at, H200, sweep=False), seen).verdict
    assert found is not None
    return found


def line(verdict: Verdict) -> str | None:
    found = [one for one in verdict.because if "kernels a layer" in one]
    assert len(found) <= 1
    return found[0] if found else None


def test_gemma_3_with_77_kernels_a_layer() -> None:
    """48 layers and 3,696 kernels: norms, rope and casts that no kernel fuses."""
    assert line(verdict_of(77 * 48)) == (
        "77 kernels a layer (3,696 a step, collectives left out), where SGLang and vLLM run 15 to 18: "
        "small kernels that are not fused, each about 2 us beyond its work"
    )


@pytest.mark.parametrize(("kernels", "said"), [(None, False), (48 * 18, False), (48 * 36, False), (48 * 37, True)])
def test_the_usual_number_is_not_worth_a_line(kernels: int | None, said: bool) -> None:
    assert (line(verdict_of(kernels)) is not None) is said


def test_collectives_and_draft_layers_are_not_this_layer_s() -> None:
    """100 collectives are the communication's; three draft forwards have a layer each."""
    assert line(verdict_of(48 * 36 + 100, calls={"communication": 100.0}, tp=2)) is None
    drafting = {"draft_steps": 3, "verify_tokens": 4}
    kernels = 36 * (64 + 3)
    at = Plan(context=500, **drafting)
    report = compute(config_of("qwen3.5-27b"), at, H200, sweep=False)
    assert report.draft_layers_per_step == 3
    found = judged(report, measure(at, step_ms=30.0, steps=made(kernels))).verdict
    assert found is not None and line(found) is None


@pytest.mark.parametrize("name", [name for name in FILES if name != "cast"])
def test_no_recording_of_two_engines_has_too_many(name: str) -> None:
    """The threshold is twice the most of them: 14.6 (dense, graphs) to 18.4 (MoE)."""
    layers = 48 if name == "moe30b" else 36
    kernels = steps_of(name).ranks[0].kernels_per_step
    assert kernels is not None and 14 < kernels / layers < 18.5 < KERNELS_A_LAYER / 2 + 0.1
    model = "qwen3-30b-a3b" if name == "moe30b" else "qwen3-8b"
    verdict = judge(name, model=model).verdict
    assert verdict is not None and line(verdict) is None


def test_without_layers_there_is_no_such_figure() -> None:
    assert kernels_a_layer(None, 0) is None and kernels_a_layer(100, 0) is None
