"""The benchmark runner: presets to start, the run under way, the runs so far against the baseline."""

from __future__ import annotations

from decodetop.bench import text
from decodetop.bench.reading import BenchReading, Gate, Preset, Progress, Quantiles, Run
from decodetop.core import words
from decodetop.core.state import State
from decodetop_tui.paint import Filter, Picture, Span, View
from decodetop_tui.panes import _benchzoom
from decodetop_tui.panes._benchlines import baseline, comparable, delta, worth
from decodetop_tui.panes._cells import cells, wrap
from decodetop_tui.panes._lines import progress, ticks
from decodetop_tui.panes._page import INDENT, Page, any_server, note_of, taped, trouble
from decodetop_tui.panes._table import Column, Table, flow, pair, spans_of

TITLE = "bench"
KEY = "4"
SOURCES: tuple[str, ...] = ("bench", "server")
MODES: tuple[str, ...] = ("mean", "p99")
FILTER: Filter | None = Filter("runs")

PAST_MIN, PAST_MAX = 3, 30
SHOWN_MIN = 3
"""Runs that are worth more than their sparkline."""

RUNS = (
    Column("mark", "", 1, 30),
    Column("id", "run", 4, 99, "<"),
    Column("time", "time", 5, 40, "<"),
    Column("preset", "preset", 8, 85, "<", grow=8),
    Column("streams", "streams", 7, 35),
    Column("tok_s", "tok/s", 8, 95, after=" tok/s"),
    Column("ttft", "TTFT ms", 7, 60, before="TTFT ", after=" ms"),
    Column("itl", "ITL ms", 6, 45, before="ITL ", after=" ms"),
    Column("tpot", "TPOT ms", 7, 80, before="TPOT ", after=" ms"),
    Column("state", "state", 7, 90, "<"),
    Column("delta", "vs base", 7, 70, "<"),
    Column("gate", "", 12, 20, "<", grow=80),
)


def want(state: State, width: int) -> tuple[int, int]:
    """One run (or the way to start one) at least; wanted: the presets, the run under way and three runs."""
    reading = state.last("bench", BenchReading) or BenchReading()
    under_way = 0 if reading.progress is None else 2
    if not reading.runs:
        return 1 + min(under_way, 1), 2 + len(reading.presets) + under_way
    return 1 + min(under_way, 1), 1 + under_way + len(reading.presets) + min(3, len(reading.runs))


def draw(state: State, view: View) -> Picture:
    page = Page(view)
    reading = state.last("bench", BenchReading)
    if state.lane("bench").failure is not None or reading is None:
        page.extend(trouble(state, "bench", view))
    if reading is None:
        return page.picture(note_of(state, "bench", view.width))
    if reading.problem is not None:
        page.add(INDENT, Span("runs are not stored", "bad"), Span(f": {reading.problem}"))
    if reading.last_error is not None:
        page.add(INDENT, Span("last run failed", "bad"), Span(f": {reading.last_error}"))
    if reading.progress is not None:
        page.extend(progress_lines(reading.progress, view))
    room = view.height - len(page.lines)
    served = any_server(state)
    tight = bool(reading.runs) and not view.zoomed and room < len(reading.presets) + 1 + min(2, len(reading.runs))
    if tight and view.cursor is not None and not view.cursor.startswith("run:") and 1 < room <= len(reading.presets):
        _last_run(page, reading, view)
    head = min(len(page.lines), max(view.height - 1, 0))
    if not tight or view.cursor is not None:
        _presets(page, reading, view, [] if taped(state) else _start(served))
    elif room > min(2, len(reading.runs)):
        _names(page, reading)
    _runs(page, reading, view, served and not taped(state))
    if view.zoomed:
        _benchzoom.details(page, reading, view)
    elif not view.filter:
        _benchzoom.details(page, reading, view, view.height - len(page.lines))
    return page.picture(note_of(state, "bench", view.width, *_note(reading)), head)


def _names(page: Page, reading: BenchReading) -> None:
    """The presets in one line, where there is no room for a line each."""
    names = " · ".join(preset.name for preset in reading.presets)
    page.add(INDENT, Span("b", "key"), Span(f" chooses one: {names}", "dim"))


