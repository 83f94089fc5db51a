"""Text measured in terminal cells: cut, filled and made safe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodetop_tui.cells import width_of
from decodetop_tui.paint import Span
from decodetop_tui.panes._cells import cells, clean, clip, clip_middle, exactly, fit, pad, wrap

ANY = st.text(st.characters(), max_size=60)


def plain(line: tuple[Span, ...]) -> str:
    return "".join(span.text for span in line)


@given(ANY)
def test_clean_text_is_one_printable_line(text: str) -> None:
    assert clean(text).isprintable()
    assert clean(clean(text)) == clean(text)
    assert "\x1b" not in clean(text)


def test_clean_shows_where_something_was() -> None:
    assert clean("a\tb\nc") == "a b c"
    assert clean("x\x1b[31mred\u202e") == "x·[31mred·"
    assert clean("语 model") == "语 model"


@given(ANY, st.integers(0, 80))
def test_clip_and_pad_keep_to_the_room(text: str, room: int) -> None:
    text = clean(text)
    assert cells(clip(text, room)) <= room
    assert cells(clip_middle(text, room)) <= room
    for align in "<>^":
        assert cells(pad(text, room, align)) == room


def test_clip_marks_what_was_cut() -> None:
    assert clip("abcdef", 6) == "abcdef"
    assert clip("abcdef", 5) == "abcd…"
    assert clip("解码步骤", 5) == "解码…"
    assert clip("解码步骤", 4) == "解…"  # a wide character never sticks out
    assert clip_middle("/traces/long-name-TP-0.json.gz", 20) == "/traces/long-…son.gz"


def test_of_a_number_all_or_nothing_is_shown() -> None:
    """`7…` could be 700."""
    assert clip("still running 700", 16) == "still running …"
    assert clip("TPOT 5.01 ms", 7) == clip("TPOT 5.01 ms", 8) == "TPOT …"
    assert clip("TPOT 5.01 ms", 10) == "TPOT 5.01…"
    assert clip("TPOT 5.01 ms", 11) == "TPOT 5.01 …"
    assert clip("58,000 us", 5) == "…"
    assert clip("at -74 %", 6) == "at …"
    assert clip("nvjet_sm90_tst", 10) == "nvjet_sm9…"  # the digits of a name are no number
    assert plain(fit([Span("launch call "), Span("700 us")], 14)) == "launch call …"


@given(st.lists(st.tuples(ANY, st.sampled_from(("", "dim", "bad")))), st.integers(0, 80))
def test_fit_keeps_to_the_room(spans: list[tuple[str, str]], room: int) -> None:
    line = fit([Span(*span) for span in spans], room)
    assert width_of(line) <= room
    whole = "".join(clean(text) for text, _ in spans)
    if cells(whole) <= room:
        assert plain(line) == whole


def test_fit_marks_words_cut_but_not_blanks() -> None:
    assert plain(fit([Span("abc"), Span("   ")], 4)) == "abc "
    assert plain(fit([Span("abc"), Span("def")], 5)) == "abcd…"
    assert plain(fit([Span("abc"), Span("def")], 3)) == "ab…"
    assert fit([Span("abc", "bad"), Span("def", "dim")], 5)[-1] == Span("d…", "dim")


@given(ANY, st.integers(0, 80))
def test_exactly_is_exact(text: str, room: int) -> None:
    assert width_of(exactly([Span(text)], room)) == room


@given(ANY, st.integers(1, 30), st.integers(1, 6))
def test_wrap_keeps_to_width_and_lines(text: str, room: int, most: int) -> None:
    lines = wrap(text, room, most)
    assert len(lines) <= most
    assert all(cells(line) <= room for line in lines)


@pytest.mark.parametrize(
    ("text", "room", "lines"),
    [
        ("one two three", 7, ["one two", "three"]),
        ("one two three", 9, ["one two", "three"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("解码步骤分析", 5, ["解码", "步骤", "分析"]),
        ("", 5, []),
    ],
)
def test_wrap(text: str, room: int, lines: list[str]) -> None:
    assert wrap(text, room, 9) == lines


def test_wrap_says_that_there_is_more() -> None:
    assert wrap("one two three four", 7, 2) == ["one two", "three …"]


def test_a_number_keeps_its_unit_at_the_end_of_a_line() -> None:
    assert wrap("copy 59 %, gemm 18 %, communication 9 %", 38, 9) == ["copy 59 %, gemm 18 %, communication", "9 %"]
    assert wrap("copy 59 %, gemm 18 %, communication 9 % more", 38, 9)[1] == "9 % more"
    assert wrap("a step of 12.9 ms profiled", 15, 9) == ["a step of", "12.9 ms", "profiled"]
    assert wrap("12345678 ms", 8, 9) == ["12345678", "ms"]
