"""What the bench pane and its zoomed form say alike of a run: its worth, and its distance from the baseline."""

from __future__ import annotations

from decodetop.bench import text
from decodetop.bench.reading import BenchReading, Run
from decodetop.core import words
from decodetop_tui.paint import Span

_STYLES = {"ok": "good", "suspect": "warn", "invalid": "bad"}


def baseline(reading: BenchReading) -> Run | None:
    return next((run for run in reading.runs if run.id is not None and run.id == reading.baseline_id), None)


def worth(run: Run) -> Span:
    """ok, suspect, invalid; a good one that was stopped early is `stopped`."""
    word = text.worth(run)
    return Span("stopped", "warn") if word == "ok" and run.partial else Span(word, _STYLES[word])


def comparable(run: Run, base: Run) -> bool:
    """Same load: a difference then says something about the server."""
    return _load(run) == _load(base)


def _load(run: Run) -> tuple[object, ...]:
    plan = run.plan
    return plan.streams, plan.input_tokens, plan.output_tokens, plan.shared_prefix_tokens


def delta(run: Run, base: Run | None) -> Span:
    """tok/s against the baseline's; `other` where the loads differ and no number would mean anything."""
    if base is None:
        return Span("")
    if run is base:
        return Span("base", "key")
    if not comparable(run, base):
        return Span("other", "dim")
    return Span(words.delta_percent(base.metrics.output_tok_s, run.metrics.output_tok_s))
