"""The real program in a real terminal: bytes a tick, resizing, and leaving it as it was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from support.terminal import TESTS, Terminal

BUDGET_BYTES = 3 * 1024
"""A tick at 120x40 with 8 GPUs, every figure changing (plain Textual widgets: 17 KB)."""

ALTERNATE_ON, ALTERNATE_OFF = b"\x1b[?1049h", b"\x1b[?1049l"


def program(kind: str, folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "support.screen_program", kind, str(folder), *more]


@pytest.mark.parametrize("colours", ["truecolor", ""], ids=["truecolor", "256"])
def test_a_tick_stays_within_its_bytes(tmp_path: Path, colours: str) -> None:
    with Terminal(program("steps", tmp_path), env={"COLORTERM": colours}) as terminal:
        terminal.until(lambda t: t.shows("02:01:00") and t.shows("b bench"))
        terminal.settle()
        for second in range(1, 6):
            terminal.type("R")
            terminal.raw = b""
            terminal.until(lambda t, at=second: t.shows(f"02:01:0{at}"))  # type: ignore[misc]
            terminal.settle()
            assert 0 < len(terminal.raw) <= BUDGET_BYTES
        assert terminal.shows("8x H200") and terminal.shows("dense-8b")


@pytest.mark.parametrize(
    ("env", "allowed"),
    [
        ({"NO_COLOR": "1"}, r"0|1|2|4|7|39|49"),
        ({"TERM": "linux", "COLORTERM": ""}, r"0|1|2|4|7|39|49|3[0-7]|4[0-7]|9[0-7]|10[0-7]"),
    ],
    ids=["NO_COLOR", "16 colours"],
)
def test_the_terminal_gets_no_colour_it_does_not_want(tmp_path: Path, env: dict[str, str], allowed: str) -> None:
    with Terminal(program("steps", tmp_path), env=env) as terminal:
        terminal.until(lambda t: t.shows("5 decode step") and t.shows("b bench"))
        terminal.settle()
        codes = {code for sgr in re.findall(rb"\x1b\[([\d;]*)m", terminal.raw) for code in sgr.decode().split(";")}
        assert {"1", "2"} <= codes
        assert [code for code in codes if not re.fullmatch(allowed, code)] == []


def test_what_stands_on_the_screen_is_what_was_drawn_at_once(tmp_path: Path) -> None:
    """After seconds of differences the screen equals one drawn from nothing."""
    with Terminal(program("steps", tmp_path), 100, 30) as terminal:
        terminal.until(lambda t: t.shows("02:01:00") and t.shows("b bench"))
        for second in (1, 2, 3):
            terminal.type("R")
            terminal.until(lambda t, at=second: t.shows(f"02:01:0{at}"))  # type: ignore[misc]
        terminal.type("2\t3jj")
        terminal.until(lambda t: t.shows("▌ ✗"))
        terminal.settle()
        grown = list(terminal.screen.display)
        terminal.screen.reset()
        terminal.type("r")
        terminal.until(lambda t: t.screen.display == grown)


def test_it_follows_the_size_of_the_terminal(tmp_path: Path) -> None:
    with Terminal(program("steps", tmp_path)) as terminal:
        terminal.until(lambda t: t.shows("3 investigation"))
        for columns, lines in ((60, 16), (40, 10), (200, 60), (80, 24)):
            terminal.resize(columns, lines)
            terminal.until(lambda t, wide=columns: fills(t, wide))  # type: ignore[misc]
            terminal.settle()
            assert fills(terminal, columns)


def fills(terminal: Terminal, columns: int) -> bool:
    """The rule of the first pane goes to the right edge, and the other panes are there if there is room."""
    rule = next((line for line in terminal.screen.display if "1 gpu" in line), "")
    return len(rule.rstrip()) == columns and terminal.shows("decodetop") and terminal.shows("6 host") == (columns >= 60)


@pytest.mark.parametrize("word", [signal.SIGHUP, signal.SIGTERM], ids=["HUP", "TERM"])
def test_a_signal_ends_it_and_the_terminal_is_as_before(tmp_path: Path, word: signal.Signals) -> None:
    with Terminal(program("steps", tmp_path)) as terminal:
        terminal.until(lambda t: t.shows("3 investigation"))
        assert termios.tcgetattr(terminal.master) != terminal.before
        terminal.raw = b""
        os.kill(terminal.process.pid, word)
        assert terminal.wait() == 0
        assert ALTERNATE_OFF in terminal.raw and b"\x1b[?25h" in terminal.raw
        assert termios.tcgetattr(terminal.master) == terminal.before


def test_q_leaves_a_clean_terminal(tmp_path: Path) -> None:
    with Terminal(program("steps", tmp_path)) as terminal:
        terminal.until(lambda t: t.shows("3 investigation"))
        terminal.type("q")
        assert terminal.wait() == 0
        assert terminal.raw.count(ALTERNATE_ON) == terminal.raw.count(ALTERNATE_OFF) == 1
        assert termios.tcgetattr(terminal.master) == terminal.before


@pytest.mark.parametrize("ignored", [False, True], ids=["hang-up", "nohup"])
def test_it_ends_with_its_terminal(tmp_path: Path, ignored: bool) -> None:
    with Terminal(program("steps", tmp_path), hang_up_ignored=ignored) as terminal:
        terminal.until(lambda t: t.shows("3 investigation"))
        terminal.close()
        assert terminal.process.wait(timeout=30) == 0


def test_a_terminal_that_takes_nothing_does_not_hold_it(tmp_path: Path) -> None:
    with Terminal(program("steps", tmp_path), 250, 70) as terminal:
        terminal.until(lambda t: t.shows("3 investigation"))
        terminal.type("rrrrrrrrTTTTrrrrrrrrrTTTTrrrrrr" * 4)  # far more than a pty holds, and nobody reads it
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.process.wait(timeout=30) == 0
        assert termios.tcgetattr(terminal.master) == terminal.before


def test_the_bell_rings_once_and_not_when_quiet(tmp_path: Path) -> None:
    for more, times in (((), 1), (("quiet",), 0)):
        with Terminal(program("bell", tmp_path, *more)) as terminal:
            terminal.until(lambda t: t.shows("decodetop"))
            terminal.settle()
            terminal.raw = b""
            terminal.type("R")
            terminal.until(lambda t: t.shows("the benchmark ended"))
            terminal.settle()
            assert terminal.raw.count(b"\x07") == times


def test_a_source_that_cannot_begin_is_told_after_the_screen_is_gone(tmp_path: Path) -> None:
    with Terminal(program("broken", tmp_path)) as terminal:
        assert terminal.wait() == 1
        assert terminal.raw.rindex(b"the box does not answer") > terminal.raw.rindex(ALTERNATE_OFF)


def test_a_dumb_terminal_is_refused_in_words(tmp_path: Path) -> None:
    with Terminal(program("steps", tmp_path), env={"TERM": "dumb"}) as terminal:
        assert terminal.wait() == 2
        assert b"TERM='dumb' can't show a screen" in terminal.raw and b"\x1b" not in terminal.raw


def test_no_terminal_is_refused_in_words(tmp_path: Path) -> None:
    done = subprocess.run(
        program("steps", tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "decodetop: the screen needs a terminal on stdin and stderr\n"
