"""The wheel, in a venv of its own: both packages, the themes, the data files and a command that starts."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA_SUFFIXES = {".toml", ".tcss"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv that holds the wheel's files; the dependencies come from ours, our editable checkout doesn't."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "python"


def run(python: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(python), *argv], capture_output=True, text=True, cwd=python.parent, check=False)


def test_the_wheel_holds_what_the_checkout_holds(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for top, prefix in (("src", ""), ("tui", ""), ("themes", "decodetop_tui/themes/")):
        for path in (ROOT / top).rglob("*"):
            if path.suffix in {".py", *DATA_SUFFIXES} or path.name == "py.typed":
                assert prefix + path.relative_to(ROOT / top).as_posix() in names
    assert not [name for name in names if name.startswith(("tests", "src", "tui", "docs", "benchmarks"))]


def test_it_comes_from_the_wheel_and_starts(python: Path) -> None:
    where = run(
        python, "-c", "import decodetop, decodetop_tui; print(decodetop.__file__); print(decodetop_tui.__file__)"
    )
    assert where.returncode == 0, where.stderr
    assert str(ROOT) not in where.stdout
    version = run(python, "-m", "decodetop", "--version")
    assert version.returncode == 0, version.stderr


def test_its_themes_are_found(python: Path) -> None:
    program = "from decodetop_tui.theme import theme_dir; print(*sorted(p.stem for p in theme_dir().iterdir()))"
    result = run(python, "-c", program)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == sorted(path.stem for path in (ROOT / "themes").glob("*.toml"))


def test_the_screen_starts_from_the_wheel(python: Path) -> None:
    result = run(python, "-c", "import decodetop_tui.app, decodetop.cli.tui, decodetop.flows.demo")
    assert result.returncode == 0, result.stderr
