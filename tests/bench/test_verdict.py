"""The verdict: right words, an honest error rate, and the power that its plan promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from decodetop.bench.verdict import detectable, pair_sd, paired, pairs_for, power, unpaired, value
from support import states

REPEATS = 1000


def test_words() -> None:
    def of(*ratios: float, metric: str = "output_tok_s", threshold: float = 0.01) -> str:
        return paired(ratios, metric, threshold).word  # type: ignore[arg-type]

    assert of(1.05, 1.06, 1.05, 1.055, 1.06, 1.05) == "faster"
    assert of(0.95, 0.94, 0.95, 0.955, 0.94, 0.95) == "slower"
    assert of(0.95, 0.94, 0.95, 0.955, 0.94, 0.95, metric="tpot_ms") == "faster"
    assert of(1.001, 0.999, 1.002, 0.998, 1.0, 1.001) == "equivalent"
    assert of(1.10, 0.91, 1.05, 0.97, 1.02, 0.99) == "not_resolved"
    assert of(1.006, 1.007, 1.006, 1.007, 1.006, 1.007) == "equivalent"  # real, but smaller than what matters
    assert of(1.009, 1.011, 1.008, 1.012, 1.009, 1.011) == "not_resolved"
    assert of(1.5) == "not_resolved" and of() == "not_resolved"


def test_interval_is_the_paired_t() -> None:
    ratios = [1.02, 1.05, 0.99, 1.03, 1.04, 1.01]
    effect = paired(ratios, "output_tok_s").effect
    assert effect is not None
    logs = np.log(ratios)
    low, high = stats.t.interval(0.95, 5, loc=logs.mean(), scale=stats.sem(logs))
    assert (effect.low, effect.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert effect.p == pytest.approx(stats.ttest_1samp(logs, 0).pvalue)


def test_welch_of_stored_runs() -> None:
    a, b = [50.0, 51.0, 50.5, 49.8], [53.0, 54.5, 53.5]
    verdict = unpaired(a, b, "output_tok_s")
    assert verdict.effect is not None and verdict.word == "faster" and not verdict.paired
    assert verdict.effect.p == pytest.approx(stats.ttest_ind(np.log(b), np.log(a), equal_var=False).pvalue)
    assert "not interleaved" in verdict.detail
    single = unpaired([50.0], [55.0], "output_tok_s")
    assert (single.word, single.effect) == ("not_resolved", None) and "+10.0 %" in single.detail


def test_runs_without_any_spread() -> None:
    assert paired([1.05] * 6, "output_tok_s").word == "faster"
    assert paired([1.0] * 6, "output_tok_s").word == "equivalent"
    assert unpaired([50.0, 50.0], [50.0, 50.0], "output_tok_s").word == "equivalent"


def test_minimal_detectable_effect_is_the_reference_table() -> None:
    # run sd in %, pairs -> % (paired t on the log ratio, power 80 %, level 5 %)
    for run_sd, pairs, wanted in ((1.0, 6, 2.0), (1.0, 10, 1.4), (0.3, 5, 0.7), (2.0, 8, 3.3), (5.0, 20, 4.7)):
        found = 100 * detectable(run_sd / 100 * math.sqrt(2), pairs)
        assert found == pytest.approx(wanted, abs=0.15 + 0.03 * wanted)


def test_plan_and_power_agree() -> None:
    sd = 0.01 * math.sqrt(2)
    pairs = pairs_for(sd, 0.03)
    assert power(sd, 0.03, pairs) >= 0.8
    assert pairs == 6 or power(sd, 0.03, pairs - 1) < 0.8
    assert pairs_for(0.05, 0.03) > pairs


def test_power_is_that_of_the_noncentral_t() -> None:
    for sd, effect, pairs in ((0.02, 0.01, 6), (0.02, 0.02, 10), (0.05, 0.03, 30), (0.01, 0.01, 3)):
        shift = math.log1p(effect) / sd * math.sqrt(pairs)
        limit = stats.t.ppf(0.975, pairs - 1)
        wanted = stats.nct.sf(limit, pairs - 1, shift) + stats.nct.cdf(-limit, pairs - 1, shift)
        assert power(sd, effect, pairs) == pytest.approx(wanted, abs=2e-4)
    assert power(0.001, 0.5, 6) == pytest.approx(1.0)


def trials(effect: float, run_sd: float, pairs: int, drift: float = 0.0) -> dict[str, int]:
    """Words over many repeats of interleaved pairs, in random order within the pair, under a steady drift."""
    noise = np.random.default_rng(7)
    words: dict[str, int] = {}
    for _ in range(REPEATS):
        first_is_a = noise.random(pairs) < 0.5
        order = np.where(first_is_a, 1, -1)  # B comes `order` runs after A
        logs = math.log1p(effect) + noise.normal(0, run_sd * math.sqrt(2), pairs) + drift * order
        word = paired(np.exp(logs).tolist(), "output_tok_s").word
        words[word] = words.get(word, 0) + 1
    return words


@pytest.mark.parametrize(("run_sd", "pairs"), [(0.01, 6), (0.03, 6), (0.02, 12)])
def test_false_verdicts_of_a_against_a(run_sd: float, pairs: int) -> None:
    words = trials(0.0, run_sd, pairs)
    false = words.get("faster", 0) + words.get("slower", 0)
    assert false <= stats.binom.ppf(0.999, REPEATS, 0.05)


def test_drift_does_not_make_false_verdicts() -> None:
    words = trials(0.0, 0.01, 6, drift=0.002)
    assert words.get("faster", 0) + words.get("slower", 0) <= stats.binom.ppf(0.999, REPEATS, 0.05)


@pytest.mark.parametrize("run_sd", [0.01, 0.02, 0.03])
def test_an_effect_of_three_percent_is_found_with_the_pairs_of_the_plan(run_sd: float) -> None:
    words = trials(0.03, run_sd, pairs_for(run_sd * math.sqrt(2), 0.03))
    assert words.get("faster", 0) >= 0.75 * REPEATS
    assert words.get("slower", 0) <= 0.001 * REPEATS


def test_more_pairs_are_named_when_it_is_not_resolved() -> None:
    verdict = paired([1.10, 0.91, 1.05, 0.97, 1.02, 0.99], "output_tok_s")
    assert verdict.more is not None and verdict.more > 50
    assert f"about {verdict.more} more pairs needed" in verdict.detail


def test_values_and_spread_of_runs() -> None:
    run = states.run(1, 51.7, 19.3)
    assert (value(run, "output_tok_s"), value(run, "tpot_ms")) == (51.7, 19.3)
    assert pair_sd([1.0, 1.0]) is None
    assert pair_sd([50.0, 50.5, 49.5]) == pytest.approx(0.01 * math.sqrt(2), rel=1e-3)
