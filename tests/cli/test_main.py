"""The frame of the command line: usage, errors and exit codes, one line and a hint each."""

import subprocess
import sys
from pathlib import Path

import pytest

from decodetop import __version__
from decodetop.cli import COMMANDS, main
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
        assert f"  {name} " in out


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