def _last_run(page: Page, reading: BenchReading, view: View) -> None:
    """The newest run above presets that fill the room: what the key just pressed has brought."""
    if reading.progress is None:
        table = Table(p99_columns() if _p99(view) else RUNS, view.width, headed=False)
        page.add(*table.row(_run(reading.runs[0], baseline(reading), reading, view)))


def _note(reading: BenchReading) -> list[str]:
    base = "" if reading.baseline_id is None else f"baseline #{reading.baseline_id}"
    count = len(reading.runs)
    return ["running" if reading.progress is not None else "", base, f"{count} run{'s' * (count != 1)}" * (count > 0)]


def progress_lines(under_way: Progress, view: View) -> list[list[Span]]:
    """Two lines: how far and how long still; the figures so far."""
    share = under_way.requests_done / under_way.requests_total if under_way.requests_total else 0.0
    if under_way.duration_s:
        share = min(1.0, under_way.elapsed_s / under_way.duration_s) if under_way.phase != "warmup" else 0.0
    sweep = f" {under_way.step}/{under_way.steps}" if under_way.steps > 1 else ""
    name = f"{under_way.preset}{sweep}"
    done = f" {text.done_of(under_way):>3} requests" if under_way.duration_s else _done(under_way)
    eta = f"  {words.remaining(under_way.eta_s):>5} left" if under_way.phase == "measuring" else f"  {under_way.phase}"
    room = max(4, min(40, view.width - len(name) - len(done) - len(eta) - 8))
    first = [INDENT, Span("▶ ", "key"), Span(f"{name} "), Span(progress(share, room)), Span(done), Span(eta)]
    errors = pair("errors", f"{under_way.errors}", "", 1, "bad" if under_way.errors else "")
    figures = [
        pair("", words.rate(under_way.output_tok_s), "tok/s", 7, "loud"),
        *([errors] if under_way.errors else []),
        pair("streams", str(under_way.streams), "", 3),
        pair("TTFT", words.significant(under_way.ttft_ms_mean), "ms", 5),
        pair("ICL", words.significant(under_way.icl_ms_mean), "ms", 5),
        *([] if under_way.errors else [errors]),
        pair("loop lag", words.significant(under_way.loop_lag_ms_p99), "ms p99", 4),
    ]
    second = flow([spans_of(item) for item in figures], view.width, 3 if view.width >= 64 else 2)
    return [first, *second[:1]]


def _done(under_way: Progress) -> str:
    return f" {under_way.requests_done:>3}/{under_way.requests_total} requests"


def _start(served: bool) -> list[Span]:
    """How the chosen preset is started, or what is missing for that."""
    return [Span("Enter", "key"), Span(" runs it", "dim")] if served else [Span("needs a server", "dim")]


def _presets(page: Page, reading: BenchReading, view: View, start: list[Span]) -> None:
    if not reading.presets:
        page.add(INDENT, Span("no presets", "dim"))
        return
    hint = start if reading.progress is None else []
    for preset in reading.presets:
        row = f"preset:{preset.name}"
        chosen = view.cursor == row if view.cursor is not None else preset is reading.presets[0]
        page.add(
            INDENT,
            Span(f"{preset.name:<8} ", "title" if chosen and view.focused else ""),
            Span(f"{shape(preset)}  ", "dim"),
            *(hint if chosen else []),
            row=row,
        )


def shape(preset: Preset) -> str:
    """`1 stream, 128 in, 256 out`."""
    streams = preset.streams
    many = f"{streams[0]} to {text.streams(streams[-1])}" if len(streams) > 1 else text.streams(sum(streams))
    tokens = f"{preset.contexts[0]:,} to {preset.contexts[-1]:,}" if preset.contexts else f"{preset.input_tokens:,}"
    return f"{many}, {tokens} in, {preset.output_tokens:,} out"


