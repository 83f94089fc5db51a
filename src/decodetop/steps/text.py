"""A step's figures in words: for the plain output, the pane and the report. Pure."""

from __future__ import annotations

from typing import NamedTuple

from decodetop.core.outside import escape, fenced, plain
from decodetop.core.words import UNKNOWN, known, number, percent, significant, utc_time
from decodetop.steps.compare import compare as compare
from decodetop.steps.compare import comparison_lines as comparison_lines
from decodetop.steps.compare import markdown_comparison as markdown_comparison
from decodetop.steps.reading import (
    IDLE_KINDS,
    KINDS,
    LETTERS,
    Capture,
    RankSteps,
    StepsReading,
    StepsReport,
    TopKernel,
)
from decodetop.steps.taking import capture_question as capture_question
from decodetop.steps.taking import capture_words as capture_words
from decodetop.steps.wording import brief, clip

ENGINES = {"sglang": "SGLang", "vllm": "vLLM", "unknown": "engine unknown"}
IDLE_WORDS = {
    "host_late": "host late",
    "launch_call": "launch call still running",
    "sync": "host waiting in a synchronising call",
    "in_graph": "inside the graph",
    "device_gap": "gap on the device",
    "unknown": "unknown",
}
WAITING = "w"
"""Letter of the part of communication that waits for another rank."""

UNKNOWN_SHOWN = 0.02
"""Kernels of unknown kind are named when together they exceed this share of the step."""

BAR_WIDTH = 72
TOP_SHOWN = 12
MARKDOWN_TOP = 10


class Part(NamedTuple):
    """A piece of the step; the pieces sum to the period."""

    name: str
    letter: str
    us: float
    calls: float | None
    kind: str


def parts(rank: RankSteps) -> list[Part]:
    """In the order of the bar; communication in transfer and waiting where several ranks tell them apart."""
    found = []
    for kind in KINDS:
        us = rank.kinds_us.get(kind, 0.0)
        calls = rank.calls_per_step.get(kind)
        transfer, waiting = rank.communication_us.transfer, rank.communication_us.waiting
        if kind == "communication" and transfer is not None and waiting is not None:
            found.append(Part("communication, transfer", LETTERS[kind], transfer, calls, kind))
            found.append(Part("communication, waiting", WAITING, waiting, None, kind))
        elif kind == "communication":
            found.append(Part("communication incl. waiting", LETTERS[kind], us, calls, kind))
        else:
            found.append(Part(kind.replace("_", " "), LETTERS[kind], us, calls, kind))
    return [part for part in found if known(part.us) and part.us > 0]


def bar(rank: RankSteps, width: int) -> str:
    """`▕GGGAA░░▏` in exactly `width` cells (at least 3); empty without a step to show."""
    found = parts(rank)
    total = sum(part.us for part in found)
    room = width - 2
    if not total or room < 1:
        return ""
    exact = [room * part.us / total for part in found]
    cells = [int(value) for value in exact]
    by_rest = sorted(range(len(found)), key=lambda at: cells[at] - exact[at])
    for at in by_rest[: room - sum(cells)]:
        cells[at] += 1
    return "▕" + "".join(part.letter * count for part, count in zip(found, cells, strict=True)) + "▏"


def headline(report: StepsReport) -> str:
    """SGLang, 2 ranks: step[DECODE bs=1], 5 of 7 decode steps."""
    first = report.ranks[0] if report.ranks else None
    ranks = f", {len(report.ranks)} ranks" if len(report.ranks) > 1 else ""
    if first is None or not first.batches:
        return f"{ENGINES[report.engine]}{ranks}"
    return f"{ENGINES[report.engine]}{ranks}: {plain(first.batches[0].label)}, {steps_words(first)}"


def steps_words(rank: RankSteps) -> str:
    return f"{rank.steps.used} of {rank.steps.found} decode steps"


def real_words(rank: RankSteps) -> str:
    """The unprofiled step, and what it says of the idle share."""
    real = rank.real
    if real is None:
        return "real      not known: give the ITL measured without the profiler (--itl-ms)"
    if real.idle_share is None:
        return f"real      {significant(real.step_ms)} ms/step  idle {UNKNOWN} ({real.problem})"
    return f"real      {significant(real.step_ms)} ms/step  idle {percent(100 * real.idle_share)} (estimated from ITL)"


def profiled_words(rank: RankSteps) -> str:
    """The profiled step, its idle share, and how much the profiler stretched it."""
    period = rank.period_us
    if period is None or rank.idle_us is None:
        return "profiled  no step to show"
    idle = percent(100 * rank.idle_us / period.representative)
    spread = f"median {significant(period.median / 1e3)}, p10..p90 {significant(period.p10 / 1e3)}.."
    words = f"profiled  {significant(period.representative / 1e3)} ms/step  idle {idle}  ({spread}"
    words += f"{significant(period.p90 / 1e3)}, step {rank.representative_step} shown)"
    if rank.real is not None and rank.real.step_ms > 0:
        words += f"  {significant(period.median / 1e3 / rank.real.step_ms)}x the real step"
    return words


