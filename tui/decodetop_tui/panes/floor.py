"""Can this hardware do better: verdict, three times as bars, what-if, moves, gap, parts, knee, assumptions."""

from __future__ import annotations

from collections.abc import Sequence

from decodetop.core import words
from decodetop.core.state import State
from decodetop.floor import text
from decodetop.floor.reading import NOTHING_ELSE, FloorReading, FloorReport, Move
from decodetop.steps.reading import StepsReading
from decodetop.todo.reading import Todo, TodoReading
from decodetop_tui.paint import Filter, Picture, Span, View
from decodetop_tui.panes._cells import clean, pad, wrap
from decodetop_tui.panes._floorplot import Mark, plot
from decodetop_tui.panes._page import INDENT, Page, note_of, trouble
from decodetop_tui.panes._stepfloor import diagnosis_lines, verdict_style

TITLE = "floor"
KEY = "f"
SOURCES: tuple[str, ...] = ("floor", "diagnosis", "todo", "steps")
MODES: tuple[str, ...] = ("floor",)
FILTER: Filter | None = None

WHAT_IF = "what-if:"
MOVE = "move:"
"""How row ids begin."""
KNOBS = {
    "batch": "batch", "context": "context", "kv_dtype": "KV", "weights_dtype": "weights", "tp": "TP", "gpu": "GPU",
}  # fmt: skip
LABEL = 19


def want(state: State, width: int) -> tuple[int, int]:
    """It has the whole screen or none."""
    return 1, 40


def draw(state: State, view: View) -> Picture:
    page = Page(view)
    page.extend(trouble(state, "floor", view) if state.lane("floor").failure else [])
    page.extend(diagnosis_lines(state, view.width))
    reading = state.last("floor", FloorReading)
    if reading is None:
        page.add(INDENT, Span("nothing was computed yet", "dim"))
        return page.picture(note_of(state, "floor", view.width))
    report = reading.report
    if report is None:
        page.add(INDENT, Span("no floor", "warn"), Span(f": {reading.problem or 'no reason given'}"))
        if reading.hint:
            page.add(INDENT, Span(reading.hint, "dim"))
    else:
        _verdict(page, report, view.width)
    if reading.what_if_problem is not None:
        page.add(INDENT, Span("no what-if", "warn"), Span(f": {reading.what_if_problem}"))
    if reading.what_if is not None:
        _room(page, reading.what_if, "what-if ")
    _bars(page, reading)
    head = len(page.lines) if len(page.lines) <= view.height // 2 else 0
    _knobs(page, reading)
    if report is not None:
        _moves(page, report, view, _items(state))
        _gap(page, report)
        _parts(page, report)
        _evidence(page, report, view.width)
    shown = reading.what_if or report
    if shown is not None:
        _knee(page, shown, view)
        _assumed(page, shown, view.width)
    return page.picture(note_of(state, "floor", view.width, *_note(state, reading)), head)


def _capture(state: State, id: str | None) -> str:
    """By the time it was made, as the pane of the decode step names it."""
    steps = state.last("steps", StepsReading)
    made_ns = capture.made_wall_ns if steps is not None and (capture := steps.capture(id)) is not None else None
    return "" if id is None else f"capture {id[:20] if made_ns is None else words.clock_time(made_ns)[:5]}"


def _note(state: State, reading: FloorReading) -> list[str]:
    return [
        f"run #{reading.run_id}" if reading.run_id is not None else "",
        _capture(state, reading.capture_id),
        "what-if" if reading.what_if is not None else "",
    ]


def _verdict(page: Page, report: FloorReport, width: int) -> None:
    """The sentence first, whole; then of what."""
    verdict = report.verdict
    if verdict is not None:
        for line in wrap(verdict.sentence, width - 4, 4):
            page.add(INDENT, Span(line, verdict_style(verdict)))
    sure = [] if verdict is None else [text.confidence_words(verdict)]
    gpus = report.plan.tp * report.plan.pp
    where = f"{gpus} x {report.hardware.name}" if gpus > 1 else report.hardware.name
    of = f"{report.model.family} on {where}, {text.plan_words(report)}"
    for line in wrap("  ".join(word for word in (*sure, of) if word), width - 2, 2):
        page.add(INDENT, Span(line, "dim"))
    for error in report.errors:
        page.add(INDENT, Span(error, "warn"))
    _room(page, report, "")


