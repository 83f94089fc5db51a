"""A against B, as data and in words: which pairs counted, which did not and why, and the verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import msgspec

from decodetop.bench.reading import SCHEMA, Run
from decodetop.bench.text import name, worth
from decodetop.bench.verdict import (
    POWER,
    THRESHOLD,
    Metric,
    Verdict,
    detectable,
    paired,
    pairs_for,
    unpaired,
    value,
)

METRICS: tuple[Metric, ...] = get_args(Metric)
Side = Literal["a", "b"]
PLAN_PAIRS = (3, 5, 6, 8, 10, 20)
CLOCKS_OFF, ACCEPT_OFF = 0.02, 0.05
"""Shares by which mean clocks, and accept lengths, of two runs may differ without a word."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs in a row. `ratio` is B/A; None with the reason in `discarded`. `doubts`: what makes it worth less."""

    a: int | None
    b: int | None
    first: Side
    ratio: float | None = None
    discarded: str | None = None
    doubts: tuple[str, ...] = ()


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`verdict` is on the one metric named beforehand; `others` carry intervals only, their words claim nothing."""

    schema: int = SCHEMA
    a: str
    b: str
    verdict: Verdict
    others: tuple[Verdict, ...] = ()
    pairs: tuple[Pair, ...] = ()
    runs_a: tuple[int | None, ...] = ()
    runs_b: tuple[int | None, ...] = ()


def of_pairs(
    names: tuple[str, str],
    runs: Sequence[tuple[Run, Run, Side]],
    metric: Metric,
    threshold: float = THRESHOLD,
) -> Comparison:
    """Interleaved pairs: (run of A, run of B, which came first)."""
    pairs = tuple(_pair(a, b, first, metric) for a, b, first in runs)
    counted = [(a, b) for (a, b, _), pair in zip(runs, pairs, strict=True) if pair.discarded is None]
    others = []
    for other in METRICS:
        ratios = [_ratio(a, b, other) for a, b in counted]
        known = [ratio for ratio in ratios if ratio is not None]
        if other != metric and known:
            others.append(paired(known, other, threshold))
    kept = [pair.ratio for pair in pairs if pair.ratio is not None]
    return Comparison(
        a=names[0], b=names[1], verdict=paired(kept, metric, threshold), others=tuple(others), pairs=pairs
    )


def of_runs(a: Sequence[Run], b: Sequence[Run], metric: Metric, threshold: float = THRESHOLD) -> Comparison:
    """Stored runs: a weaker word. Invalid and stopped runs are left out."""
    good_a, good_b = (_values(runs, metric) for runs in (a, b))
    others = []
    for other in METRICS:
        if other != metric and _values(a, other) and _values(b, other):
            others.append(unpaired(_values(a, other), _values(b, other), other, threshold))
    return Comparison(
        a=", ".join(name(run) for run in a),
        b=", ".join(name(run) for run in b),
        verdict=unpaired(good_a, good_b, metric, threshold),
        others=tuple(others),
        runs_a=tuple(run.id for run in a),
        runs_b=tuple(run.id for run in b),
    )


def _values(runs: Sequence[Run], metric: Metric) -> list[float]:
    found = [value(run, metric) for run in runs if _why_not(run) is None]
    return [one for one in found if one is not None]


def _pair(a: Run, b: Run, first: Side, metric: Metric) -> Pair:
    faults = [f"{side}: {why}" for side, why in (("A", _why_not(a)), ("B", _why_not(b))) if why is not None]
    ratio = _ratio(a, b, metric)
    if ratio is None and not faults:
        faults = [f"no {metric} in one of them"]
    if faults:
        return Pair(a=a.id, b=b.id, first=first, discarded="; ".join(faults))
    return Pair(a=a.id, b=b.id, first=first, ratio=ratio, doubts=tuple(_doubts(a, b)))


def _doubts(a: Run, b: Run) -> Iterator[str]:
    """What either run says of itself, and in what the box did not do the same for both."""
    for side, run in (("A", a), ("B", b)):
        yield from (f"{side}: {gate.detail}" for gate in run.gates if gate.severity == "suspect")
    if a.environment.gpu_names == b.environment.gpu_names:
        for title, field in (("SM clock", "sm_clock_mhz_mean"), ("memory clock", "mem_clock_mhz_mean")):
            before, after = _over_gpus(a, field), _over_gpus(b, field)
            if _differ(before, after, CLOCKS_OFF):
                yield f"{title} {before:.0f} MHz against {after:.0f}"
        one, other = _slowest_link(a), _slowest_link(b)
        if one is not None and other is not None and one != other:
            yield f"PCIe gen {one} against {other}"
    before, after = a.metrics.accept_length, b.metrics.accept_length
    if _differ(before, after, ACCEPT_OFF):
        yield f"accept length {before:.2f} against {after:.2f}"


def _slowest_link(run: Run) -> int | None:
    return min((gpu.pcie_gen_min for gpu in run.environment.gpus if gpu.pcie_gen_min is not None), default=None)


def _over_gpus(run: Run, field: str) -> float | None:
    known = [value for gpu in run.environment.gpus if (value := getattr(gpu, field)) is not None]
    return sum(known) / len(known) if known else None


def _differ(before: float | None, after: float | None, share: float) -> bool:
    if not before or not after:
        return False
    return abs(after / before - 1) > share


def _ratio(a: Run, b: Run, metric: Metric) -> float | None:
    before, after = value(a, metric), value(b, metric)
    return None if before is None or after is None else after / before


def _why_not(run: Run) -> str | None:
    if run.partial:
        return "stopped"
    if worth(run) == "invalid":
        return next((gate.detail for gate in run.gates if gate.severity == "invalid"), "invalid")
    return None


def differences(a: Run, b: Run) -> list[str]:
    """What the runs did not have in common: the server's flags, the plan, the model, the GPUs."""
    found = []
    for title, one, other in (
        ("engine", a.environment.engine_version, b.environment.engine_version),
        ("model", a.environment.model, b.environment.model),
        ("TP", a.environment.tp, b.environment.tp),
        ("GPUs", ", ".join(a.environment.gpu_names), ", ".join(b.environment.gpu_names)),
        ("streams", a.plan.streams, b.plan.streams),
        ("input tokens", a.plan.input_tokens, b.plan.input_tokens),
        ("output tokens", a.plan.output_tokens, b.plan.output_tokens),
        ("API", a.plan.api, b.plan.api),
    ):
        if one != other:
            found.append(f"{title}: {one or '–'} → {other or '–'}")
    flags_a, flags_b = a.environment.flags, b.environment.flags
    for flag in sorted(flags_a.keys() | flags_b.keys()):
        before, after = flags_a.get(flag, "–"), flags_b.get(flag, "–")
        if before != after:
            found.append(f"{flag}: {before} → {after}")
    return found


