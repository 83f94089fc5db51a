"""The house holds: who may import what, who owns time, processes and blind excepts. See CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTRUMENTS = ("gpu", "host", "server", "todo", "steps", "floor", "bench", "log", "diagnosis")

PURE_STDLIB = {
    "__future__", "bisect", "collections", "dataclasses", "enum", "functools", "html", "itertools", "math", "re",
    "statistics", "string", "textwrap", "types", "typing", "unicodedata", "datetime", "shlex",
}  # fmt: skip
TIME_OWNERS = {"core/clock.py"}
CHILD_CLOCKS = ("bench/", "sim/", "steps/child.py")
"""Child processes that stamp with CLOCK_MONOTONIC themselves: the load generator, the simulated server, the parser."""
SPAWNERS = {
    "core/pipe.py", "bench/launch.py", "steps/service.py", "steps/launch.py", "sim/process.py",
    "flows/capture_guard.py", "flows/bench_variant.py", "server/journal.py",
}  # fmt: skip
"""`server/journal.py`: the journal has no other door than journalctl, and following it by polling would start one each
second; its file format is systemd's own."""
BLIND_EXCEPTS = {
    "core/engine.py", "core/feed.py", "core/thread.py", "flows/session.py", "bench/worker.py", "steps/child.py",
    "sim/server.py", "cli/tui.py", "tui/pane.py",
}  # fmt: skip


DECODERS = {
    "core/decode.py",
    # the hot path over a trace: a chunk that is not as expected is read again, event by event
    "steps/events.py", "steps/heads.py", "steps/layout.py", "steps/rescue.py",
    # looks for lists inside any text
    "todo/formats/todowrite.py",
}  # fmt: skip
"""Modules that call a JSON decoder themselves; all others go by core.decode, which has one error."""


