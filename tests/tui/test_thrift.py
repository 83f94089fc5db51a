"""The terminal shows the same with fewer bytes: Textual's output and ours, drawn by pyte, side by side."""

from __future__ import annotations

import re

import pyte
from hypothesis import given
from hypothesis import strategies as st

from decodetop_tui.thrift import Thrift

WIDTH, HEIGHT = 20, 5
PALETTE = ("0", "1", "38;2;1;2;3;48;2;4;5;6", "2;39;49", "4;31", "7")


def screen() -> tuple[pyte.Screen, pyte.Stream]:
    shown = pyte.Screen(WIDTH, HEIGHT)
    shown.reset_mode(pyte.modes.DECAWM)
    return shown, pyte.Stream(shown)


def cells(shown: pyte.Screen) -> list[list[tuple[object, ...]]]:
    """Every cell as text and looks; trailing blanks count too."""
    return [[tuple(shown.buffer[y][x]) for x in range(WIDTH)] for y in range(HEIGHT)]


def run(*frames: str) -> tuple[pyte.Screen, pyte.Screen, list[str]]:
    """Draw the frames as they are, and as Thrift passes them on."""
    plain, plain_stream = screen()
    thrifty, thrifty_stream = screen()
    thrift = Thrift()
    thrift.resize(WIDTH, HEIGHT)
    sent = []
    for frame in frames:
        plain_stream.feed(frame)
        sent.append(thrift.feed(frame))
        thrifty_stream.feed(sent[-1])
    return plain, thrifty, sent


def full(character: str = " ") -> str:
    """A first frame: every cell written, as Textual does."""
    return "\n".join(f"\x1b[{y + 1};1H\x1b[1m{character * WIDTH}\x1b[0m" for y in range(HEIGHT))


SEGMENT = st.tuples(st.sampled_from(PALETTE), st.text(alphabet=st.sampled_from("ab 1─░⣿é–▲"), min_size=1, max_size=8))


@st.composite
def frames(draw: st.DrawFn) -> list[str]:
    found = [full()]
    for _ in range(draw(st.integers(1, 4))):
        frame = ""
        for _ in range(draw(st.integers(1, 4))):
            x, y = draw(st.integers(0, WIDTH - 1)), draw(st.integers(0, HEIGHT - 1))
            frame += f"\x1b[{y + 1};{x + 1}H"
            room = WIDTH - x
            for codes, text in draw(st.lists(SEGMENT, min_size=1, max_size=3)):
                text, room = text[:room], room - len(text[:room])
                frame += f"\x1b[{codes}m{text}\x1b[0m" if text else ""
        found.append(draw(st.sampled_from(["", "\x1b[?2026h", "\x07"])) + frame)
    return found


@given(frames())
def test_what_is_shown_is_the_same(drawn: list[str]) -> None:
    plain, thrifty, _ = run(*drawn)
    assert cells(thrifty) == cells(plain)


@given(
    st.lists(
        st.lists(st.sampled_from(["ab", "漢", "a漢b", "x", "漢漢"]), min_size=1, max_size=4), min_size=1, max_size=6
    )
)
def test_wide_characters_stay_whole(rows: list[list[str]]) -> None:
    drawn = [full()]
    for row in rows:
        text = "".join(row)
        size = sum(2 if char == "漢" else 1 for char in text)
        drawn.append(f"\x1b[1;1H\x1b[1m{text}{' ' * (WIDTH - size)}\x1b[0m")
    plain, thrifty, _ = run(*drawn)
    assert cells(thrifty) == cells(plain)


def test_a_frame_that_changes_nothing_sends_nothing() -> None:
    _, _, sent = run(full("x"), full("x"))
    assert sent[1] == ""


def test_only_the_changed_digits_are_sent_and_colours_once() -> None:
    line = "\x1b[2;1H\x1b[38;2;1;2;3mpower {:3} W temp {:2}\x1b[0m"
    _, _, sent = run(full(), line.format(250, 40), line.format(253, 41))
    assert sent[2] == "\x1b[2;9H3\x1b[9C1"


def test_near_changes_are_joined_by_the_cells_between() -> None:
    _, _, sent = run(full(), "\x1b[1;1H\x1b[1mabcdef\x1b[0m", "\x1b[1;1H\x1b[1mAbcDef\x1b[0m")
    assert sent[2] == "\x1b[1;1HAbcD"


def test_after_forget_and_resize_everything_is_sent_again() -> None:
    thrift = Thrift()
    thrift.resize(WIDTH, HEIGHT)
    first = thrift.feed(full("x"))
    thrift.forget()
    assert len(thrift.feed(full("x"))) == len(first)
    thrift.resize(WIDTH, HEIGHT)
    assert len(thrift.feed(full("x"))) == len(first)


def test_a_control_it_does_not_know_makes_it_forget() -> None:
    _, _, sent = run(full("x"), "\x1b[2J", full("x"))
    assert sent[1] == "\x1b[2J"
    assert len(sent[2]) > WIDTH * HEIGHT


def test_modes_clipboard_and_bell_pass_and_nothing_is_forgotten() -> None:
    controls = ["\x1b[?2026h", "\x1b[?25l", "\x1b[?2026$p", "\x1b[>25u", "\x1b[<u", "\x1b]52;c;YWJj\x07", "\x07"]
    _, _, sent = run(full("x"), *controls, full("x"))
    assert sent[1:-1] == controls
    assert sent[-1] == ""


def test_leaving_and_entering_the_other_screen_forgets() -> None:
    _, _, sent = run(full("x"), "\x1b[?1049l", "\x1b[?1049h", full("x"))
    assert len(sent[-1]) > WIDTH * HEIGHT


def test_the_cursor_goes_where_an_input_line_wants_it_and_is_not_moved_home() -> None:
    _, _, sent = run(full("x"), "\x1b[3;4H", "\x1b[3;4H", "\x1b[1;1H")
    assert sent[1:] == ["\x1b[3;4H", "", ""]


def test_text_off_the_screen_is_dropped() -> None:
    _, _, sent = run(f"\x1b[9;1Hxyz\x1b[1;{WIDTH + 1}Hxyz")
    assert not re.search("[xyz]", sent[0])


def test_from_one_colour_to_the_next_only_what_differs_is_said() -> None:
    plain, loud = "38;5;250;48;5;234", "1;38;5;255;48;5;234"
    line = f"\x1b[1;1H\x1b[{plain}m{{0}}\x1b[0m\x1b[{loud}m{{0}}\x1b[0m\x1b[{plain}m{{0}}\x1b[0m"
    _, _, sent = run(full(), line.format("ab"), line.format("cd"))
    assert sent[2] == f"\x1b[1;1Hcd\x1b[1;38;5;255mcd\x1b[0;{plain}mcd"
