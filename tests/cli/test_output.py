"""What commands print: text from outside can't steer the terminal, and data stays data."""

import ast
import json
from pathlib import Path

import pytest

from decodetop.cli import main
from decodetop.cli.common import complain, print_json, print_lines, tell
from decodetop.core.outside import harmless, harmless_json

EVIL = "gemm\x1b]0;owned\x07\x1b[2J\u202egnirts\x9b31m\x7f\u200b\r\nnext"
CLI = Path(__file__).resolve().parents[2] / "src" / "decodetop" / "cli"


def steers(text: str) -> list[str]:
    return [char for char in text if not char.isprintable() and char != "\n"]


def test_a_line_stays_one_line_and_keeps_its_columns() -> None:
    assert harmless("  a    b  ") == "  a    b  "
    assert len(harmless(EVIL)) == len(EVIL) and "\n" not in harmless(EVIL) and not steers(harmless(EVIL))


@pytest.mark.parametrize("value", [EVIL, "é ü 漢字 🚀", "\U000e0001tag", "\ud83d", 'q"\\'])
def test_json_holds_the_same_data_and_steers_nothing(value: str) -> None:
    text = json.dumps({"name": value}, ensure_ascii=False)
    assert json.loads(harmless_json(text)) == {"name": value}
    assert not steers(harmless_json(text))


def test_what_is_printed_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines([EVIL, "  two"])
    print_json({"name": EVIL})
    tell(EVIL)
    complain(EVIL, EVIL)
    out, err = capsys.readouterr()
    assert not steers(out) and not steers(err)
    assert out.splitlines()[1] == "  two" and len(err.splitlines()) == 3
    assert json.loads(out[out.index("{") :]) == {"name": EVIL}


def test_an_error_from_outside_steers_no_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    named = tmp_path / "a\x1b[31mb.toml"
    assert main(["gpu", "--config", str(named)]) == 2
    assert not steers(capsys.readouterr().err)
    with pytest.raises(SystemExit):
        main(["gpu", "\x1b[31m"])
    assert not steers(capsys.readouterr().err)


def test_commands_print_in_one_place_only() -> None:
    """`print` and the raw streams belong to common.py, which makes what it is given harmless."""
    wrong = []
    for path in sorted(CLI.glob("*.py")):
        if path.name == "common.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "print", "sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer.write", "sys.stdout.writelines",
            ):  # fmt: skip
                wrong.append(f"{path.name}:{node.lineno}")
    assert wrong == []