def _room(page: Page, report: FloorReport, before: str) -> None:
    """Only where there is none: what fits stands among the assumptions."""
    held = report.capacity
    if held is not None and held.fits is False:
        for line in wrap(f"{before}{text.capacity_words(held, report.plan)}", page.width - 4, 4):
            page.add(INDENT, Span(line, "warn"))


def _bars(page: Page, reading: FloorReading) -> None:
    """On one scale, so that lengths can be compared."""
    rows: list[tuple[str, float | None, str, str]] = []
    report, other = reading.report, reading.what_if
    if report is not None:
        rows += [
            ("bound", report.t_phys_ms, "key", report.bound),
            ("practice", report.t_prac_ms, "", ""),
            ("profiled" if report.t_meas_profiled else "measured", report.t_meas_ms, "loud", _times(report)),
        ]
    if other is not None:
        rows += [
            ("what-if bound", other.t_phys_ms, "warn", _change(report, other, "t_phys_ms")),
            ("what-if practice", other.t_prac_ms, "warn", _change(report, other, "t_prac_ms")),
        ]
    longest = max((ms for _, ms, _, _ in rows if words.known(ms) and ms is not None), default=0.0)
    room = max(4, page.width - LABEL - 34)
    for name, ms, style, aside in rows:
        line = [
            INDENT,
            Span(f"{name:<{LABEL - 2}}", "dim"),
            Span(f"{words.significant(ms):>7}", style),
            Span(" ms  ", "dim"),
        ]
        page.add(*line, Span(bar(ms, longest, room), style or "dim"), Span(f"  {aside}" if aside else "", "dim"))


def bar(value: float | None, longest: float, room: int) -> str:
    """`room` blocks for `longest`; something is always drawn of more than nothing, and nothing of what is unknown."""
    if not words.known(value) or value <= 0 or not longest > 0:
        return ""
    eighths = max(1, round(8 * room * min(1.0, value / longest)))
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _times(report: FloorReport) -> str:
    if report.t_meas_ms is None or not report.t_phys_ms:
        return "d diagnoses"
    if report.t_meas_ms < report.t_phys_ms:
        return "below the bound: an input is wrong"
    return f"{report.t_meas_ms / report.t_phys_ms:.1f}x the bound"


def _change(report: FloorReport | None, other: FloorReport, field: str) -> str:
    before = getattr(report, field) if report is not None else None
    after = getattr(other, field)
    if not before or not words.known(before) or not words.known(after):
        return ""
    return f"{before:.3g} -> {after:.3g} ms, {after / before:.2f}x"


def _knobs(page: Page, reading: FloorReading) -> None:
    asked = reading.asked
    page.heading(
        "what if",
        Span("   ← → change the row", "dim"),
        Span("   = as it is again" if asked != NOTHING_ELSE else "", "dim"),
    )
    for name, title in KNOBS.items():
        now, other = as_it_is(reading.report, name), getattr(asked, name)
        line = [INDENT, Span(f"{title:<{LABEL - 2}}", "dim"), Span(pad(clean(shown(name, now)), 22))]
        page.add(*line, Span(f"  -> {shown(name, other)}" if other is not None else "", "warn"), row=f"{WHAT_IF}{name}")


def as_it_is(report: FloorReport | None, name: str) -> int | str | None:
    """What stands in the floor as it is."""
    if report is None:
        return None
    plan, model = report.plan, report.model
    found: dict[str, int | str | None] = {
        "batch": plan.batch, "context": plan.context, "kv_dtype": model.kv_dtype,
        "weights_dtype": plan.weights_dtype or model.quantization or "as in the checkpoint", "tp": plan.tp,
        "gpu": report.hardware.name,
    }  # fmt: skip
    return found[name]


def shown(name: str, value: int | str | None) -> str:
    if value is None:
        return words.UNKNOWN
    return f"{value:,} tokens" if name == "context" and isinstance(value, int) else str(value)


MARKS = {"open": "  ✓ in the checklist", "tried": "  ✓ tried"}


def _items(state: State) -> Sequence[Todo]:
    todo = state.last("todo", TodoReading)
    return todo.todos if todo is not None else ()


