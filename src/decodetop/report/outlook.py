"""What crosses the instruments: the answer in short at the head of a snapshot, and what is next at its end. Pure."""

from __future__ import annotations

from decodetop.bench import text as bench_text
from decodetop.bench.reading import BenchReading, Run
from decodetop.core.outside import escape
from decodetop.core.words import UNKNOWN, delta_percent, rate
from decodetop.floor import text as floor_text
from decodetop.floor.reading import FloorReading
from decodetop.report.story import Story
from decodetop.steps.reading import Capture, RankSteps, StepsReading
from decodetop.todo import text as todo_text
from decodetop.todo.reading import Todo, TodoReading

CLOSED = ("completed", "cancelled")
_RANKS = {"high": 0, "medium": 1, "low": 2}


def short(story: Story) -> list[str]:
    """The answer before the evidence; nothing that is not in a section below."""
    rows = [*_verdict(story), *_measured(story), *_step(story), *_findings(story), *_checklist(story)]
    if not rows:
        return ["## In short", "", "Nothing has been measured or planned yet."]
    return ["## In short", "", *(f"- **{word}**: {escape(said)}" for word, said in rows)]


def following(story: Story) -> list[str]:
    """What is in progress, what is open by its priority, what waits; then moves neither listed nor tried."""
    todo, floor = story.state.last("todo", TodoReading), story.state.last("floor", FloorReading)
    todos = todo.todos if todo is not None else ()
    unfinished = {one.id: one for one in todos if one.status not in CLOSED}
    rows = [_item(one, unfinished) for one in sorted(unfinished.values(), key=_order)]
    moves = floor.report.moves if floor is not None and floor.report is not None else ()
    fresh = [move for move in moves if floor_text.standing(move, todos) is None]
    rows += [f"{escape(floor_text.move_line(move))} (offered by the floor; not in the checklist)" for move in fresh]
    lines = [f"{at}. {row}" for at, row in enumerate(rows, 1)]
    return ["## What is next", "", *(lines or ["Nothing is open."])]


def _verdict(story: Story) -> list[tuple[str, str]]:
    floor = story.state.last("floor", FloorReading)
    verdict = floor.report.verdict if floor is not None and floor.report is not None else None
    if verdict is None:
        return []
    sure = floor_text.confidence_words(verdict)
    return [("Verdict", f"{verdict.sentence} ({sure})" if sure else verdict.sentence)]


def _measured(story: Story) -> list[tuple[str, str]]:
    """The newest run, and what came of it since the baseline."""
    bench = story.state.last("bench", BenchReading)
    if bench is None or not bench.runs:
        return []
    newest = bench.runs[0]
    base = next((run for run in bench.runs if run.id is not None and run.id == bench.baseline_id), None)
    if base is None or base.id == newest.id:
        return [("Measured", bench_text.one_line(newest))]
    return [("Measured", f"{bench_text.name(base)} -> {bench_text.name(newest)}: {_change(base, newest)}")]


def _change(base: Run, newest: Run) -> str:
    """TPOT 95.6 -> 74.1 ms (-22 %), 10.5 -> 13.5 tok/s (+29 %)."""
    before, after = base.metrics, newest.metrics
    words = []
    if before.tpot_ms is not None and after.tpot_ms is not None:
        change = delta_percent(before.tpot_ms.mean, after.tpot_ms.mean)
        words.append(f"TPOT {bench_text.mean_ms(before.tpot_ms)} -> {bench_text.mean_ms(after.tpot_ms)} ms ({change})")
    change = delta_percent(before.output_tok_s, after.output_tok_s)
    words.append(f"{rate(before.output_tok_s)} -> {rate(after.output_tok_s)} tok/s ({change})")
    doubt = [
        f"{bench_text.name(run)} is {bench_text.state(run)}" for run in (base, newest) if bench_text.state(run) != "ok"
    ]
    if bench_text.streams(base.plan.streams) != bench_text.streams(newest.plan.streams):
        doubt.append(f"{bench_text.streams(base.plan.streams)} against {bench_text.streams(newest.plan.streams)}")
    return "; ".join([", ".join(words), *doubt])


def _step(story: Story) -> list[tuple[str, str]]:
    steps = story.state.last("steps", StepsReading)
    shown = [rank for rank in map(_rank, steps.captures if steps is not None else ()) if rank is not None]
    if not shown:
        return []
    now = _largest(shown[0])
    return [("Step", f"{now}; {_before(shown[1], shown[0])}" if len(shown) > 1 else now)]


def _rank(capture: Capture) -> RankSteps | None:
    return next((rank for rank in capture.report.ranks if rank.period_us is not None and rank.kinds_us), None)


def _largest(rank: RankSteps) -> str:
    """`copy is 64.6 of 93.6 ms of the profiled step (69 %)`."""
    kind = _largest_kind(rank)
    return f"{kind.replace('_', ' ')} is {_of_period(rank, kind)}"


def _before(before: RankSteps, now: RankSteps) -> str:
    """`in the capture before 64.6 of 93.6 ms (69 %)`, of the kind that is largest now."""
    kind = _largest_kind(now)
    return f"in the capture before it was {_of_period(before, kind)}"


def _largest_kind(rank: RankSteps) -> str:
    return max(rank.kinds_us, key=lambda kind: rank.kinds_us[kind])


def _of_period(rank: RankSteps, kind: str) -> str:
    assert rank.period_us is not None
    us, period = rank.kinds_us.get(kind, 0.0), rank.period_us.representative
    share = f"{100 * us / period:.0f} %" if period else UNKNOWN
    return f"{us / 1e3:.1f} of {period / 1e3:.1f} ms of the profiled step ({share})"


def _findings(story: Story) -> list[tuple[str, str]]:
    named = "; ".join(f"{one.title} ({one.severity})" for one in story.findings)
    return [("Findings", named)] if named else []


def _checklist(story: Story) -> list[tuple[str, str]]:
    todo = story.state.last("todo", TodoReading)
    if todo is None or not todo.todos:
        return []
    tried = [attempt for one in todo.todos for attempt in one.attempts]
    failed = sum(attempt.outcome in ("failed", "regressed", "no change") for attempt in tried)
    count = "1 attempt" if len(tried) == 1 else f"{len(tried)} attempts"
    attempts = f"; {count}, {failed} without success" if tried else ""
    return [("Checklist", f"{todo_text.counts(todo)}{attempts}")]


def _order(todo: Todo) -> tuple[bool, int]:
    return todo.status != "in_progress", _RANKS.get(todo.priority or "medium", 1)


def _item(todo: Todo, unfinished: dict[str, Todo]) -> str:
    words = escape(todo.content) or UNKNOWN
    facts = [todo_text.status_words(todo.status)] if todo.status == "in_progress" else []
    waits = [unfinished[id].content for id in todo.blocked_by if id in unfinished]
    facts += [f"waits for {', '.join(waits)}"] if waits else []
    expected = f"; expected: {escape(todo.expected)}" if todo.expected else ""
    aside = f" ({escape(', '.join(facts))})" if facts else ""
    return f"{words}{aside}{expected}"
