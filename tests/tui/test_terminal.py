"""The real program in a real terminal: bytes a tick, resizing, and leaving it as it was."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
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
FILLED = "why 51 tok/s?"
"""Of the first frame with readings: an empty one may come before it."""


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
        terminal.until(lambda t: t.shows(FILLED) and t.shows("b bench"))
        terminal.settle()
        codes = {code for sgr in re.findall(rb"\x1b\[([\d;]*)m", terminal.raw) for code in sgr.decode().split(";")}
        assert {"1", "2"} <= codes
        assert [code for code in codes if not re.fullmatch(allowed, code)] == []


def cells(terminal: Terminal) -> list[list[object]]:
    """What stands on the screen, with its colours."""
    screen = terminal.screen
    return [[screen.buffer[y][x] for x in range(screen.columns)] for y in range(screen.lines)]


@pytest.mark.parametrize(
    "env",
    [{"COLORTERM": "truecolor"}, {"COLORTERM": ""}, {"NO_COLOR": "1"}, {"TERM": "xterm", "COLORTERM": ""}],
    ids=["truecolor", "256", "NO_COLOR", "16 colours"],
)
def test_what_stands_on_the_screen_is_what_was_drawn_at_once(tmp_path: Path, env: dict[str, str]) -> None:
    """After seconds of differences the screen equals one that Textual draws from nothing, colours too."""
    with Terminal(program("steps", tmp_path), 100, 30, env=env) as terminal:
        terminal.until(lambda t: t.shows("02:01:00") and t.shows("b bench"))
        for second in (1, 2, 3):
            terminal.type("R")
            terminal.until(lambda t, at=second: t.shows(f"02:01:0{at}"))  # type: ignore[misc]
        terminal.type("2\t3jj")
        terminal.until(lambda t: t.shows("▌ ✗"))
        terminal.settle()
        grown = cells(terminal)
        terminal.screen.reset()
        terminal.type("r")
        terminal.until(lambda t: cells(t) == grown)


@pytest.mark.parametrize(
    "locale", [{"LC_ALL": "C"}, {"LC_ALL": "", "LANG": "C", "LC_CTYPE": ""}], ids=["LC_ALL", "LANG"]
)
def test_a_c_locale_gets_ascii(tmp_path: Path, locale: dict[str, str]) -> None:
    with Terminal(program("steps", tmp_path), env=locale) as terminal:
        terminal.until(lambda t: t.shows(FILLED) and t.shows("b bench"))
        terminal.settle()
        assert terminal.raw.isascii() and terminal.shows("-1 gpu ---") and terminal.shows("-+-3 investigation")
        terminal.type("R")  # what changes goes the short way
        terminal.until(lambda t: t.shows("02:01:01"))
        terminal.settle()
        assert terminal.raw.isascii()


def test_the_linux_console_gets_no_braille(tmp_path: Path) -> None:
    """Its fonts have lines and blocks but no dots; most other signs of ours neither."""
    with Terminal(program("steps", tmp_path), env={"TERM": "linux", "COLORTERM": ""}) as terminal:
        terminal.until(lambda t: t.shows(FILLED) and t.shows("b bench"))
        terminal.type("R")
        terminal.until(lambda t: t.shows("02:01:01"))
        terminal.settle()
        shown = set(terminal.raw.decode(errors="ignore"))
        assert not any(0x2800 < ord(char) < 0x2900 for char in shown) and not shown & set("▁▂▃▅▆▇✓✗▶○●…")
        assert "─" in shown and "█" in shown and terminal.shows("┬─3 investigation")


def test_it_follows_the_size_of_the_terminal(tmp_path: Path) -> None:
    with Terminal(program("steps", tmp_path)) as terminal:
        terminal.until(lambda t: t.shows(FILLED))
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
        terminal.until(lambda t: t.shows(FILLED))
        assert termios.tcgetattr(terminal.master) != terminal.before
        terminal.raw = b""
        os.kill(terminal.process.pid, word)
        assert terminal.wait() == 0
        assert ALTERNATE_OFF in terminal.raw and b"\x1b[?25h" in terminal.raw
        assert termios.tcgetattr(terminal.master) == terminal.before


def test_keys_typed_while_it_starts_are_not_echoed_and_act_when_it_is_there(tmp_path: Path) -> None:
    with Terminal(program("steps", tmp_path)) as terminal:
        while termios.tcgetattr(terminal.master)[3] & termios.ECHO:
            terminal.read(0.01)
        assert ALTERNATE_ON not in terminal.raw
        terminal.type("3")
        terminal.until(lambda t: t.shows("x tick   i start"))
        assert terminal.raw.partition(ALTERNATE_ON)[0].strip() == b""
        terminal.type("q")
        assert terminal.wait() == 0
        assert termios.tcgetattr(terminal.master) == terminal.before


def test_what_fails_before_the_screen_leaves_the_echo_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "decodetop", "replay", str(tmp_path / "none.tape")]
    with Terminal(command) as terminal:
        assert terminal.wait() == 1
        assert termios.tcgetattr(terminal.master) == terminal.before


def test_q_leaves_a_clean_terminal(tmp_path: Path) -> None:
    with Terminal(program("steps", tmp_path)) as terminal:
        terminal.until(lambda t: t.shows(FILLED))
        terminal.type("q")
        assert terminal.wait() == 0
        assert terminal.raw.count(ALTERNATE_ON) == terminal.raw.count(ALTERNATE_OFF) == 1
        assert termios.tcgetattr(terminal.master) == terminal.before


@pytest.mark.parametrize("ignored", [False, True], ids=["hang-up", "nohup"])
def test_it_ends_with_its_terminal(tmp_path: Path, ignored: bool) -> None:
    with Terminal(program("steps", tmp_path), hang_up_ignored=ignored) as terminal:
        terminal.until(lambda t: t.shows(FILLED))
        terminal.close()
        assert terminal.process.wait(timeout=30) == 0


def test_a_terminal_that_takes_nothing_does_not_hold_it(tmp_path: Path) -> None:
    with Terminal(program("steps", tmp_path), 250, 70) as terminal:
        terminal.until(lambda t: t.shows(FILLED))
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


HOSTILE = (
    b"caf\xe9 \xff\xfe\x80",
    b"\x1b[1114112u\x1b[99999999999999999999u\x1b[97;1:2;3u\x1b[1;1;55296u",
    b"\x1b[48;99999999;99999999;1;1t\x1b[48;0;0;0;0t\x1b[?2048;1$y\x1b[?2048;2$y",
    b"\x1b[<0;99999999;99999999M\x1b[<64;1;1M\x1b[<35;500;500m\x1b[M\xff\xff\xff\x1b[32;200;200M",
    b"\x1b]11;rgb:0/0/0\x07\x1bP>|x\x1b\\\x1b[?1;2c\x1b[12;40R\x1b[" + b"9" * 9000 + b"m",
    b"\x1b[200~" + "语\x1b[31m\r\n\x00é".encode() * 3000 + b"\x1b[201~",
    b"\x00\x01\x02\x04\x05\x0e\x10\x14\x15\x16\x17\x18\x19\x1c\x1d\x1e\x1f\x7f",
)


@pytest.mark.parametrize("window", ["", "a", "o"])
def test_no_bytes_on_the_line_end_it_or_make_it_deaf(tmp_path: Path, window: str) -> None:
    with Terminal(program("steps", tmp_path)) as terminal:
        terminal.until(lambda t: t.shows(FILLED))
        terminal.type(window)
        os.write(terminal.master, b"".join(HOSTILE))
        terminal.settle()
        terminal.type("\x1b")
        terminal.settle()
        terminal.type("2?")
        terminal.until(lambda t: t.shows("focus it on a preset"))
        terminal.type("\x1b")
        terminal.until(lambda t: not t.shows("focus it on a preset"))
        terminal.type("q")
        assert terminal.wait() == 0
        assert termios.tcgetattr(terminal.master) == terminal.before
        assert b"Traceback" not in terminal.raw


def test_keys_come_no_faster_than_they_are_taken_and_a_signal_still_ends_it(tmp_path: Path) -> None:
    with Terminal(program("steps", tmp_path)) as terminal:
        terminal.until(lambda t: t.shows(FILLED))
        os.set_blocking(terminal.master, False)
        taken = 0
        for _ in range(2000):
            with contextlib.suppress(BlockingIOError):
                taken += os.write(terminal.master, b"j" * 4096)
            terminal.read(0)
        assert taken < 1 << 22  # the rest waits in the line, not in memory
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.wait() == 0


SHELL = ("bash", "--norc", "--noprofile", "-i")


@pytest.mark.parametrize("how", ["key", "TSTP", "STOP"])
def test_stopped_it_gives_the_terminal_back_and_continued_it_draws_again(tmp_path: Path, how: str) -> None:
    with Terminal(SHELL, env={"PS1": "prompt> ", "HISTFILE": ""}) as terminal:
        terminal.until(lambda t: t.shows("prompt>"))
        terminal.type(shlex.join(program("steps", tmp_path)) + "\n")
        terminal.until(lambda t: t.shows(FILLED))
        terminal.settle()
        before = list(terminal.screen.display)
        terminal.raw = b""
        if how == "key":
            terminal.type("\x1a")
        else:
            os.kill(os.tcgetpgrp(terminal.master), getattr(signal, f"SIG{how}"))
        terminal.until(lambda t: b"Stopped" in t.raw)
        assert how == "STOP" or (ALTERNATE_OFF in terminal.raw and b"\x1b[?25h" in terminal.raw)
        terminal.type("stty -a | grep -o ' icanon'; fg\n")
        terminal.until(lambda t: t.screen.display == before)
        assert how == "STOP" or b" icanon\r\n" in terminal.raw
        terminal.type("R")
        terminal.until(lambda t: t.shows("02:01:01"))
        terminal.type("q")
        terminal.until(lambda t: t.raw.endswith(b"prompt> "))
        terminal.type("echo DONE $?\n")
        terminal.until(lambda t: b"DONE 0" in t.raw)


def test_where_nobody_could_continue_it_it_does_not_stop(tmp_path: Path) -> None:
    with Terminal(program("steps", tmp_path)) as terminal:
        terminal.until(lambda t: t.shows(FILLED))
        terminal.type("\x1a")
        terminal.until(lambda t: FILLED.encode() in t.raw.partition(ALTERNATE_OFF)[2].partition(ALTERNATE_ON)[2])
        terminal.type("R")
        terminal.until(lambda t: t.shows("02:01:01"))
        terminal.type("q")
        assert terminal.wait() == 0


@pytest.mark.parametrize(("word", "code"), [(signal.SIGINT, 130), (signal.SIGQUIT, 0)], ids=["INT", "QUIT"])
def test_an_interrupt_from_outside_leaves_a_clean_terminal(tmp_path: Path, word: signal.Signals, code: int) -> None:
    with Terminal(program("steps", tmp_path)) as terminal:
        terminal.until(lambda t: t.shows(FILLED))
        os.kill(terminal.process.pid, word)
        assert terminal.wait() == code
        assert ALTERNATE_OFF in terminal.raw and b"Traceback" not in terminal.raw
        assert termios.tcgetattr(terminal.master) == terminal.before
