"""Numbers as words: fixed places, unknown is a dash, nonsense is unknown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop.core import words

ALL = (
    words.number,
    words.number_plain,
    words.percent,
    words.gib,
    words.bytes_per_s,
    words.duration,
    words.remaining,
    words.significant,
    words.rate,
    words.compact,
)


@pytest.mark.parametrize("say", ALL)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_unknown(say: object, value: float | None) -> None:
    assert callable(say)
    assert say(value) == words.UNKNOWN


@pytest.mark.parametrize("say", ALL)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_has_words_of_a_length_one_can_read(say: object, value: float) -> None:
    assert callable(say)
    assert 0 < len(say(value)) <= 26


@given(before=st.floats(), after=st.floats())
def test_a_difference_of_any_two_numbers_has_words(before: float, after: float) -> None:
    assert 0 < len(words.delta_percent(before, after)) <= 26


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0.00"),
        (5.114, "5.11"),
        (9.996, "10.0"),
        (19.34, "19.3"),
        (99.96, "100"),
        (195.7, "196"),
        (4878.6, "4,879"),
    ],
)
def test_three_significant_digits(value: float, said: str) -> None:
    assert words.significant(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0.0, "0.0"), (51.74, "51.7"), (999.94, "999.9"), (999.96, "1,000"), (4878.6, "4,879")]
)
def test_rate(value: float, said: str) -> None:
    assert words.rate(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(842, "842"), (9_999, "9,999"), (10_000, "10 k"), (441_000, "441 k"), (999_600, "1.00 M"), (1_297_846, "1.30 M")],
)
def test_compact(value: float, said: str) -> None:
    assert words.compact(value) == said
    assert len(words.compact(value)) <= 6


@pytest.mark.parametrize(
    ("value", "said"),
    [(3, "3 s"), (94, "94 s"), (99.6, "1 m"), (754, "12 m"), (11_100, "3 h 05"), (187_200, "2 d 04 h")],
)
def test_remaining(value: float, said: str) -> None:
    assert words.remaining(value) == said


def test_pairs_and_changes() -> None:
    assert words.now_of_max(1755, 1980) == "1755/1980"
    assert words.now_of_max(None, 1980) == "–/1980"
    assert words.delta_percent(10.5, 13.5) == "+29 %"
    assert words.delta_percent(95.6, 74.1) == "-22 %"
    assert words.delta_percent(0, 1) == words.delta_percent(None, 1) == words.UNKNOWN
    assert words.bytes_per_s(3.5e6) == "4 MB/s"
    assert words.bytes_per_s(26.56e9) == "26.6 GB/s"


def test_a_clock_time_that_is_none_is_unknown() -> None:
    assert words.clock_time(1_796_004_000 * 10**9) == "02:00:00"
    assert words.clock_time(None) == words.clock_time(10**30) == words.UNKNOWN