def idle_words(rank: RankSteps) -> str:
    """host late 58,672 · inside the graph 214: us by reason, largest first."""
    found = sorted(((rank.idle_split_us.get(kind, 0.0), kind) for kind in IDLE_KINDS), reverse=True)
    return " · ".join(f"{IDLE_WORDS[kind]} {number(us)}" for us, kind in found if us >= 0.5)


def coverage_words(rank: RankSteps) -> list[str]:
    """Whether the figures hold, and what is wrong with the trace."""
    problems = [plain(problem) for problem in rank.coverage.problems]
    if rank.coverage.ok:
        kernels = f"{rank.kernels_per_step} kernels and {rank.graph_launches_per_step} graph launches a step"
        return [f"coverage ok: {kernels}", *(f"note: {problem}" for problem in problems)]
    return [f"totals only: {problem}" for problem in problems] or ["totals only: no reason given"]


def dropped_words(rank: RankSteps) -> str:
    """first, last, 2 before a prefill step: why decode steps don't count."""
    counted: dict[str, int] = {}
    for dropped in rank.steps.dropped:
        counted[dropped.why] = counted.get(dropped.why, 0) + 1
    return ", ".join(why if count == 1 else f"{count} {why}" for why, count in counted.items())


def lines(report: StepsReport, width: int = 100) -> list[str]:
    """The plain output."""
    out = [headline(report)]
    for rank in report.ranks:
        out += ["", *_rank_lines(rank, report, width)]
    if report.straggler_rank is not None:
        out += ["", f"rank {report.straggler_rank} comes last to the collectives: the others wait for it"]
    return out


def _rank_lines(rank: RankSteps, report: StepsReport, width: int) -> list[str]:
    device = f"  {plain(rank.device_name)}" if rank.device_name else ""
    out = [f"rank {rank.rank}{device}  {plain(rank.file)}"]
    if rank.period_us is None:
        return [*out, *_totals_lines(rank), *coverage_words(rank)]
    out += [real_words(rank), profiled_words(rank), bar(rank, min(width, BAR_WIDTH))]
    out += ["", *_kind_table(rank, report.accept_length, width), "", *_kernel_table(rank, width)]
    out += ["", f"idle us: {idle_words(rank)}", *unknown_words(rank), *coverage_words(rank)]
    if len(rank.batches) > 1:
        sizes = ", ".join(f"{plain(batch.label)} ({batch.steps_used})" for batch in rank.batches[1:])
        out.append(f"other batch sizes, not shown: {sizes}")
    left_out = dropped_words(rank)
    others = ", ".join(f"{count} {stage}" for stage, count in rank.steps.other.items() if count)
    out.append(f"left out: {left_out or 'nothing'}{f'; beside them {others}' if others else ''}")
    return out


def _totals_lines(rank: RankSteps) -> list[str]:
    totals = rank.totals
    if totals is None:
        return []
    shares = sorted(((us, kind) for kind, us in totals.kinds_us.items() if us > 0), reverse=True)
    words = " · ".join(f"{kind} {percent(100 * us / totals.span_us, 1)}" for us, kind in shares)
    return [f"whole trace {significant(totals.span_us / 1e3)} ms, {totals.kernels:,} kernels: {words}"]


def _kind_table(rank: RankSteps, accept_length: float | None, width: int) -> list[str]:
    assert rank.period_us is not None
    period = rank.period_us.representative
    per_token = accept_length is not None and accept_length > 0
    out = [f"    {'us/step':>10}{'  us/token' if per_token else ''} {'%':>5} {'calls':>6}  kind"]
    for part in sorted(parts(rank), key=lambda part: (part.kind == "idle", -part.us)):
        tokens = f" {number(part.us / accept_length, 1):>9}" if per_token and accept_length else ""
        calls = "" if part.calls is None or part.kind == "idle" else number(part.calls)
        top = next((plain(kernel.name) for kernel in rank.top_kernels if kernel.kind == part.kind), "")
        if part.letter == WAITING:
            top = ""
        line = f"  {part.letter} {number(part.us, 1):>10}{tokens} {100 * part.us / period:>5.1f} {calls:>6}  "
        out.append(clip(f"{line}{part.name:<28}{top}", width))
    tokens = f" {number(period / accept_length, 1):>9}" if per_token and accept_length else ""
    return [*out, f"    {number(period, 1):>10}{tokens} 100.0         all = profiled step"]


