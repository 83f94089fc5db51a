"""What the steps pane says of the floor and of a diagnosis."""

from __future__ import annotations

from decodetop.core import words
from decodetop.core.clock import SECOND_NS
from decodetop.core.state import State
from decodetop.diagnosis.reading import DiagnosisReading
from decodetop.diagnosis.text import kept_words, under_way
from decodetop.floor.reading import FloorReading, Verdict
from decodetop.floor.text import VERDICTS
from decodetop_tui.paint import Span
from decodetop_tui.panes._cells import cells, clean, wrap
from decodetop_tui.panes._page import INDENT


def diagnosing(state: State) -> bool:
    seen = state.last("diagnosis", DiagnosisReading)
    return seen is not None and seen.running


def under_way_lines(doing: str, said: str, spent: str, width: int, most: int) -> list[list[Span]]:
    """What is being done, in words of any length, and how long already; in at most `most` lines."""
    head = f"{doing} "
    first, *more = wrap(said, max(10, width - cells(head) - cells(spent) - 4), max(1, most)) or [""]
    blank = Span(" " * cells(head))
    return [
        [INDENT, Span(head, "title"), Span(first), Span(f"  {spent}", "dim")],
        *([INDENT, blank, Span(line)] for line in more),
    ]


def diagnosis_lines(state: State, width: int, most: int = 1) -> list[list[Span]]:
    """The stage under way and its time; or what a diagnosis that was stopped or broke has, and what is left."""
    seen = state.last("diagnosis", DiagnosisReading)
    if seen is None or seen.latest is None:
        return []
    latest = seen.latest
    if seen.running:
        stage = next((one for one in latest.stages if one.status == "running"), None)
        since_ns = stage.since_ns if stage is not None else None
        spent = "" if since_ns is None else words.remaining((state.now_ns - since_ns) / SECOND_NS)
        return under_way_lines("diagnosing", under_way(latest), spent, width, most)
    if latest.report is not None or latest.finished:
        return []
    why = next((stage.words for stage in latest.stages if stage.status == "failed"), None)
    what = Span("failed", "bad") if why is not None else Span("stopped", "warn")
    said, goes_on = wrap(why or kept_words(latest), width - 30, most), [Span("  d", "key"), Span(" goes on", "dim")]
    first, *more = said or [""]
    blank = Span(" " * len("diagnosis "))
    return [
        [INDENT, Span("diagnosis ", "title"), what, Span(f": {first}"), *goes_on],
        *([INDENT, blank, Span(line)] for line in more),
    ]


def verdict_style(verdict: Verdict) -> str:
    """At its limit is good news of a kind; a cause that can be worked on is a warning; not knowing is neither."""
    if verdict.id in ("hardware_bound", "memory_bound_near_limit", "compute_bound"):
        return "good"
    return "dim" if verdict.id == "not_enough_evidence" else "warn"


def floor_line(state: State, width: int) -> list[Span]:
    """floor 3.15 ms · real step is 6.1x · host-bound; why there is none; empty while nothing was computed."""
    reading = state.last("floor", FloorReading)
    if reading is None:
        return []
    report = reading.report
    if report is None:
        return [INDENT, Span("no floor", "dim"), Span(f": {clean(reading.problem or 'no reason given')}", "dim")]
    head = [INDENT, Span("floor ", "dim"), Span(words.significant(report.t_phys_ms)), Span(" ms", "dim")]
    if report.t_meas_ms is None:
        return [*head, Span(" · step not measured", "dim"), Span("  d", "key"), Span(" diagnoses", "dim")]
    if report.t_meas_ms < report.t_phys_ms:
        return [*head, Span(" · ", "dim"), Span("the measured step lies below it: an input is wrong", "bad")]
    times = report.t_meas_ms / report.t_phys_ms if report.t_phys_ms else None
    which = "profiled" if report.t_meas_profiled else "real"
    judged: list[Span] = []
    if report.verdict is not None:
        judged = [Span(" · ", "dim"), Span(VERDICTS[report.verdict.id], verdict_style(report.verdict))]
    much = Span(f"{times:.1f}x" if times is not None else words.UNKNOWN)
    line = [*head, Span(f" · {which} step is ", "dim"), much, *judged]
    if _size(line) > width:
        line = [*head, Span(f" · {which} ", "dim"), much, *judged]
    why = [Span("  f", "key"), Span(" why", "dim")]
    return [*line, *why] if _size([*line, *why]) <= width else line


def _size(line: list[Span]) -> int:
    return sum(cells(span.text) for span in line)
