"""The process as a whole: interrupted at any moment, options in any order, folders that may not be read."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from decodetop.cli import main

ROOT = Path(__file__).resolve().parents[2]


def python(program: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tui'}"}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environ, check=False, timeout=60
    )


INTERRUPT_AT_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = ["decodetop", *{argv!r}]
from decodetop.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["decodetop.config", "argparse", "decodetop.cli.gpu", "decodetop.bench.store"])
def test_ctrl_c_while_modules_are_imported(module: str) -> None:
    argv = ["bench", "list"] if module == "decodetop.bench.store" else ["gpu", "--help"]
    result = python(INTERRUPT_AT_IMPORT.format(module=module, argv=argv))
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_ctrl_c_while_python_ends() -> None:
    program = "import atexit, os, signal, sys\natexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
    program += "sys.argv = ['decodetop', 'bench', 'presets']\nfrom decodetop.__main__ import main\nsys.exit(main())"
    result = python(program)
    assert result.returncode == 130 and "single" in result.stdout and result.stderr == ""


def test_who_was_told_to_ignore_ctrl_c_does() -> None:
    program = INTERRUPT_AT_IMPORT.format(module="decodetop.cli.bench", argv=["bench", "presets"])
    result = python(f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{program}")
    assert result.returncode == 0 and "single" in result.stdout


def test_common_options_may_stand_before_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(tmp_path / "investigation")
    assert main(["--investigation", folder, "--readonly", "todo", "add", "first"]) == 0
    assert main([f"--investigation={folder}", "todo", "list"]) == 0
    assert "first" in capsys.readouterr().out
    assert (tmp_path / "investigation" / "todo.json").exists()


def test_other_options_before_the_command_are_told_their_place(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--quiet", "server"])
    assert stop.value.code == 2
    assert "decodetop server ..." in capsys.readouterr().err


def without_roots_powers() -> None:
    """Permissions hold for this process and its children, whoever runs the tests."""
    if os.getuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for power in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            if libc.prctl(24, power):  # PR_CAPBSET_DROP
                raise OSError(ctypes.get_errno(), "prctl")


@pytest.mark.parametrize(
    "argv",
    [
        "bench list", "bench show 1", "bench run --endpoint 127.0.0.1:9", "todo", "todo add x", "todo question",
        "doctor", "report", "floor --model {}/x --gpu A100", "diagnose --run 1 --no-capture", "stream --duration-s 1",
        "record -o {}/x", "replay {}/x --json", "steps {}/x", "todo import {}/x", "todo follow {}/x",
        "server --config {}/x",
        "bench experiment {}/x", "bench run --prompts {}/x", "report --tape {}/x",
    ],
)  # fmt: skip
def test_a_folder_that_may_not_be_entered_is_one_line(tmp_path: Path, argv: str) -> None:
    folder = tmp_path / "investigation"
    folder.mkdir(mode=0o000)
    words = argv.replace("{}", str(folder)).split()
    try:
        result = subprocess.run(
            [sys.executable, "-m", "decodetop", *words, "--investigation", str(folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            preexec_fn=without_roots_powers,
            env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tui'}"},
        )
    finally:
        folder.chmod(0o700)
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if not line.startswith("  hint")]
    assert result.returncode in (0, 1, 2) and len(lines) <= (3 if argv == "report" else 1), result.stderr
    assert "output" not in result.stderr
    if result.returncode:
        # what can't be followed stands in the reading, beside what can
        said = result.stdout if argv.startswith("todo follow") else result.stderr
        assert "ermission denied" in said or "can't open" in said


@pytest.mark.parametrize(
    "argv",
    [
        "gpu --config {}", "todo import {}", "replay {} --json", "report --tape {}", "steps {}",
        "floor --model {} --gpu A100",        "floor --gpus {} --model / --gpu A100",
        "bench run --prompts {} --endpoint 127.0.0.1:9", "todo follow {}.db",
        "bench experiment {}", "steps --kinds {} x", "todo follow {}", "todo follow {}.jsonl", "floor --steps {}",
    ],
)  # fmt: skip
def test_a_pipe_in_the_place_of_a_file_is_one_line(
    tmp_path: Path, argv: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("pipe", "pipe.db", "pipe.jsonl"):
        os.mkfifo(tmp_path / name)
    words = argv.replace("{}", str(tmp_path / "pipe")).split()
    code = main([*words, "--investigation", str(tmp_path / "investigation")])
    captured = capsys.readouterr()
    assert code in (1, 2) and "it is a pipe, not a file" in captured.out + captured.err


@pytest.mark.parametrize(
    "name",
    [
        "todo.json",
        "investigation.json",
        ".todo.json.last",
        "presets.toml",
    ],
)
def test_a_pipe_in_the_investigation_holds_nothing_up(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / name)
    for argv in (["todo", "add", "x"], ["todo", "list"], ["bench", "presets"], ["floor", "--model", "x/y"]):
        main([*argv, "--investigation", str(tmp_path)])
    err = capsys.readouterr().err
    assert name.startswith(".") or "it is a pipe, not a file" in err


@pytest.mark.parametrize("option", ["--investigation", "--config"])
@pytest.mark.parametrize("path", ["", "~nosuchuser-here/x"])
def test_a_path_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str], option: str, path: str) -> None:
    assert main(["todo", option, path]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 2


def test_a_report_goes_into_a_folder_or_a_pipe(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tape = str(ROOT / "tests" / "tapes" / "h200_sglang.tape")
    assert main(["report", "--tape", tape, "-o", str(tmp_path)]) == 0
    (written,) = tmp_path.glob("snapshot-*.md")
    assert capfd.readouterr().out == ""
    assert main(["report", "--tape", tape, "-o", "/dev/stdout"]) == 0
    assert capfd.readouterr().out == written.read_text()


def test_a_broken_presets_file_costs_its_presets_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "presets.toml").write_text("[x\n")
    assert main(["report", "--investigation", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("---\n") and "presets.toml" in err and "the shipped presets are used" in err


def test_the_doctor_knows_what_the_screen_would_complain_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("theme = 'nosuch'\n[keys]\nquitt = 'x'\n")
    (tmp_path / "themes").mkdir()
    (tmp_path / "themes" / "own.toml").write_text("[")
    (tmp_path / "presets.toml").write_text("[x\n")
    assert main(["doctor", "--json", "--config", str(config), "--investigation", str(tmp_path)]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    said = "\n".join(check["detail"] for check in checks if check["name"] in ("screen", "warning"))
    assert "no theme 'nosuch'" in said and "quitt" in said and "own.toml" in said and "presets.toml" in said
