"""The step in words: bar, tables, report, comparison."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from decodetop.steps import text
from decodetop.steps.analyse import analyse
from decodetop.steps.reading import (
    IDLE_KINDS,
    KINDS,
    LETTERS,
    Capture,
    Communication,
    Coverage,
    Period,
    RankSteps,
    StepCounts,
    StepsReading,
    StepsReport,
    TopKernel,
)
from support.kineto import Trace, decode

CAPTURES = Path(__file__).resolve().parents[1] / "captures"


@cache
def report(folder: str, itl_ms: float | None = None) -> StepsReport:
    return analyse(sorted((CAPTURES / folder).glob("*.gz")), itl_ms=itl_ms)


def rank_with(kinds_us: dict[str, float], **more: object) -> RankSteps:
    period = sum(kinds_us.values())
    base = RankSteps(
        rank=0,
        file="x.json",
        steps=StepCounts(found=3, used=1),
        period_us=Period(representative=period, median=period, p10=period, p90=period),
        busy_us=period - kinds_us.get("idle", 0.0),
        idle_us=kinds_us.get("idle", 0.0),
        kinds_us=kinds_us,
        coverage=Coverage(ok=True),
    )
    return msgspec.structs.replace(base, **more)


@given(st.dictionaries(st.sampled_from(KINDS), st.floats(0.001, 1e6), min_size=1), st.integers(3, 200))
def test_the_bar_is_as_wide_as_asked_and_in_proportion(kinds_us: dict[str, float], width: int) -> None:
    bar = text.bar(rank_with(kinds_us), width)
    assert len(bar) == width and bar[0] == "▕" and bar[-1] == "▏"
    total = sum(kinds_us.values())
    for kind, us in kinds_us.items():
        assert abs(bar.count(LETTERS[kind]) - (width - 2) * us / total) < 1.0001
    order = list(dict.fromkeys(bar[1:-1]))
    assert order == [LETTERS[kind] for kind in KINDS if LETTERS[kind] in order]


def test_waiting_has_its_own_letter() -> None:
    rank = rank_with({"gemm": 60.0, "communication": 40.0}, communication_us=Communication(transfer=10.0, waiting=30.0))
    assert text.bar(rank, 12) == "▕GGGGGGCwww▏"
    assert [part.name for part in text.parts(rank)] == ["gemm", "communication, transfer", "communication, waiting"]
    alone = rank_with({"gemm": 60.0, "communication": 40.0})
    assert text.parts(alone)[1].name == "communication incl. waiting"


@pytest.mark.parametrize("width", [0, 1, 2, 3])
def test_a_bar_without_room_or_step_is_empty(width: int) -> None:
    assert len(text.bar(rank_with({"gemm": 1.0}), width)) == (3 if width == 3 else 0)
    assert text.bar(rank_with({}), 40) == ""


def test_the_plain_output_tells_the_whole_story() -> None:
    lines = text.lines(report("sglang_tp1_nograph/prof_c1", 19.34748), width=100)
    whole = "\n".join(lines)
    assert lines[0] == "SGLang: step[DECODE bs=1], 5 of 7 decode steps"
    assert "real      19.3 ms/step  idle 75 % (estimated from ITL)" in lines
    assert any(line.startswith("profiled  63.7 ms/step  idle 92 %") and "3.29x the real step" in line for line in lines)
    assert "idle us: host late 58," in whole
    assert "coverage ok: 524 kernels and 0 graph launches a step" in lines
    assert "left out: first, last" in lines
    assert all(len(line) <= 160 for line in lines)
    table = [line for line in lines if line.startswith("  G ")]
    assert table and "4,167.3" in table[0] and "gemm" in table[0]


def test_ranks_and_straggler() -> None:
    lines = text.lines(report("sglang_tp2_graph/prof_c1", 3.4246))
    assert any(line.startswith("rank 0") for line in lines) and any(line.startswith("rank 1") for line in lines)
    assert lines[-1] == "rank 1 comes last to the collectives: the others wait for it"


def test_per_token_with_an_accept_length() -> None:
    found = analyse(sorted((CAPTURES / "sglang_ngram_graph/prof_decode").glob("*.gz")), accept_length=4.0)
    line = next(line for line in text.lines(found) if "all = profiled step" in line)
    assert "10,158.6" in line and "2,539.6" in line


def test_totals_only_shows_no_bar(tmp_path: Path) -> None:
    trace = Trace()
    trace.launch(0, [(f"kernel_{at}", at * 10.0, 5.0) for at in range(40)])
    found = analyse([trace.write(tmp_path / "t.json")])
    lines = text.lines(found)
    assert not any("▕" in line for line in lines)
    assert any(line.startswith("totals only: no step labels") for line in lines)
    assert any(line.startswith("whole trace 0.") and "ms, 40 kernels" in line for line in lines)
    assert "▕" not in "\n".join(text.markdown_report(found))


def test_unknown_kernels_are_listed_when_they_weigh(tmp_path: Path) -> None:
    trace = decode()
    for event in trace.events:
        event["name"] = event["name"].replace("_fwd_grouped_kernel_stage1", "brand_new_thing<int>")
    lines = text.lines(analyse([trace.write(tmp_path / "t.json")]))
    at = next(number for number, line in enumerate(lines) if line.startswith("25.0 % of the step is of no known kind"))
    assert "brand_new_thing<int>" in lines[at + 1]


EVIL = "a|b `c` <script>\n# *x* [y](z) ~~q~~ \x1b[2J\u202e \\"


def evil_reading() -> StepsReading:
    kernel = TopKernel(name=EVIL, kind="gemm", us_per_step=60.0, calls_per_step=1, share=0.6)
    rank = rank_with(
        {"gemm": 60.0, "idle": 40.0},
        top_kernels=(kernel,),
        unknown_kernels=(kernel,),
        unknown_share=0.6,
        idle_split_us=dict.fromkeys(IDLE_KINDS, 1.0),
        coverage=Coverage(ok=True, problems=(EVIL,)),
    )
    capture = Capture(id="x", made_wall_ns=None, files=(EVIL,), report=StepsReport(ranks=(rank,), errors=(EVIL,)))
    return StepsReading(captures=(capture, capture), last_error=EVIL)


def test_text_from_outside_breaks_no_markdown() -> None:
    lines = text.markdown(evil_reading())
    assert lines[0] == "## Decode step" and not any("\n" in line for line in lines)
    html = MarkdownIt("commonmark").enable("table").render("\n".join(lines))
    assert "<script>" not in html and "<a " not in html and "<em>" not in html
    assert html.count("<table>") == 3 and html.count("<h2>") == 1 and "<h1>" not in html


def test_text_from_outside_moves_no_cursor() -> None:
    found = evil_reading().captures[0].report
    for lines in (text.lines(found), text.comparison_lines(text.compare(found, found)), text.markdown(evil_reading())):
        assert all(line.isprintable() for line in lines)


def test_the_report_of_a_recording_renders() -> None:
    capture = Capture(id="x", made_wall_ns=1, files=("a.gz",), report=report("sglang_tp2_graph/prof_c1", 3.4246))
    html = MarkdownIt("commonmark").enable("table").render("\n".join(text.markdown(StepsReading(captures=(capture,)))))
    assert html.count("<table>") == 4 and html.count("<h3>") == 2
    assert "communication, waiting" in html and "all = profiled step" in html


def test_an_empty_reading_says_so() -> None:
    assert text.markdown(StepsReading())[-1] == "No trace has been read in this investigation."
    assert text.lines(StepsReport()) == ["engine unknown"]


def test_compared() -> None:
    found = text.compare(report("sglang_tp1_graph/prof_c1"), report("sglang_tp1_nograph/prof_c1"))
    assert found.period.before_us == 5295.92 and found.period.after_us == 63702.042
    assert found.period.delta_us == pytest.approx(58406.122)
    assert found.period.percent == pytest.approx(1102.8513)
    idle = next(delta for delta in found.kinds if delta.kind == "idle")
    assert idle.delta_us == pytest.approx(58539.564) and idle.after_share == pytest.approx(0.9226, abs=1e-4)
    assert sum(delta.delta_us or 0.0 for delta in found.kinds) == pytest.approx(found.period.delta_us)
    assert found.kernels[0].name == "_fwd_grouped_kernel_stage1"
    assert (found.kernels[0].before_calls, found.kernels[0].after_calls) == (36, 36)
    lines = text.comparison_lines(found)
    assert any("+58,406.1" in line and "period" in line for line in lines)
    html = MarkdownIt("commonmark").enable("table").render("\n".join(text.markdown_comparison(found)))
    assert html.count("<table>") == 2, "kinds, and the kernels that changed"


def test_a_kernel_that_only_one_side_has_was_nothing_on_the_other() -> None:
    found = text.compare(report("sglang_tp1_graph/prof_c1"), report("vllm_tp1_graph/prof"))
    write = next(delta for delta in found.kernels if "reshape_and_cache_flash" in delta.name)
    assert (write.before_us, write.before_calls, write.after_calls, write.percent) == (0, 0, 36, None)
    assert write.delta_us == write.after_us


def test_comparing_other_batch_sizes_or_nothing_says_so() -> None:
    mixed = text.compare(report("sglang_tp1_graph/prof_c1"), report("sglang_tp1_graph/prof_c8"))
    assert any("batch sizes differ (1 and 8)" in problem for problem in mixed.problems)
    nothing = text.compare(StepsReport(), report("sglang_tp1_graph/prof_c1"))
    assert nothing.period.delta_us is None and nothing.problems == ("before: nothing could be read",)
    assert text.comparison_lines(nothing)


def test_a_list_that_was_cut_makes_the_missing_unknown() -> None:
    full = report("sglang_tp1_graph/prof_c1")
    (rank,) = full.ranks
    many = tuple(msgspec.structs.replace(rank.top_kernels[0], name=f"k{at}") for at in range(64))
    cut = msgspec.structs.replace(full, ranks=(msgspec.structs.replace(rank, top_kernels=many),))
    delta = next(one for one in text.compare(full, cut).kernels if one.name == "create_flashinfer_kv_indices_triton")
    assert delta.after_us is None and delta.delta_us is None
