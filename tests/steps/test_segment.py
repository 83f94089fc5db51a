"""Cutting into steps: the engines' labels by version, which steps count, and traces without labels."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from decodetop.errors import UsageError
from decodetop.steps.analyse import analyse
from decodetop.steps.chunks import BOUNDARY
from decodetop.steps.reading import RankSteps
from decodetop.steps.rows import Note
from decodetop.steps.segment import GRAMMARS, labels_of, may_label, user_grammar
from support.kineto import STEP_KERNELS, STEP_US, Trace, decode

CAPTURES = Path(__file__).resolve().parents[1] / "captures"


def only(trace: Trace, tmp_path: Path, step_label: str | None = None) -> RankSteps:
    report = analyse([trace.write(tmp_path / "t.json")], step_label=step_label)
    assert report.errors == ()
    (rank,) = report.ranks
    return rank


def why(rank: RankSteps) -> dict[int, str]:
    return {dropped.index: dropped.why for dropped in rank.steps.dropped}


GRAMMAR_CASES = [
    ("step[DECODE bs=1]", "sglang", "decode", 1),
    ("step[DECODE bs=64 g_sq=64 g_sqsq=64 g_sqsk=9 g_sk=9 forward_id=3]", "sglang", "decode", 64),
    ("step[DECODE bs=8] forward_id=12", "sglang", "decode", 8),
    ("step[TARGET_VERIFY bs=4]", "sglang", "verify", 4),
    ("step[VERIFY bs=4]", "sglang", "verify", 4),
    ("step[EXTEND bs=3 toks=1134]", "sglang", "prefill", 3),
    ("step[MIXED bs=5 toks=100]", "sglang", "mixed", 5),
    ("step[IDLE bs=0]", "sglang", "idle", 0),
    ("step[DRAFT_LOOP raw_bs=3 bs=4 topk=1]", "sglang", "draft", 3),
    ("step[DRAFT_EXTEND_V2 bs=4]", "sglang", "draft", 4),
    ("step[SOMETHING_NEW bs=4]", "sglang", "other", 4),
    ("execute_context_0(0)_generation_1(1)", "vllm", "decode", 1),
    ("execute_context_0(0)_generation_12(48)", "vllm", "decode", 12),
    ("execute_context_1(888_788544)_generation_0(0)", "vllm", "prefill", 1),
    ("execute_context_2(512)_generation_3(3)", "vllm", "mixed", 5),
    ("execute_35_context_0(sq0sk0sqsq0sqsk0)_generation_35(sq35sk9sqsq35sqsk9)", "vllm", "decode", 35),
    ("execute_new_0_cached_7", "vllm", "decode", 7),
    ("execute_new_1_cached_7", "vllm", "mixed", 8),
    ("decode[bs=117/128 tok=117 d=117]", "unknown", "decode", 117),
    ("prefill[bs=2 tok=900]", "unknown", "prefill", 2),
    ("[Executor] _forward_step 12: 0 ctx reqs, 8 gen reqs", "unknown", "decode", 8),
    ("[Executor] _forward_step 12: 1 ctx reqs, 512 ctx tokens, 8 gen reqs", "unknown", "mixed", 9),
    ("decode_step_5", "unknown", "decode", None),
    ("ProfilerStep#12", "unknown", "decode", None),
]


@pytest.mark.parametrize(("text", "engine", "stage", "batch_size"), GRAMMAR_CASES)
def test_grammar(text: str, engine: str, stage: str, batch_size: int | None) -> None:
    grammar = next(one for one in GRAMMARS if one.pattern.search(text))
    match = grammar.pattern.search(text)
    assert match is not None
    assert (grammar.engine, *grammar.read(match)) == (engine, stage, batch_size)
    assert may_label(text, None)


@pytest.mark.parametrize("text", ["scheduler.run_batch", "aten::mm", "step", "nccl:all_reduce", "my decode_step_1"])
def test_other_annotations_are_no_labels(text: str) -> None:
    assert not may_label(text, None)


def notes(*texts: str) -> list[Note]:
    return [Note(text, 0, 10 * at, 10 * at + 5, False) for at, text in enumerate(texts)]


def test_the_engines_own_label_wins_over_an_outer_one() -> None:
    outer = "execute_32_context_0(sq)_generation_32(sq)"
    labels = labels_of(notes(outer, "step[DECODE bs=32]", outer, "step[DECODE bs=32]"), None)
    assert [label.text for label in labels.found] == ["step[DECODE bs=32]"] * 2


def test_draft_and_verify_are_one_step() -> None:
    """Older SGLang labels the draft model's forwards DECODE."""
    one = ("step[DECODE bs=2]", "step[DECODE bs=2]", "step[TARGET_VERIFY bs=2]", "step[DRAFT_EXTEND_V2 bs=2]")
    labels = labels_of(notes(*one, *one), None)
    assert [label.stage for label in labels.found] == ["verify", "verify"]
    assert labels.speculative


