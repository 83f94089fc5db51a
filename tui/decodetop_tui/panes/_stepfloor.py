"""What the steps pane says of a diagnosis."""

from __future__ import annotations

from decodetop.core import words
from decodetop.core.clock import SECOND_NS
from decodetop.core.state import State
from decodetop.diagnosis.reading import DiagnosisReading
from decodetop.diagnosis.text import kept_words, under_way
from decodetop_tui.paint import Span
from decodetop_tui.panes._cells import cells, clean, clip
from decodetop_tui.panes._page import INDENT


def diagnosing(state: State) -> bool:
    seen = state.last("diagnosis", DiagnosisReading)
    return seen is not None and seen.running


def diagnosis_lines(state: State, width: int) -> list[list[Span]]:
    """The stage under way and its time; or what a diagnosis that was stopped or broke has, and what is left."""
    seen = state.last("diagnosis", DiagnosisReading)
    if seen is None or seen.latest is None:
        return []
    latest = seen.latest
    if seen.running:
        stage = next((one for one in latest.stages if one.status == "running"), None)
        since_ns = stage.since_ns if stage is not None else None
        spent = "" if since_ns is None else words.remaining((state.now_ns - since_ns) / SECOND_NS)
        said = clip(clean(under_way(latest)), max(10, width - cells(spent) - 15))
        return [[INDENT, Span("diagnosing ", "title"), Span(said), Span(f"  {spent}", "dim")]]
    if latest.report is not None or latest.finished:
        return []
    why = next((stage.words for stage in latest.stages if stage.status == "failed"), None)
    head = [INDENT, Span("diagnosis ", "title")]
    what = Span("failed", "bad") if why is not None else Span("stopped", "warn")
    return [[*head, what, Span(f": {clean(why or kept_words(latest))}"), Span("  d", "key"), Span(" goes on", "dim")]]
