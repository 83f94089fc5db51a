"""A terminal without UTF-8 gets the same cells in ASCII."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from decodetop_tui.plain import as_ascii, ascii_only, for_console, spelling

OURS = "aé漢e\u0301─│┼▌█░▁⣿⠀⡇▲✗✓○▶…–·°↑🙂"


@given(st.text(st.sampled_from(OURS)))
def test_every_text_keeps_its_width(text: str) -> None:
    plain = as_ascii(text)
    assert plain.isascii() and plain.isprintable() and len(plain) == sum(cell_len(char) for char in text)
    assert [cell_len(char) for char in for_console(text)] == [cell_len(char) for char in text]


def test_the_console_keeps_lines_and_letters_and_draws_history_in_blocks() -> None:
    assert for_console("─1 gpü ✓ ▲ 31 °C ⣀⣠⣤⣴⣿⠀x") == "─1 gpü √ ▲ 31 °C _▄▄██ x"
    assert spelling({"TERM": "linux"}, "utf-8") is for_console
    assert spelling({"TERM": "linux", "LC_ALL": "C"}, "utf-8") is as_ascii
    assert spelling({"TERM": "xterm-256color"}, "utf-8") is None


@pytest.mark.parametrize(
    ("environ", "encoding", "ascii"),
    [
        ({}, "utf-8", False),
        ({"LANG": "en_US.UTF-8"}, "utf-8", False),
        ({"LANG": "C.UTF-8"}, "UTF-8", False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8", True),
        ({"LANG": "C", "LC_CTYPE": "en_US.UTF-8"}, "utf-8", False),
        ({"LC_CTYPE": "C.UTF-8"}, "utf-8", False),
        ({"LC_ALL": "C"}, "utf-8", True),
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, "utf-8", True),
        ({"LC_ALL": "C.UTF-8", "LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8", False),
        ({"LANG": "de_DE"}, "iso8859-1", True),
    ],
)
def test_the_locale_decides(environ: dict[str, str], encoding: str, ascii: bool) -> None:
    assert ascii_only(environ, encoding) == ascii


@pytest.mark.parametrize(
    ("name", "ascii"), [("LANG", True), ("LC_ALL", True), (None, False)], ids=["LANG=C", "LC_ALL=C", "unset"]
)
def test_what_python_makes_of_a_c_locale_is_seen_through(name: str | None, ascii: bool) -> None:
    program = (
        "import os, sys; from decodetop_tui.plain import ascii_only; print(ascii_only(os.environ, sys.stderr.encoding))"
    )
    environ = {"PYTHONPATH": ":".join(sys.path), **({name: "C"} if name else {})}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(ascii)