def test_first_last_and_the_neighbours_of_a_prefill_are_left_out(tmp_path: Path) -> None:
    trace = decode(4)
    trace.label("step[EXTEND bs=1 toks=512]", 4 * STEP_US - 50, 40)
    trace.launch(4 * STEP_US - 45, [("_fwd_kernel", 4 * STEP_US, 9000.0)])
    decode(4, trace=trace, first_us=4 * STEP_US + 10_000)
    rank = only(trace, tmp_path)
    assert why(rank) == {0: "first", 3: "before a prefill step", 5: "after a prefill step", 8: "last"}
    assert rank.steps.other == {"prefill": 1, "idle": 0}
    assert rank.period_us is not None and rank.period_us.median == STEP_US
    assert rank.kinds_us["attention"] == 100, "no GPU time of the prefill"


def test_batch_sizes_are_not_pooled(tmp_path: Path) -> None:
    trace = decode(4, "step[DECODE bs=2]")
    decode(9, "step[DECODE bs=8]", trace=trace, first_us=4 * STEP_US)
    rank = only(trace, tmp_path)
    assert [(batch.batch_size, batch.steps_used) for batch in rank.batches] == [(8, 8), (2, 3)]
    assert rank.steps.used == 8
    assert {index for index, reason in why(rank).items() if reason == "batch size 2, not 8"} == {1, 2, 3}


def test_kernels_belong_to_the_step_that_launched_them(tmp_path: Path) -> None:
    """The GPU runs three steps behind the CPU: by CPU window every kernel would land in another step."""
    trace = Trace()
    for step in range(8):
        called, runs = step * STEP_US, step * STEP_US + 3 * STEP_US + 100
        trace.label("step[DECODE bs=1]", called, 300)
        now, kernels = runs, []
        for name, duration in STEP_KERNELS:
            kernels.append((name, now, duration))
            now += duration + 5
        trace.launch(called + 10, kernels)
    rank = only(trace, tmp_path)
    assert rank.steps.used == 6 and rank.kernels_per_step == 4
    assert rank.kinds_us["gemm"] == 200
    assert rank.coverage.ok


def test_work_launched_after_a_label_is_the_steps_tail(tmp_path: Path) -> None:
    """vLLM samples after execute_model: the tail counts, but the next step starts at its own first kernel."""
    trace = Trace()
    for step in range(6):
        start = step * STEP_US
        trace.label("execute_context_0(0)_generation_1(1)", start - 20, 40)
        trace.launch(start - 15, [("nvjet_a", start, 200.0)])
        trace.launch(start + 60, [("_gumbel_sample_kernel", start + 210, 30.0)])
    rank = only(trace, tmp_path)
    assert rank.kinds_us["sampling"] == 30 and rank.kinds_us["gemm"] == 200
    assert rank.period_us is not None and rank.period_us.representative == STEP_US


def test_a_step_that_lost_kernels_is_left_out(tmp_path: Path) -> None:
    trace = decode(8)
    gone = next(at for at, event in enumerate(trace.events) if event["name"].startswith("nvjet") and at > 20)
    del trace.events[gone]
    rank = only(trace, tmp_path)
    assert list(why(rank).values()).count("3 kernels, not 4") == 1
    assert rank.coverage.ok and rank.kinds_us["gemm"] == 200


