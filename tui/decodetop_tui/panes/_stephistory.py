"""Beneath the figures of the step shown: each kept step as a bar of its own, and the captures to choose from."""

from __future__ import annotations

from decodetop.core import words
from decodetop.server.reading import ENGINE_NAMES
from decodetop.steps.reading import KINDS, LETTERS, Capture, RankSteps, StepBar, StepsReading
from decodetop_tui.paint import Span, View
from decodetop_tui.panes._lines import shares
from decodetop_tui.panes._page import Page
from decodetop_tui.panes._table import Column, Table

CAPTURE = "capture:"
"""How the row of a capture begins."""
BARS_MOST = 24

CAPTURES = (
    Column("mark", "", 1, 9, "<"),
    Column("time", "time", 5, 9),
    Column("period", "ms/step", 7, 9),
    Column("idle", "idle %", 6, 7),
    Column("itl", "ITL ms", 6, 6),
    Column("batch", "bs", 4, 8),
    Column("ranks", "ranks", 5, 5),
    Column("engine", "engine", 7, 4, "<"),
    Column("state", "", 7, 8, "<"),
    Column("files", "files", 12, 3, "<", grow=400),
)


def draw_kept_steps(page: Page, rank: RankSteps) -> None:
    """One bar a kept step on one scale, so that it shows which kind makes a long step long."""
    known = [step for step in rank.kept_steps if step.kinds_us and words.known(step.period_us)]
    if len(known) < 2:
        return
    every = -(-len(known) // BARS_MOST)
    drawn = known[::every]
    longest = max(step.period_us for step in drawn)
    sampled = "" if len(drawn) == len(rank.kept_steps) else f"{len(drawn)} of "
    page.heading("steps over time", Span(f"  {sampled}{len(rank.kept_steps)} kept", "dim"))
    table = Table(
        (Column("index", "step", 6, 9), Column("us", "us", 9, 9), Column("idle", "idle %", 6, 8)),
        page.width,
        headed=True,
    )
    page.add(*table.header())
    for step in drawn:
        shown = rank.representative_step == step.index
        figures: dict[str, Span | str] = {
            "index": Span(f"{step.index}", "key" if shown else "dim"),
            "us": words.number(step.period_us),
            "idle": words.number(100 * step.idle_us / step.period_us if step.period_us > 0 else None),
        }
        room = max(0, page.width - sum(table.sizes) - 2 * len(table.sizes) - 4)
        page.add(*table.row(figures), Span("  "), *_bar(step, round(room * step.period_us / longest)))


def _bar(step: StepBar, room: int) -> list[Span]:
    if room < 1:
        return []
    cells = shares({kind: us for kind, us in step.kinds_us.items() if words.known(us) and us > 0}, room)
    return [Span(LETTERS[kind] * cells[kind], f"kind.{kind}") for kind in KINDS if cells.get(kind)]


def draw_captures(page: Page, reading: StepsReading, view: View) -> None:
    """What Enter shows, `m` marks and `c` compares."""
    hint = "  Enter shows one; m marks, c compares two" if len(reading.captures) > 1 else ""
    page.heading("captures", Span(hint, "dim"))
    table = Table(CAPTURES, page.width, headed=True)
    page.add(*table.header())
    for capture in reading.captures:
        row = f"{CAPTURE}{capture.id}"
        page.add(*table.row(_cells(capture, reading, row in view.marks)), row=row)


def _cells(capture: Capture, reading: StepsReading, marked: bool) -> dict[str, Span | str]:
    report = capture.report
    first = next((rank for rank in report.ranks if rank.period_us is not None), None)
    period_us = None if first is None or first.period_us is None else first.period_us.representative
    idle = 100 * first.idle_us / period_us if first is not None and first.idle_us is not None and period_us else None
    size = first.batches[0].batch_size if first is not None and first.batches else None
    return {
        "mark": Span("*" if marked else "", "key"),
        "time": words.clock_time(capture.made_wall_ns)[:5],
        "period": words.significant(None if period_us is None else period_us / 1e3),
        "idle": words.number(idle),
        "itl": words.significant(report.itl_ms),
        "batch": words.number(size),
        "ranks": str(len(report.ranks)),
        "engine": "" if report.engine == "unknown" else ENGINE_NAMES[report.engine],
        "state": Span(_state(capture, reading), "key"),
        "files": Span(", ".join(file.rsplit("/", 1)[-1] for file in capture.files), "dim"),
    }


def _state(capture: Capture, reading: StepsReading) -> str:
    if reading.before_and_after is not None and reading.compared is not None:
        return {reading.compared[0]: "before", reading.compared[1]: "after"}.get(capture.id, "")
    return "shown" if reading.shown is capture and len(reading.captures) > 1 else ""
