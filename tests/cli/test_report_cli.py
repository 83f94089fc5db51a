"""`decodetop report` on a tape: its forms, the bug template's block, what changed between two, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from decodetop.cli.report import comparing
from decodetop.errors import UsageError
from decodetop.report import markdown
from decodetop.steps.reading import Capture, Period, RankSteps, StepsReading, StepsReport
from support import states

TAPE = Path(__file__).parents[1] / "tapes" / "h200_sglang.tape"


def report(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "decodetop", "report", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_the_form_follows_the_name_and_all_of_them_can_be_compared(tmp_path: Path) -> None:
    for name, begin in (("a.md", "---\nschema: 2\n"), ("a.html", "<!doctype html>"), ("a.json", '{\n  "schema": 1,')):
        said = report("--tape", str(TAPE), "-o", str(tmp_path / name))
        assert said.stdout == "" and f"wrote {tmp_path / name}" in said.stderr
        assert (tmp_path / name).read_text("utf-8").startswith(begin)
    for other in ("a.html", "a.json"):
        out = report("--diff", str(tmp_path / "a.md"), str(tmp_path / other)).stdout
        assert out.splitlines()[-1] == "Nothing changed."
    (tmp_path / "edited.md").write_text((tmp_path / "a.md").read_text().replace('"driver":"580', '"driver":"999'))
    out = report("--diff", str(tmp_path / "a.md"), str(tmp_path / "edited.md")).stdout
    assert f"note: the data of {tmp_path / 'edited.md'} was edited after it was written" in out
    assert "  ~ driver: 580.159.04 -> 999.159.04" in out
    found = json.loads(report("--diff", str(tmp_path / "a.md"), str(tmp_path / "a.json"), "--json").stdout)
    assert found["schema"] == 1 and found["changes"] == [] and found["before"]["hashes"]["runs"]


def test_json_holds_words_and_data(tmp_path: Path) -> None:
    found = json.loads(report("--tape", str(TAPE), "--json", "--anonymous").stdout)
    assert (found["schema"], found["path"], found["format"], found["errors"]) == (1, None, "md", [])
    assert found["data"]["host"] == "host-1" and found["data"]["anonymous"] and "gpu-box" not in found["markdown"]


def test_an_explicit_form_wins_over_the_name() -> None:
    assert report("--tape", str(TAPE), "--format", "html").stdout.startswith("<!doctype html>")


@pytest.mark.parametrize(("engine", "words"), [("sglang", "sglang: 0.5.15"), ("vllm", "No vLLM server is seen here")])
def test_the_block_for_an_issue(engine: str, words: str) -> None:
    out = report("--tape", str(TAPE), "--for", engine).stdout
    assert words in out and out.startswith("### ")


def test_what_makes_no_sense_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text("---\nschema: 1\n---\n")
    old = str(tmp_path / "old.md")
    said = report("--diff", old, old, code=1)
    assert "has schema 1" in said.stderr and "hint: write it again from its tape" in said.stderr
    assert "can't read" in report("--diff", old + "x", old, code=1).stderr
    assert "has no meaning with it" in report("--diff", old, old, "-o", "x", code=2).stderr
    assert "markdown only" in report("--tape", str(TAPE), "--for", "vllm", "--format", "json", code=2).stderr
    report("--for", "tgi", code=2)


def test_the_captures_to_compare_are_named_by_how_their_ids_begin() -> None:
    def capture(id: str, us: float) -> Capture:
        return Capture(id=id, made_wall_ns=None, files=(), report=StepsReport(ranks=(step(us),)))

    def step(us: float) -> RankSteps:
        found = states.box().last("steps", StepsReading)
        assert found is not None
        rank = found.captures[0].report.ranks[0]
        period = Period(representative=us, median=us, p10=us, p90=us)
        return msgspec.structs.replace(rank, period_us=period, kinds_us={"copy": us})

    steps = StepsReading(captures=(capture("new-3", 30.0), capture("mid-2", 20.0), capture("mid-1", 10.0)))
    state = states.put(states.box(), {"steps": steps}, 61)
    assert "| copy | 20.0 | 30.0 | +10.0 | +50.0 |" in markdown(state), "else the newest and the one before"
    assert "| copy | 10.0 | 30.0 | +20.0 | +200.0 |" in markdown(comparing(state, ("mid-1", "new")))
    for words, said in ((("mid", "new"), "begins several"), (("x", "new"), "is no capture"), (("new", "new"), "one")):
        with pytest.raises(UsageError, match=said):
            comparing(state, words)
    with pytest.raises(UsageError, match="holds no capture"):
        comparing(states.empty(), ("a", "b"))