def test_replays_that_were_not_recorded_fail_the_gate(tmp_path: Path) -> None:
    """Labels and launches of every step, kernels of every third: totals only, never a bar."""
    trace = decode(12)
    for step in range(12):
        if step % 3:
            trace.events = [
                event for event in trace.events if event["cat"] != "kernel" or event["args"]["correlation"] != step + 1
            ]
    rank = only(trace, tmp_path)
    assert not rank.coverage.ok and rank.kinds_us == {} and rank.period_us is None
    assert any("have no GPU events" in problem for problem in rank.coverage.problems)
    assert rank.totals is not None and rank.totals.kernels == 16
    assert rank.totals.kinds_us["gemm"] == 800


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (1, "1 decode step at an end of the trace has no GPU events"),
        (2, "2 decode steps at the ends of the trace have"),
    ],
)
def test_steps_without_gpu_work_at_the_ends_are_noted(missing: int, words: str, tmp_path: Path) -> None:
    trace = decode(9)
    trace.events = [
        event for event in trace.events if event["cat"] != "kernel" or event["args"]["correlation"] <= 9 - missing
    ]
    rank = only(trace, tmp_path)
    assert rank.coverage.ok and rank.steps.used == 7 - missing and rank.coverage.problems[0].startswith(words)


def test_graph_capture_is_not_serving(tmp_path: Path) -> None:
    trace = decode(6)
    trace.label("capture_32_DECODE", 0, 5)
    rank = only(trace, tmp_path)
    assert not rank.coverage.ok and "graph capture" in rank.coverage.problems[0]


def test_events_before_their_launch_fail_the_gate(tmp_path: Path) -> None:
    trace = decode(8)
    for event in trace.events:
        if event["cat"] == "cuda_runtime":
            event["ts"] = round(event["ts"] + 44, 3)
            event["dur"] = 1.0
    for event in trace.events:
        if event["cat"] == "kernel":
            event["ts"] = round(event["ts"] - 46, 3)
    rank = only(trace, tmp_path)
    assert not rank.coverage.ok
    assert any("start before their launch" in problem for problem in rank.coverage.problems)


def test_one_event_of_most_of_the_step_fails_the_gate(tmp_path: Path) -> None:
    trace = Trace()
    for step in range(6):
        trace.label("step[DECODE bs=1]", step * 1000 - 50, 40)
        trace.launch(step * 1000 - 45, [("strange_kernel", step * 1000, 700.0), ("nvjet_a", step * 1000 + 700, 100.0)])
    rank = only(trace, tmp_path)
    assert not rank.coverage.ok and "70%" in rank.coverage.problems[0]
    for event in trace.events:
        event["name"] = event["name"].replace("strange_kernel", "ncclDevKernel_AllReduce")
    assert only(trace, tmp_path).coverage.ok, "a collective may wait that long"


def test_a_step_shown_that_may_not_be_usual_is_said(tmp_path: Path) -> None:
    """Two steps count, and a request's end, or a clock that was set, lies in the first."""
    trace = decode(4)
    late = [event for event in trace.events if event["ts"] >= trace.zero_us + 2 * STEP_US - 60]
    for event in late:
        event["ts"] += 5_000_000.0
    rank = only(trace, tmp_path)
    assert rank.period_us is not None and rank.period_us.representative == 5_000_000 + STEP_US
    assert rank.coverage.problems == (
        "the 2 steps that count take 0.4 to 5,000.4 ms: the one shown may not be usual, capture more steps",
    )
    assert rank.coverage.ok and only(decode(4), tmp_path).coverage.problems == ()


def test_own_labels(tmp_path: Path) -> None:
    trace = decode(6, "my forward, 3 sequences")
    rank = only(trace, tmp_path, r"^my forward, (?P<bs>\d+)")
    assert rank.batches[0].batch_size == 3 and rank.steps.used == 4
    with pytest.raises(UsageError, match="no regular expression"):
        user_grammar("(")


def test_labels_that_match_nothing_are_no_guess(tmp_path: Path) -> None:
    rank = only(decode(6), tmp_path, "nothing like that")
    assert not rank.coverage.ok and rank.steps.found == 0