def _runs(page: Page, reading: BenchReading, view: View, served: bool) -> None:
    if not reading.runs:
        if reading.progress is None and not served:
            page.add(INDENT, Span("no run yet", "dim"))
        elif reading.progress is None:
            page.add(INDENT, Span("no run yet  ", "dim"), Span("b", "key"), Span(" then ", "dim"), Span("Enter", "key"))
        return
    wanted = view.filter.lower()
    base = baseline(reading)
    found = [run for run in reading.runs if wanted in _searched(run, base, reading, view)]
    room = view.height - len(page.lines)
    past = _past(reading)
    if past is not None and (view.zoomed or room > 2 + min(SHOWN_MIN, len(found))):
        page.add(*past)
    table = Table(p99_columns() if _p99(view) else RUNS, view.width, headed=view.zoomed or room > 2)
    if table.headed:
        page.add(*table.header())
    for run in found:
        row = f"run:{run.id}"
        page.add(*table.row(_run(run, base, reading, view)), row=row)
        worst = _worst(run)
        # the zoomed pane tells it in full below
        chosen = view.focused and view.cursor == row and not view.zoomed
        if chosen and worst is not None and table.size("gate") < cells(worst.detail):
            page.extend([[INDENT, Span(f"     {line}", "dim")] for line in wrap(worst.detail, view.width - 8, 2)], row)


def _worst(run: Run) -> Gate | None:
    """Why the run is not ok."""
    return next((gate for gate in run.gates if gate.severity == ("suspect" if run.valid else "invalid")), None)


def _past(reading: BenchReading) -> list[Span] | None:
    """tok/s over the runs of the newest one's load, the oldest at the left; None of fewer than three."""
    newest = reading.runs[0]
    alike = [run for run in reversed(reading.runs[:PAST_MAX]) if comparable(run, newest) and not run.partial]
    rates = [run.metrics.output_tok_s for run in alike if words.known(run.metrics.output_tok_s)]
    if len(rates) < PAST_MIN:
        return None
    low, high = min(rates), max(rates)
    span = f"  {words.rate(low)} to {words.rate(high)} tok/s"
    return [
        INDENT,
        Span("tok/s ", "dim"),
        Span(ticks(rates, low, high)),
        Span(f"{span} over {len(rates)} alike", "dim"),
    ]


def p99_columns() -> tuple[Column, ...]:
    """The columns of latencies say that they are no means."""
    ms = ("ttft", "itl", "tpot")
    return tuple(
        column._replace(head=column.head.replace(" ms", " p99"), before=f"{column.before}p99 ")
        if column.id in ms
        else column
        for column in RUNS
    )


def _p99(view: View) -> bool:
    return MODES[view.mode % len(MODES)] == "p99"


def _searched(run: Run, base: Run | None, reading: BenchReading, view: View) -> str:
    """All words of a run's line, shown or dropped for want of room, and every gate's."""
    shown = [cell.text if isinstance(cell, Span) else cell for cell in _run(run, base, reading, view).values()]
    return " ".join([*shown, text.plan_line(run.plan), *(gate.detail for gate in run.gates)]).lower()


def _run(run: Run, base: Run | None, reading: BenchReading, view: View) -> dict[str, Span | str]:
    metrics = run.metrics
    newest = run is reading.runs[0]
    p99 = _p99(view)
    worst = _worst(run)
    return {
        "mark": Span("*" if f"run:{run.id}" in view.marks else "", "key"),
        "id": text.name(run),
        "time": Span(words.clock_time(run.started_wall_ns)[:5], "dim"),
        "preset": run.plan.preset,
        "streams": str(run.plan.streams),
        "tok_s": Span(words.rate(metrics.output_tok_s), "loud" if newest and reading.progress is None else ""),
        "ttft": _figure(metrics.ttft_ms, p99),
        "itl": _figure(metrics.itl_ms, p99),
        "tpot": _figure(metrics.tpot_ms, p99),
        "state": worth(run),
        "delta": delta(run, base),
        "gate": Span("" if worst is None else worst.detail, "dim"),
    }


def _figure(spread: Quantiles | None, p99: bool) -> str:
    return words.UNKNOWN if spread is None else words.significant(spread.p99 if p99 else spread.mean)