class Module(NamedTuple):
    name: str
    where: str
    tree: ast.Module

    def imports(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(package: str) -> list[Module]:
    top = ROOT / ("src" if package == "decodetop" else "tui")
    found = []
    for path in sorted((top / package).rglob("*.py")):
        parts = path.relative_to(top).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        where = "/".join(path.relative_to(top / package).parts)
        where = where if package == "decodetop" else f"tui/{where}"
        found.append(Module(name, where, ast.parse(path.read_text("utf-8"))))
    return found


ENGINE = modules("decodetop")
FACE = modules("decodetop_tui")


def instrument_of(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "decodetop" and parts[1] in INSTRUMENTS else None


def test_an_instrument_imports_only_the_reading_of_another() -> None:
    wrong = []
    for module in ENGINE:
        own = instrument_of(module.name)
        for imported in module.imports():
            other = instrument_of(imported)
            if own and other and own != other and not imported.startswith(f"decodetop.{other}.reading"):
                wrong.append(f"{module.where} imports {imported}")
    assert wrong == []


def test_instruments_and_core_do_not_import_what_stands_above_them() -> None:
    above = ("decodetop.flows", "decodetop.findings", "decodetop.report", "decodetop.cli", "decodetop.sim")
    wrong = [
        f"{module.where} imports {imported}"
        for module in ENGINE
        if instrument_of(module.name) or module.name.startswith("decodetop.core")
        for imported in module.imports()
        if imported.startswith(above)
    ]
    assert wrong == []


@pytest.mark.parametrize("leaf", ["reading", "text"])
def test_readings_and_texts_are_pure(leaf: str) -> None:
    allowed = (
        "decodetop.core.sample", "decodetop.core.state", "decodetop.core.words", "decodetop.core.outside",
        "decodetop.errors", "msgspec",
    )  # fmt: skip
    wrong = []
    for module in ENGINE:
        if module.name.split(".")[-1] != leaf:
            continue
        for imported in module.imports():
            own = imported.startswith(f"decodetop.{instrument_of(module.name)}.") and leaf == "text"
            reading = instrument_of(imported) is not None and ".reading" in imported
            stdlib = imported.split(".")[0] in PURE_STDLIB or imported.startswith("urllib.parse")
            if not (
                imported.startswith(allowed) or own or reading or stdlib or imported in ("decodetop", "decodetop.core")
            ):
                wrong.append(f"{module.where} imports {imported}")
    assert wrong == []


def test_the_face_measures_nothing() -> None:
    allowed = (
        "decodetop.core", "decodetop.findings", "decodetop.report", "decodetop.config", "decodetop.errors",
        "decodetop.__version__",
    )  # fmt: skip
    banned = {"pynvml", "httpx", "psutil", "subprocess", "sqlite3", "socket", "time"}
    wrong = []
    for module in FACE:
        for imported in module.imports():
            if imported.split(".")[0] in banned:
                wrong.append(f"{module.where} imports {imported}")
            elif imported.startswith("decodetop.") and not imported.startswith(allowed):
                leaf = imported.split(".")[2] if imported.count(".") >= 2 else ""
                if leaf not in ("reading", "text") and imported.count(".") >= 2:
                    wrong.append(f"{module.where} imports {imported}")
    assert wrong == []


def test_time_has_one_owner() -> None:
    wrong = []
    for module in ENGINE:
        if module.where in TIME_OWNERS or module.where.startswith(CHILD_CLOCKS):
            continue
        wrong += [f"{module.where} imports {name}" for name in module.imports() if name.split(".")[0] == "time"]
        wrong += [
            f"{module.where}:{node.lineno} calls {node.func.attr}"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("now", "utcnow", "today")
        ]
    assert wrong == []


def test_processes_are_started_in_few_places() -> None:
    calls = {"create_subprocess_exec", "create_subprocess_shell", "Popen", "check_output", "posix_spawn", "forkpty"}
    wrong = []
    for module in [*ENGINE, *FACE]:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr in calls and module.where not in SPAWNERS:
                wrong.append(f"{module.where}:{node.lineno} uses {node.attr}")
        if module.where not in SPAWNERS:
            wrong += [f"{module.where} imports subprocess" for name in module.imports() if name == "subprocess"]
    assert wrong == []


def test_blind_excepts_stand_at_process_edges_only() -> None:
    wrong = []
    for module in [*ENGINE, *FACE]:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            names = {getattr(part, "id", "") for part in ast.walk(node.type)} if node.type is not None else {"bare"}
            last = node.body[-1]
            if isinstance(last, ast.Raise) and last.exc is None:
                continue  # it tidies up and lets the error go on
            if names & {"Exception", "BaseException", "bare"} and module.where not in BLIND_EXCEPTS:
                wrong.append(f"{module.where}:{node.lineno}")
    assert wrong == []


def bare_decodes(tree: ast.Module) -> list[int]:
    """Lines that decode JSON without core.decode: `json.loads`, `msgspec.json.decode`, or a method of a Decoder."""
    bound = {"json", "msgspec.json"}
    decoders = set()
    for node in ast.walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and target is not None:
            made = [part.func for part in ast.walk(node.value) if isinstance(part, ast.Call)]
            if any(ast.unparse(part).endswith(("json.Decoder", "JSONDecoder")) for part in made):
                decoders.add(ast.unparse(target))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in bound:
            found += [node.lineno for alias in node.names if alias.name in ("loads", "load", "decode", "Decoder")]
        if not isinstance(node, ast.Attribute):
            continue
        owner = ast.unparse(node.value)
        if owner in bound and node.attr in ("loads", "load", "decode"):
            found.append(node.lineno)
        if node.attr in ("decode", "decode_lines", "raw_decode") and (owner in decoders or "Decoder(" in owner):
            found.append(node.lineno)
    return found


def test_toml_is_decoded_in_one_place() -> None:
    readers = [module.where for module in [*ENGINE, *FACE] if "tomllib" in {*module.imports()}]
    shipped_only = ["sim/metrics.py", "sim/steptime.py"]
    assert sorted(readers) == ["core/decode.py", *shipped_only]


def test_json_from_outside_is_decoded_in_one_place() -> None:
    wrong = [
        f"{module.where}:{line}"
        for module in [*ENGINE, *FACE]
        if module.where not in DECODERS
        for line in bare_decodes(module.tree)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "json.loads(x)", "msgspec.json.decode(x)", "from json import loads", "msgspec.json.Decoder(T).decode(x)",
        "A = msgspec.json.Decoder(T)\nA.decode(x)", "A: Any = msgspec.json.Decoder(T).decode",
        "self.a = msgspec.json.Decoder(T)\nf = self.a.decode", "D = json.JSONDecoder()\nD.raw_decode(x)",
    ],
)  # fmt: skip
def test_a_bare_decode_is_seen(text: str) -> None:
    assert bare_decodes(ast.parse(text))


def test_no_module_is_called_utils() -> None:
    assert [module.where for module in [*ENGINE, *FACE] if "util" in module.name.split(".")[-1]] == []


def test_the_engine_runs_without_the_terminal() -> None:
    """At run time, which the static graph can't prove: every engine module but the face's door, then sys.modules."""
    names = [module.name for module in ENGINE if module.name not in ("decodetop.__main__",)]
    program = (
        # httpx has a command line of its own, which brings rich where click is installed
        "import importlib, sys\nsys.modules['click'] = None\n"
        f"[importlib.import_module(name) for name in {names!r}]\n"
        "print(sorted({n.split('.')[0] for n in sys.modules} & {'textual', 'rich', 'decodetop_tui'}))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


def test_starting_a_subcommand_imports_no_other() -> None:
    program = (
        "import sys\nfrom decodetop.cli import main\n"
        "try: main(['gpu', '--help'])\nexcept SystemExit: pass\n"
        "others = ('decodetop.bench', 'decodetop.steps', 'scipy', 'httpx')\n"
        "print(sorted(name for name in sys.modules if name.startswith(others)), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr.strip() == "[]"


def test_every_link_in_the_docs_leads_to_a_file_and_a_heading() -> None:
    def anchors(page: Path) -> set[str]:
        heads = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}

    broken = []
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text("utf-8")):
            if ":" in target:
                continue
            there = page.parent / target if target else page
            if not there.exists() or (anchor and anchor not in anchors(there)):
                broken.append(f"{page.name}: {target}#{anchor}")
    assert broken == []