def test_labels_that_exist_on_the_gpu_only(tmp_path: Path) -> None:
    trace = decode(6)
    for event in trace.events:
        if event["cat"] == "user_annotation":
            event.update(cat="gpu_user_annotation", pid=0, tid=7, ts=round(event["ts"] + 50 - 0.001, 3), dur=370.0)
    rank = only(trace, tmp_path)
    assert rank.steps.used == 4 and rank.kinds_us["gemm"] == 200
    assert rank.period_us is not None and rank.period_us.representative == STEP_US


def test_labels_without_launches_fall_back_to_the_copies_or_to_what_repeats(tmp_path: Path) -> None:
    """Kernels without a correlation: labels can't claim them."""
    trace = decode(6)
    trace.events = [event for event in trace.events if event["cat"] != "cuda_runtime"]
    assert not only(trace, tmp_path).coverage.ok, "labels that own nothing are no guess either"
    for event in list(trace.events):
        if event["cat"] == "user_annotation":
            copy = {**event, "cat": "gpu_user_annotation", "pid": 0, "tid": 7, "ts": round(event["ts"] + 49.999, 3)}
            trace.events.append(copy)
    rank = only(trace, tmp_path)
    assert rank.coverage.ok and rank.kinds_us["gemm"] == 200 and rank.steps.used == 4
    assert rank.idle_split_us["unknown"] == 40


def test_work_of_all_steps_behind_the_last_label_fails_the_gate(tmp_path: Path) -> None:
    """ROCm once recorded the graphs' kernels in one burst at the end."""
    trace = decode(8)
    for number in range(500):
        trace.launch(8 * STEP_US - 4, [("nvjet_late", 8 * STEP_US + number * 10.0, 9.0)])
    rank = only(trace, tmp_path)
    assert not rank.coverage.ok and rank.kinds_us == {}
    assert any("kernels follow the start of the last step" in problem for problem in rank.coverage.problems)


UNLABELLED = [
    # recording, steps that count, median period by other cuts of the independent analysis, tolerance
    ("cast_full.trace.json.gz", 4, 8342.4, 0.01),
    ("sglang_tp1_graph/prof_c1", 5, 5295.9, 0.01),
    ("sglang_tp1_graph/prof_c8", 3, 5997.0, 0.01),
    ("sglang_tp1_nograph/prof_c1", 5, 63702.0, 0.04),
    ("vllm_tp1_graph/prof/rank0", 28, 5250.6, 0.01),
    ("sglang_ngram_graph/prof_decode", 9, 10158.6, 0.01),
    ("sglang_tp1_mixed/prof_mixed", 1, 5305.3, 0.01),
    ("sglang_moe30b_graph/prof_decode", 8, 6365.3, 0.01),
]


@pytest.mark.parametrize(("recording", "used", "period", "tolerance"), UNLABELLED)
def test_without_labels_what_repeats_is_the_step(
    recording: str, used: int, period: float, tolerance: float, tmp_path: Path
) -> None:
    """Also where prefill is mixed in: the median of all periods there is 49 ms."""
    path = next(
        one for one in CAPTURES.rglob("*.trace.json.gz") if str(one.relative_to(CAPTURES)).startswith(recording)
    )
    text = gzip.decompress(path.read_bytes())
    start = text.index(b'"traceEvents": [') + 16
    pieces = BOUNDARY.split(text[start:])
    kept = [piece for piece in pieces[:-1] if b'user_annotation"' not in piece]
    bare = tmp_path / "bare.trace.json"
    bare.write_bytes(text[:start] + b"},".join([*kept, pieces[-1]]))
    (rank,) = analyse([bare]).ranks
    assert rank.coverage.ok and rank.steps.used == used
    assert rank.period_us is not None and rank.period_us.median == pytest.approx(period, rel=tolerance)


def test_nothing_that_repeats_is_said(tmp_path: Path) -> None:
    trace = Trace()
    trace.launch(0, [(f"kernel_{at}", at * 10.0, 5.0) for at in range(40)])
    rank = only(trace, tmp_path)
    assert not rank.coverage.ok
    assert re.search("no step labels and nothing that repeats", rank.coverage.problems[0])
    assert rank.totals is not None and rank.totals.kernels == 40