def lines(found: Comparison) -> list[str]:
    """A comparison as plain text."""
    verdict = found.verdict
    out = [f"A  {found.a}", f"B  {found.b}"]
    out += [pair_line(number, pair) for number, pair in enumerate(found.pairs, 1)]
    out.append(f"{verdict.metric}: B is {said(verdict)}: {verdict.detail}")
    return out + [f"{other.metric}: {other.detail} (not the question asked)" for other in found.others]


def pair_line(number: int, pair: Pair) -> str:
    """pair  3  #7 #8  B first  +2.41 %."""
    what = f"{100 * (pair.ratio - 1):+.2f} %" if pair.ratio is not None else f"discarded: {pair.discarded}"
    runs = " ".join("–" if one is None else f"#{one}" for one in (pair.a, pair.b))
    doubts = f"  but {'; '.join(pair.doubts)}" if pair.doubts else ""
    return f"pair {number:>2}  {runs}  {pair.first.upper()} first  {what}{doubts}"


def said(verdict: Verdict) -> str:
    """faster, slower, equivalent within 1 %, not resolved; labelled when the runs were not interleaved."""
    words = {"equivalent": f"equivalent within {100 * verdict.threshold:g} %", "not_resolved": "not resolved"}
    word = words.get(verdict.word, verdict.word)
    return word if verdict.paired or verdict.word == "not_resolved" else f"{word} as it looks"


def plan_lines(sd: float, source: str, effect: float) -> list[str]:
    """What a number of pairs can find, before any is measured. `sd` is of one log ratio."""
    out = [f"run-to-run spread of a pair {100 * sd:.2f} % ({source}); power {100 * POWER:.0f} %, level 5 %"]
    out += [f"{pairs:>4} pairs find a difference of {100 * detectable(sd, pairs):.1f} %" for pairs in PLAN_PAIRS]
    return [*out, f"a difference of {100 * effect:g} % needs {pairs_for(sd, effect)} pairs"]