def _kernel_table(rank: RankSteps, width: int) -> list[str]:
    out = [f"    {'us/step':>10} {'%':>5} {'calls':>6}  kernel"]
    out += [clip(_kernel_line(kernel), width) for kernel in rank.top_kernels[:TOP_SHOWN]]
    more = len(rank.top_kernels) - TOP_SHOWN
    return [*out, f"    {more} more (--json holds them with full names)"] if more > 0 else out


def _kernel_line(kernel: TopKernel) -> str:
    figures = f"{number(kernel.us_per_step, 1):>10} {100 * kernel.share:>5.1f} {number(kernel.calls_per_step):>6}"
    return f"  {LETTERS.get(kernel.kind, '?')} {figures}  {plain(kernel.name)}"


def unknown_words(rank: RankSteps) -> list[str]:
    """Kernels no family matches, by name where they weigh."""
    if not known(rank.unknown_share) or rank.unknown_share <= UNKNOWN_SHOWN:
        return []
    out = [f"{percent(100 * rank.unknown_share, 1)} of the step is of no known kind (--kinds FILE teaches them):"]
    for kernel in rank.unknown_kernels:
        figures = f"{number(kernel.us_per_step, 1):>10} us {number(kernel.calls_per_step):>5} calls"
        out.append(f"  ? {figures}  {plain(kernel.name)}")
    return out


def markdown(reading: StepsReading) -> list[str]:
    """The report's section: the newest capture in full, the older ones by a line."""
    out = ["## Decode step", ""]
    if reading.last_error:
        out += [f"Last trace not read: {escape(reading.last_error)}.", ""]
    if not reading.captures:
        return [*out, "No trace has been read in this investigation."]
    out += markdown_report(reading.captures[0].report)
    if (pair := reading.told) is not None:
        out += ["", "### Before and after", ""]
        out += [f"- {side}: {_capture_words(one)}" for side, one in zip(("before", "after"), pair, strict=True)]
        out += ["", *markdown_comparison(compare(*(one.report for one in pair)))]
    if len(reading.captures) > 1:
        out += ["", "Older captures:", "", *(f"- {_capture_words(capture)}" for capture in reading.captures[1:])]
    return out


def markdown_report(report: StepsReport) -> list[str]:
    """One capture: a bar and a table a rank."""
    out = [f"{escape(headline(report))}."]
    for rank in report.ranks:
        out += ["", f"### Rank {rank.rank}", ""]
        if rank.period_us is None:
            out += [f"- {escape(line)}" for line in [*_totals_lines(rank), *coverage_words(rank)]]
            continue
        out += [*fenced([real_words(rank), profiled_words(rank), bar(rank, BAR_WIDTH)]), ""]
        out += _markdown_kinds(rank)
        out += ["", *_markdown_kernels(rank), ""]
        out += [f"- idle us: {escape(idle_words(rank))}"]
        out += [f"- {escape(line.strip())}" for line in [*unknown_words(rank), *coverage_words(rank)]]
    if report.straggler_rank is not None:
        out += ["", f"Rank {report.straggler_rank} comes last to the collectives: the others wait for it."]
    return out + [f"- {escape(error)}" for error in report.errors]


def _markdown_kinds(rank: RankSteps) -> list[str]:
    assert rank.period_us is not None
    period = rank.period_us.representative
    out = ["| | kind | us/step | % | calls |", "|---|---|--:|--:|--:|"]
    for part in sorted(parts(rank), key=lambda part: (part.kind == "idle", -part.us)):
        calls = "" if part.calls is None or part.kind == "idle" else number(part.calls)
        out.append(f"| {part.letter} | {part.name} | {number(part.us, 1)} | {100 * part.us / period:.1f} | {calls} |")
    return [*out, f"| | all = profiled step | {number(period, 1)} | 100.0 | |"]


def _markdown_kernels(rank: RankSteps) -> list[str]:
    out = ["| kernel | kind | us/step | % | calls |", "|---|---|--:|--:|--:|"]
    for kernel in rank.top_kernels[:MARKDOWN_TOP]:
        cells = (number(kernel.us_per_step, 1), f"{100 * kernel.share:.1f}", number(kernel.calls_per_step))
        out.append(f"| {escape(brief(kernel.name))} | {escape(kernel.kind.replace('_', ' '))} | {' | '.join(cells)} |")
    return out


def _capture_words(capture: Capture) -> str:
    rank = next((rank for rank in capture.report.ranks if rank.period_us is not None), None)
    figure = UNKNOWN if rank is None or rank.period_us is None else significant(rank.period_us.representative / 1e3)
    names = ", ".join(escape(file.rsplit("/", 1)[-1]) for file in capture.files)
    return f"{utc_time(capture.made_wall_ns)} {figure} ms/step, {names}"
