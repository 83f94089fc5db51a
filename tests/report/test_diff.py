"""What changed between two snapshots: the data decides; every kind of file is read or refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from decodetop.bench.reading import BenchReading
from decodetop.core.state import State
from decodetop.errors import DataError
from decodetop.report import Privacy, markdown, report
from decodetop.report.block import data, read
from decodetop.report.data import SCHEMA
from decodetop.report.diff import Difference, difference
from decodetop.report.diff_text import lines
from decodetop.report.page import page
from decodetop.server.reading import Flag, ServerReading
from decodetop.steps.reading import StepsReading
from decodetop.todo.reading import Attempt, Evidence, TodoReading
from support import states

replace = msgspec.structs.replace


def later() -> State:
    """The same box after an afternoon: a flag was changed, an attempt failed, the copies went, a run was made."""
    state = states.box()
    todo, server = state.last("todo", TodoReading), state.last("server", ServerReading)
    steps, bench = state.last("steps", StepsReading), state.last("bench", BenchReading)
    assert todo and server and steps and bench
    one, two, three, *rest = todo.todos
    tried = Attempt(change="--attention-backend fa3", outcome="failed", reason="page_size == 64")
    two = replace(two, status="completed", reason="done", attempts=(tried,), evidence=(Evidence(kind="run", ref="5"),))
    flags = (Flag(name="attention_backend", requested="fa3", resolved="fa3"),)
    served = replace(server.servers[0], cuda_graph=True, attention_backend="fa3", flags=flags)
    rank = steps.captures[0].report.ranks[0]
    kinds = {**rank.kinds_us, "idle": 1000.0, "copy": 12.5}
    period = replace(rank.period_us, representative=6000.0)
    made = replace(steps.captures[0].report, ranks=(replace(rank, kinds_us=kinds, period_us=period, idle_us=1000.0),))
    capture = replace(steps.captures[0], id="c2", report=made)
    news = {
        "todo": replace(todo, todos=(one, two, *rest, replace(three, id="t9", content="new | idea"))),
        "server": replace(server, servers=(served,)),
        "steps": replace(steps, captures=(capture, *steps.captures)),
        "bench": replace(bench, runs=(states.run(5, 103.4, 9.67), *bench.runs)),
    }
    return states.put(state, news, 7200)


def changed() -> Difference:
    return difference(report(states.box()).data, report(later()).data)


def test_the_words_say_what_an_afternoon_did() -> None:
    out = lines(changed())
    text = "\n".join(out)
    assert out[0] == "before  2026-11-30T02:01:00Z  gpu-box-7  why 51 tok/s?" and out[1].startswith("after   2026-")
    for line in (
        "  t2 Break down step: kernel, allreduce, scheduling",
        "    ~ status: pending -> completed",
        "    + attempt: --attention-backend fa3: failed: page_size == 64",
        "    + evidence: run 5",
        "  + t9 new | idea",
        "  - t3 trtllm_mla backend",
        "    ~ flag asked for attention_backend: none -> fa3",
        "    ~ flag in force disable_cuda_graph: True -> none",
        "    ~ cuda graph: off -> on",
        "  + #5 single 1 stream 103.4 tok/s TTFT 55.0 TPOT 9.67 ms ok",
        "  newest, #4 -> #5",
        "    ~ tpot: 19.3 -> 9.67 ms (-50 %)",
        "    ~ output: 51.7 -> 103.4 tok/s (+100 %)",
        "  newest, c1 -> c2",
        "    ~ idle: 58,700 -> 1,000 us (-98 %)",
        "    ~ profiled step: 63,700 -> 6,000 us (-91 %)",
        "  - suspect: CUDA graphs are off: 1 running; every kernel is launched by the CPU",
    ):
        assert line in out, f"{line}\n{text}"


def test_figures_that_move_by_themselves_are_no_change() -> None:
    before, after = report(states.box(ticks=60)).data, report(states.box(ticks=77)).data
    assert before.made != after.made and difference(before, after).changes == ()
    assert lines(difference(before, after))[-1] == "Nothing changed."


def test_a_thing_that_changed_from_unknown_says_so() -> None:
    before, after = report(states.bare()).data, report(states.box()).data
    out = lines(difference(before, after))
    assert "  ~ driver: none -> 570.86.15" in out and "  + GPU 0 NVIDIA H200" in out
    assert "  ~ question: none -> why 51 tok/s?" in out or "  ~ none -> why 51 tok/s?" in out


def test_old_runs_leave_by_age_and_are_not_called_removed() -> None:
    state = states.box()
    bench = state.last("bench", BenchReading)
    assert bench is not None
    after = states.put(state, {"bench": replace(bench, runs=(states.run(5, 60.0, 16.0), bench.runs[0]))}, 90)
    found = difference(report(state).data, report(after).data)
    assert [change.what for change in found.changes if change.section == "benchmarks" and not change.field] == ["added"]


def test_two_investigations_and_two_hosts_are_noted() -> None:
    state = states.box()
    bench = state.last("bench", BenchReading)
    assert bench is not None
    other = states.put(state, {"bench": replace(bench, runs=(states.run(4, 99.0, 10.0), bench.runs[1]))}, 90)
    other = replace(other, header=replace(other.header, host="elsewhere"))
    notes = difference(report(state).data, report(other).data).notes
    assert notes == (
        "two hosts: gpu-box-7 and elsewhere",
        "of one name in both, and not the same: run 4; are these two investigations?",
    )
    hidden = report(state, Privacy(anonymous=True)).data
    assert "one of them is anonymous" in difference(report(state).data, hidden).notes[0]


@pytest.mark.parametrize("form", ["md", "html", "json"])
def test_every_form_is_read_back_whole(tmp_path: Path, form: str) -> None:
    found = report(later())
    text = {
        "md": found.markdown,
        "html": page(found),
        "json": msgspec.json.encode({"schema": 1, "markdown": found.markdown, "data": found.data}).decode(),
    }[form]
    path = tmp_path / f"a.{form}"
    path.write_text(text, "utf-8")
    assert read(path) == (found.data, False)


def test_words_from_outside_pass_for_no_data(tmp_path: Path) -> None:
    evil = "<!-- decodetop:data\n{}\n--> \u2028 & </script> \x1b[31m"
    state = states.put(states.box(), {"todo": TodoReading(path="/x", title=evil)}, 61)
    found = report(state)
    path = tmp_path / "a.md"
    path.write_text(found.markdown, "utf-8")
    assert read(path) == (found.data, False) and found.data.question == evil
    inside = "\n".join(data(found.data)[1:-1])
    assert "-->" not in inside and "<" not in inside and "\x1b" not in inside and "\u2028" not in inside


def test_what_can_not_be_compared_says_why(tmp_path: Path) -> None:
    whole = markdown(states.box())
    cases = {
        "---\nschema: 1\ndecodetop: 0.1.0\n---\n\n# x\n": "has schema 1, which holds words only and no data to compare",
        whole.replace('{"schema":2,', '{"schema":9,'): f"has schema 9; this decodetop reads up to {SCHEMA}",
        whole.replace('"box":{', '"box":[{'): "its data is damaged",
        whole[: len(whole) // 2]: "its data was cut off",
        "# notes\n": "it is no snapshot of decodetop",
        '{"schema":1,"markdown":"x"}': "holds no snapshot",
        "": "it is no snapshot of decodetop",
    }
    for text, words in cases.items():
        path = tmp_path / "a.md"
        path.write_text(text, "utf-8")
        with pytest.raises(DataError) as caught:
            read(path)
        assert words in caught.value.message and caught.value.hint, text[:40]
    with pytest.raises(DataError, match="can't read"):
        read(tmp_path / "none.md")
    (tmp_path / "b.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="no snapshot"):
        read(tmp_path / "b.md")


def test_a_run_keeps_its_hash_when_the_lane_leaves_its_flags_out() -> None:
    state = states.box()
    bench = state.last("bench", BenchReading)
    assert bench is not None
    run = bench.runs[0]
    full = replace(run, environment=replace(run.environment, flags={"tp": "2"}, command=("x",)))
    before, after = (states.put(state, {"bench": replace(bench, runs=(one,))}, 90) for one in (full, run))
    assert report(before).data.runs[0].sha256 == report(after).data.runs[0].sha256


def test_a_field_of_a_later_decodetop_is_passed_over(tmp_path: Path) -> None:
    text = markdown(states.box()).replace('"host":"gpu-box-7",', '"host":"gpu-box-7",\n"mood":"good",', 1)
    path = tmp_path / "a.md"
    path.write_text(text, "utf-8")
    assert read(path) == (report(states.box()).data, True)


def test_data_that_was_edited_is_compared_and_told(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(markdown(states.box()).replace('"tpot_ms":19.3', '"tpot_ms":9.3'), "utf-8")
    found = read(path)
    assert found.edited and found.snapshot.runs[0].tpot_ms == 9.3
    path.write_text(markdown(states.box()).replace("TPOT", "T.P.O.T."), "utf-8")
    assert read(path).edited, "its words for a run are data as well"
    path.write_text(markdown(states.box()).replace("## Findings", "## What I found\n\nmy own words"), "utf-8")
    assert not read(path).edited, "the words around the data are the reader's"


def test_the_difference_is_data_too() -> None:
    found = json.loads(msgspec.json.encode(changed()))
    assert found["schema"] == 1 and found["before"]["host"] == "gpu-box-7" and found["before"]["hashes"]
    tpot = [change for change in found["changes"] if change["field"] == "tpot_ms"]
    assert tpot == [
        {
            "section": "benchmarks", "subject": "newest, #4 -> #5", "what": "changed", "field": "tpot_ms",
            "before": 19.3, "after": 9.67,
        }
    ]  # fmt: skip
