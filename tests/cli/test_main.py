"""The frame of the command line: usage, errors and exit codes, one line and a hint each."""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from decodetop import __version__
from decodetop.cli import COMMANDS, main, parser_of
from decodetop.cli.common import Meter


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    try:
        code = main(list(argv))
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"decodetop {__version__}\n", "")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for name in COMMANDS:
        assert re.search(rf"^    {name}\s", out, re.MULTILINE), name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert "--endpoint" in out and "--config" in out


def test_an_unknown_command_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "gpux")
    assert code == 2 and "invalid choice: 'gpux'" in err


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["gpu", "--endpoint", "http://user:key@box:1"], "holds a user name or key"),
        (["gpu", "--endpoint", "ftp://box"], "is not a server's address"),
        (["gpu", "--config", "/nonexistent/x.toml"], "can't read /nonexistent/x.toml"),
    ],
)
def test_bad_settings_are_one_line_and_a_hint(capsys: pytest.CaptureFixture[str], argv: list[str], word: str) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    first, hint = err.splitlines()
    assert first.startswith("decodetop: ") and word in first
    assert hint.startswith("  hint: ")
    assert "key@" not in err


def walked(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in dict.fromkeys(action.choices.values()):
                yield from walked(sub)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is(name: str) -> None:
    parser, _ = parser_of(name)
    silent = [
        f"{one.prog} {action.option_strings or action.dest}"
        for one in walked(parser)
        for action in one._actions
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert silent == []


def test_the_usage_tells_a_command_s_own_options_and_an_error_where_more_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, _, err = run(capsys, "record")
    assert code == 2
    *usage, error, hint = err.splitlines()
    said = " ".join(" ".join(usage).split())
    assert said == "usage: decodetop record [-h] [common options] -o FILE [--duration-s S] [--json]"
    assert "required: -o" in error and hint == "  hint: `decodetop record --help` says what it takes"
    _, out, _ = run(capsys, "todo", "add", "--help")
    assert out.startswith("usage: decodetop todo add [-h] [common options] [--json]") and "--endpoint URL" in out


def test_an_option_a_command_does_not_take_names_the_command_s_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "gpu", "--frobnicate")
    assert code == 2 and "unrecognized arguments: --frobnicate" in err
    assert err.endswith("  hint: `decodetop gpu --help` says what it takes\n")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    result = subprocess.run(
        f"{sys.executable} -m decodetop --help | true", shell=True, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in result.stderr


def test_a_progress_line_never_wraps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "20")
    meter = Meter()
    meter.show("x" * 50)
    meter.show("x" * 60)
    meter.clear()
    meter.clear()
    assert capsys.readouterr().err == f"\r\x1b[K{'x' * 19}\r\x1b[K"


@pytest.mark.parametrize("redirect", ["> /dev/full", ">&-", "2>&- >&-"])
def test_an_output_that_cannot_be_written_is_no_traceback(redirect: str) -> None:
    tape = Path(__file__).parents[1] / "tapes" / "h200_sglang.tape"
    command = f"{sys.executable} -m decodetop report --tape {tape} {redirect}"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "Traceback" not in result.stderr
    if redirect == "> /dev/full":
        assert result.returncode == 1 and "can't write the output" in result.stderr


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "soon"])
@pytest.mark.parametrize(
    "argv",
    [["record", "-o", "x", "--duration-s"], ["replay", "x", "--speed"], ["steps", "x", "--itl-ms"], ["tui", "--rate"]],
    ids=" ".join,
)
def test_a_number_is_a_number(capsys: pytest.CaptureFixture[str], argv: list[str], word: str) -> None:
    code, _, err = run(capsys, *argv[:-1], f"{argv[-1]}={word}")
    assert code == 2 and argv[-1] in err and "Traceback" not in err
