"""A against B: which pairs count, and the words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from decodetop.bench.compare import differences, lines, of_pairs, of_runs, plan_lines
from decodetop.bench.reading import Environment, Gate, GpuSpan, Run
from support import states


def run(number: int, tok_s: float, **changes: object) -> Run:
    return msgspec.structs.replace(states.run(number, tok_s, 1000 / tok_s), **changes)


INVALID = (Gate(name="client_bound", severity="invalid", detail="client-bound"),)


def test_pairs_that_are_no_measure_are_left_out_and_named() -> None:
    pairs = [(run(2 * n, 50.0 + n / 10), run(2 * n + 1, 55.0 + n / 10), "a") for n in range(6)]
    pairs.append((run(20, 50.0, valid=False, gates=INVALID), run(21, 90.0), "b"))
    pairs.append((run(22, 50.0), run(23, 90.0, partial=True), "a"))
    found = of_pairs(("http://a", "http://b"), pairs, "output_tok_s")  # type: ignore[arg-type]
    assert found.verdict.word == "faster" and found.verdict.effect is not None and found.verdict.effect.n == 6
    assert [pair.discarded for pair in found.pairs[6:]] == ["A: client-bound", "B: stopped"]
    text = lines(found)
    assert text[2] == "pair  1  #0 #1  A first  +10.00 %"
    assert any(line.startswith("output_tok_s: B is faster: +10.0 %, 95 % interval") for line in text)
    assert any(line.startswith("tpot_ms: -9") and line.endswith("(not the question asked)") for line in text)


def boxed(number: int, accept: float | None = None, gates: tuple[Gate, ...] = (), **gpu: Any) -> Run:
    box = Environment(decodetop="0", gpu_names=("H200",), gpus=(GpuSpan(index=0, n=9, **gpu),))
    made = run(number, 50.0, environment=box, gates=gates)
    return msgspec.structs.replace(made, metrics=msgspec.structs.replace(made.metrics, accept_length=accept))


THROTTLED = (Gate(name="throttled", severity="suspect", detail="GPU 0: software thermal"),)
DOUBTS: dict[str, tuple[Run, Run, tuple[str, ...]]] = {
    "a run's own": (boxed(1), boxed(2, gates=THROTTLED), ("B: GPU 0: software thermal",)),
    "clocks": (
        boxed(1, sm_clock_mhz_mean=1980.0, mem_clock_mhz_mean=3201.0),
        boxed(2, sm_clock_mhz_mean=1620.0, mem_clock_mhz_mean=3200.0),
        ("SM clock 1980 MHz against 1620",),
    ),
    "the link": (boxed(1, pcie_gen_min=5), boxed(2, pcie_gen_min=3), ("PCIe gen 5 against 3",)),
    "speculation": (boxed(1, 2.4), boxed(2, 2.0), ("accept length 2.40 against 2.00",)),
    "nothing": (boxed(1, 2.4, sm_clock_mhz_mean=1980.0), boxed(2, 2.41, sm_clock_mhz_mean=1975.0), ()),
    "not known": (boxed(1, pcie_gen_min=5), boxed(2, sm_clock_mhz_mean=1620.0), ()),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_a_pair_says_in_what_the_box_was_not_the_same_for_both(name: str) -> None:
    a, b, doubts = DOUBTS[name]
    found = of_pairs(("a", "b"), [(a, b, "a")], "output_tok_s")
    assert found.pairs[0].doubts == doubts and found.pairs[0].discarded is None
    assert lines(found)[2] == "  but ".join(["pair  1  #1 #2  A first  +0.00 %", *doubts])


def test_latency_asked_the_other_way_round() -> None:
    pairs = [(run(2 * n, 50.0 + n / 10), run(2 * n + 1, 55.0 + n / 10), "a") for n in range(6)]
    assert of_pairs(("a", "b"), pairs, "tpot_ms").verdict.word == "faster"  # type: ignore[arg-type]


def test_stored_runs_get_a_labelled_word() -> None:
    a = [run(n, 50.0 + n / 10) for n in range(3)]
    b = [run(n + 3, 60.0 + n / 10) for n in range(3)]
    found = of_runs(a, [*b, run(9, 500.0, valid=False, gates=INVALID)], "output_tok_s")
    assert found.verdict.word == "faster" and not found.verdict.paired
    assert any("B is faster as it looks" in line and "not interleaved" in line for line in lines(found))
    one = of_runs(a[:1], b[:1], "output_tok_s")
    assert "B is not resolved: +20.0 %, 1 and 1 runs: no interval" in "\n".join(lines(one))


def test_differences_between_runs() -> None:
    def of(**flags: str) -> Run:
        return run(1, 50.0, environment=Environment(decodetop="0", model="m", tp=1, flags=flags))

    assert differences(of(a="1", b="2"), of(a="1", b="3", c="4")) == ["b: 2 → 3", "c: – → 4"]
    assert differences(of(), of()) == []
    longer = msgspec.structs.replace(of(), plan=msgspec.structs.replace(of().plan, output_tokens=9))
    assert differences(of(), longer) == ["output tokens: 256 → 9"]


def test_plan_in_words() -> None:
    text = plan_lines(0.01 * 2**0.5, "assumed", 0.03)
    assert "   6 pairs find a difference of 2.0 %" in text
    assert text[-1] == "a difference of 3 % needs 6 pairs"