def _moves(page: Page, report: FloorReport, view: View, todos: Sequence[Todo]) -> None:
    if not report.moves and not report.moves_left_out:
        return
    page.heading("next moves", Span("   Enter adds one to the checklist", "dim"))
    for at, move in enumerate(report.moves, 1):
        row = f"{MOVE}{at - 1}"
        for first, line in enumerate(wrap(f"{move.title}: {move.set}", page.width - 6, 3)):
            page.add(INDENT, Span(f"{at} " if not first else "  "), Span(line, "loud"), row=row)
        done = Span(MARKS.get(text.standing(move, todos) or "", ""), "good")
        said = f"  {move.gain_words}; {text.effort_words(move)}"
        page.add(INDENT, Span(said, "dim"), done, row=row)
        if view.cursor == row:
            page.extend(_detail(move, page.width), row=row)
    if not report.moves:
        page.add(INDENT, Span("none is left to offer", "dim"))
    if report.moves_left_out:
        said = "; ".join(f"{one.what} ({one.because})" for one in report.moves_left_out)
        for line in wrap(f"left out: {said}", page.width - 4, 6):
            page.add(INDENT, Span(line, "dim"))


def _detail(move: Move, width: int) -> list[list[Span]]:
    """What the row under the cursor trades, and what may go wrong."""
    parts = [("trade", move.trade)] if move.trade else []
    parts += [("silently inactive", one) for one in move.inactive]
    parts += [("may fail at start", one) for one in move.failures]
    return [
        [INDENT, Span("    " if at else "  ↳ "), Span(line, "dim")]
        for what, words_ in parts
        for at, line in enumerate(wrap(f"{what}: {words_}", width - 8, 4))
    ]


def _figures(page: Page, rows: list[tuple[float, str]], total: float) -> None:
    room = max(4, min(40, page.width // 4))
    longest = max((abs(ms) for ms, _ in rows if words.known(ms)), default=0.0)
    for ms, said in rows:
        share = f"{100 * ms / total:>4.0f} %" if total else " " * 6
        page.add(
            INDENT,
            Span(f"{ms:>8.2f}"),
            Span(f"  {share}  ", "dim"),
            Span(pad(bar(ms, longest, room), room), "dim"),
            Span(f"  {said}"),
        )


def _gap(page: Page, report: FloorReport) -> None:
    gap = report.gap_ms
    if not gap or report.t_meas_ms is None:
        return
    said = f"   {words.significant(report.t_meas_ms)} - {words.significant(report.t_phys_ms)} ms"
    page.heading("from the bound to the measured step", Span(said, "dim"))
    rows = [
        (ms, text.gap_words(name)) for name, ms in sorted(gap.items(), key=lambda item: -item[1]) if abs(ms) >= 0.005
    ]
    _figures(page, rows, sum(gap.values()))


def _parts(page: Page, report: FloorReport) -> None:
    page.heading("what one step takes in practice", Span(f"   {words.significant(report.t_prac_ms)} ms", "dim"))
    rows = []
    for name, said in text.PART_WORDS.items():
        ms, held = getattr(report.parts_ms, name), getattr(report.bytes, name, None)
        if ms > 0:
            rows.append((ms, f"{said}{f'  {held / 1e9:.2f} GB a GPU' if held is not None else ''}"))
    _figures(page, rows, report.t_prac_ms)
    if report.tok_s_at_floor is not None:
        page.add(
            INDENT, Span(f"at the bound {words.number(report.tok_s_at_floor, 1)} tok/s, all sequences together", "dim")
        )


def _evidence(page: Page, report: FloorReport, width: int) -> None:
    verdict = report.verdict
    if verdict is None:
        return
    if verdict.because:
        page.heading("because")
        _wrapped(page, [("+", one) for one in verdict.because], width, "")
    if verdict.ruled_out:
        page.heading("ruled out")
        _wrapped(page, [("-", f"{one.what}: {one.because}") for one in verdict.ruled_out], width, "")
    if verdict.capture:
        page.heading("what would settle it")
        _wrapped(page, [("?", one) for one in verdict.capture], width, "")


def _wrapped(page: Page, rows: list[tuple[str, str]], width: int, style: str) -> None:
    for mark, said in rows:
        for at, line in enumerate(wrap(said, width - 6, 6)):
            page.add(INDENT, Span(f"{mark if not at else ' '} ", "dim"), Span(line, style))


def _knee(page: Page, report: FloorReport, view: View) -> None:
    if not report.batches:
        return
    page.heading("step over the batch")
    measured = None if report.t_meas_ms is None else Mark(report.plan.batch, report.t_meas_ms)
    page.extend(plot(report.batches, measured, min(view.width - 2, 120), 8))
    for line in text.batch_lines(report):
        page.add(INDENT, Span(line.removeprefix("by batch:").rjust(len(line)), "dim"))


def _assumed(page: Page, report: FloorReport, width: int) -> None:
    page.heading("assumed")
    _wrapped(page, [("·", one) for one in report.assumptions], width, "dim")
