"""History lines and bars: exact to the cell, honest about what is unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from decodetop.core.clock import SECOND_NS
from decodetop.core.sample import Reading
from decodetop.core.state import Lane, Past
from decodetop.host.reading import HostReading
from decodetop.steps.reading import Communication, Coverage, Period, RankSteps, Real, StepBar, StepCounts
from decodetop_tui.cells import width_of
from decodetop_tui.panes._lines import braille, history, progress, shares, ticks
from decodetop_tui.panes._stepbar import bar, group_parts, jitter, kind_parts, real_bar
from decodetop_tui.panes._steplines import idle_lines, tenths
from support import states

POSITIVE = st.floats(0, 1e6)


def cpu(reading: Reading) -> float | None:
    assert isinstance(reading, HostReading)
    return reading.cpu_percent


def lane(values: dict[float, float | None]) -> Lane:
    past = tuple(Past(int(s * SECOND_NS), HostReading(cpu_count=1, cpu_percent=v)) for s, v in values.items())
    return Lane(last=past[-1].reading, last_t_ns=past[-1].t_ns, history=past)


def drawn(values: dict[float, float | None], now_s: float, room: int) -> str:
    return history(lane(values), int(now_s * SECOND_NS), room, cpu, 100.0).text


def test_zero_is_a_dot_and_unknown_is_nothing() -> None:
    assert braille([0, 0], 100) == "⣀"
    assert braille([None, None], 100) == " "
    assert braille([None, 1], 100) == "⢠"
    assert braille([100, 50], 100) == "⣷"
    assert braille([1000, -3], 100) == "⣇"
    assert braille([0.4, 0.4], 100) == "⣀", "what is written 0 % is drawn as zero"


def test_a_steady_value_changes_nothing_on_the_screen() -> None:
    seen = {float(s): 40.0 for s in range(100)}
    pictures = {drawn(dict(list(seen.items())[: now + 1]), now, 10) for now in range(31, 100, 2)}
    assert len(pictures) == 1


def test_history_stands_still_until_a_cell_is_full() -> None:
    seen = {float(s): float(s % 50) for s in range(41)}
    before = drawn({s: v for s, v in seen.items() if s <= 38}, 38, 10)
    after = drawn({s: v for s, v in seen.items() if s <= 39}, 39, 10)
    assert before[:-1] == after[:-1]


def test_a_late_sample_leaves_no_hole() -> None:
    seen = {s + (0.3 if s == 12 else 0.95 if s == 11 else 0.9): 40.0 for s in range(20)}
    del seen[12.3]
    seen[13.01] = 40.0
    assert " " not in drawn(seen, 19.9, 8).lstrip()


def test_a_pause_of_the_source_is_seen() -> None:
    seen = {float(s): 40.0 for s in (*range(10), *range(16, 24))}
    assert " " in drawn(seen, 23, 10).lstrip()


def test_history_spans_what_it_says() -> None:
    every_five = {float(s): 1.0 for s in range(0, 100, 5)}
    assert history(lane(every_five), 95 * SECOND_NS, 6, cpu).seconds == 60
    assert history(Lane(), 0, 6, cpu).text == "      "


@given(st.dictionaries(st.sampled_from("abcdefgh"), POSITIVE, max_size=8), st.integers(0, 200))
def test_shares_sum_to_the_room(parts: dict[str, float], room: int) -> None:
    given_cells = shares(parts, room)
    assert sum(given_cells.values()) == (room if sum(parts.values()) > 0 else 0)
    for name, count in given_cells.items():
        assert abs(count - room * parts[name] / sum(parts.values())) < 1.0 + 1e-6


@given(st.floats(allow_nan=True), st.integers(0, 60))
def test_progress_fills_its_room(share: float, room: int) -> None:
    assert len(progress(share, room)) == room


def test_ticks() -> None:
    assert ticks([0, 50, 100], 0, 100) == "▁▅█"
    assert ticks([5, 5], 5, 5) == "▄▄"


def rank(kinds: dict[str, float], **more: object) -> RankSteps:
    fields = {
        "rank": 0,
        "file": "f",
        "steps": StepCounts(found=3, used=3),
        "coverage": Coverage(ok=True),
        "kinds_us": kinds,
        **more,
    }
    return RankSteps(**fields)  # type: ignore[arg-type]


@given(st.integers(0, 200))
def test_the_bar_is_exact_and_reads_without_colour(room: int) -> None:
    one = states.steps().captures[0].report.ranks[0]
    line = bar(kind_parts(one), room)
    assert width_of(line) == (room if room >= 3 else 0)
    letters = "".join(span.text for span in line).strip("▕▏")
    if room > 60:
        assert letters.index("G") == 0
        assert letters.count("░") / len(letters) > 0.9


def test_parts_sum_to_the_step_in_every_grouping() -> None:
    kinds = {"gemm": 60.0, "copy": 10.0, "communication": 20.0, "idle": 10.0}
    groups = {"compute": 60.0, "copies": 10.0, "communication": 20.0, "idle": 10.0}
    one = rank(kinds, groups_us=groups, communication_us=Communication(transfer=4.0, waiting=16.0))
    for parts in (kind_parts(one), group_parts(one)):
        assert sum(part.us for part in parts) == 100.0
        assert abs(sum(part.share for part in parts) - 1) < 1e-9
    assert {(part.letter, part.us) for part in kind_parts(one)} >= {("C", 4.0), ("w", 16.0)}


def test_communication_of_one_rank_says_that_waiting_is_in_it() -> None:
    assert [part.name for part in kind_parts(rank({"communication": 5.0}))] == ["communication incl. waiting"]


def test_the_real_step_is_drawn_on_the_scale_of_the_profiled_one() -> None:
    period = Period(representative=63_700.0, median=0, p10=0, p90=0)
    one = rank({}, period_us=period, real=Real(step_ms=19.3, idle_share=0.74))
    text = "".join(span.text for span in real_bar(one, 102))
    assert (text.count("▓"), text.count("░")) == (8, 22)
    assert real_bar(rank({}, period_us=period, real=Real(step_ms=1.0, idle_share=None)), 50) == []


def test_jitter_keeps_small_spreads_small() -> None:
    steady = tuple(StepBar(index=n, period_us=5296.0 + n, idle_us=0) for n in range(5))
    jumpy = (*steady, StepBar(index=5, period_us=9000.0, idle_us=0))
    assert len(set(jitter(rank({}, kept_steps=steady), 20))) == 1
    assert jitter(rank({}, kept_steps=jumpy), 20) == "▁▁▁▁▁█"
    assert jitter(rank({}, kept_steps=steady[:1]), 20) == ""


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 5e-324])
@pytest.mark.parametrize("top", [1.0, 5e-324, 1e308, float("inf"), float("nan"), 0.0, -1.0])
def test_numbers_of_any_size_draw(odd: float, top: float) -> None:
    assert len(braille([odd, 1.0, None, odd], top)) == 2
    assert len(ticks([odd, 1.0, top], min(odd, 1.0), max(odd, top))) == 3
    assert sum(shares({"a": odd, "b": top, "c": 1.0}, 10).values()) in (0, 10)
    assert len(progress(odd, 10)) == 10


def test_what_took_time_never_reads_nought() -> None:
    assert [tenths(share) for share in (0.0, 1e-6, 0.00049, 0.0005, 0.343, 1.0)] == [
        "0.0",
        "<0.1",
        "<0.1",
        "0.1",
        "34.3",
        "100.0",
    ]


@given(st.integers(20, 200))
def test_a_reason_for_idling_and_its_figure_stay_together(width: int) -> None:
    (rank,) = states.steps().captures[0].report.ranks
    lines = ["".join(span.text for span in line) for line in idle_lines(rank, width)]
    said = [part for line in lines for part in line[13:].split(" · ")]
    assert said == ["host late 58,000", "launch call still running 700"]
    assert all(len(line) <= max(width, 13 + len(max(said, key=len))) for line in lines)


def test_a_rank_without_reasons_for_idling_has_no_line() -> None:
    (rank,) = states.steps().captures[0].report.ranks
    assert idle_lines(replace(rank, idle_split_us={}), 80) == []
