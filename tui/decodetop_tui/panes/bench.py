"""The benchmark runner: presets to start, the run under way, the runs so far against the baseline."""

from __future__ import annotations

from decodetop.bench.reading import BenchReading, Preset, Progress, Quantiles, Run
from decodetop.core import words
from decodetop.core.state import State
from decodetop_tui.paint import Picture, Span, View
from decodetop_tui.panes import _benchzoom
from decodetop_tui.panes._lines import progress
from decodetop_tui.panes._page import INDENT, Page, note_of, trouble
from decodetop_tui.panes._table import Column, Table, flow, pair, spans_of

TITLE = "bench"
KEY = "4"
SOURCES: tuple[str, ...] = ("bench",)
MODES: tuple[str, ...] = ("mean", "p99")

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
        page.extend(trouble(state, "bench"))
    if reading is None:
        return page.picture(note_of(state, "bench", view.width))
    if reading.problem is not None:
        page.add(INDENT, Span("runs are not stored", "bad"), Span(f": {reading.problem}"))
    if reading.last_error is not None:
        page.add(INDENT, Span("last run failed", "bad"), Span(f": {reading.last_error}"))
    if reading.progress is not None:
        page.extend(progress_lines(reading.progress, view))
    room = view.height - len(page.lines)
    glance = view.cursor is None and not view.zoomed and bool(reading.runs)
    if not (glance and room < len(reading.presets) + 1 + min(2, len(reading.runs))):
        _presets(page, reading, view)
    _runs(page, reading, view)
    if view.zoomed:
        _benchzoom.details(page, reading, view)
    return page.picture(note_of(state, "bench", view.width, *_note(reading)))


def _note(reading: BenchReading) -> list[str]:
    base = "" if reading.baseline_id is None else f"baseline #{reading.baseline_id}"
    return [
        "running" if reading.progress is not None else "",
        base,
        f"{len(reading.runs)} runs" if reading.runs else "",
    ]


def progress_lines(under_way: Progress, view: View) -> list[list[Span]]:
    """Two lines: how far and how long still; the figures so far."""
    share = under_way.requests_done / under_way.requests_total if under_way.requests_total else 0.0
    sweep = f" {under_way.step}/{under_way.steps}" if under_way.steps > 1 else ""
    name = f"{under_way.preset}{sweep}"
    done = f" {under_way.requests_done:>3}/{under_way.requests_total} requests"
    eta = f"  {words.duration(under_way.eta_s):>5} left" if under_way.phase == "measuring" else f"  {under_way.phase}"
    room = max(4, min(40, view.width - len(name) - len(done) - len(eta) - 8))
    first = [INDENT, Span("▶ ", "key"), Span(f"{name} "), Span(progress(share, room)), Span(done), Span(eta)]
    errors = f"{under_way.errors}"
    figures = [
        pair("", words.significant(under_way.output_tok_s), "tok/s", 7, "loud"),
        pair("streams", str(under_way.streams), "", 3),
        pair("TTFT", words.significant(under_way.ttft_ms_mean), "ms", 5),
        pair("ICL", words.significant(under_way.icl_ms_mean), "ms", 5),
        pair("errors", errors, "", 1, "bad" if under_way.errors else ""),
        pair("loop lag", words.significant(under_way.loop_lag_ms_p99), "ms p99", 4),
    ]
    second = flow([spans_of(item) for item in figures], view.width)
    return [first, *second[:1]]


def _presets(page: Page, reading: BenchReading, view: View) -> None:
    if not reading.presets:
        page.add(INDENT, Span("no presets", "dim"))
        return
    hint = _start_hint(reading)
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


def _start_hint(reading: BenchReading) -> list[Span]:
    if reading.progress is not None:
        return [Span("s", "key"), Span(" stops", "dim")]
    return [Span("Enter", "key"), Span(" runs it", "dim")]


def shape(preset: Preset) -> str:
    """`1 stream, 128 in, 256 out`."""
    streams = preset.streams
    many = f"{streams[0]} to {streams[-1]} streams" if len(streams) > 1 else f"{streams[0] if streams else 1} stream"
    plural = "s" if len(streams) == 1 and streams[0] != 1 else ""
    return f"{many}{plural}, {preset.input_tokens:,} in, {preset.output_tokens:,} out"


def _runs(page: Page, reading: BenchReading, view: View) -> None:
    if not reading.runs:
        if reading.progress is None:
            page.add(INDENT, Span("no run yet  ", "dim"), Span("b", "key"), Span(" then ", "dim"), Span("Enter", "key"))
        return
    wanted = view.filter.lower()
    found = [run for run in reading.runs if wanted in f"#{run.id} {run.plan.preset} {verdict(run)[0]}".lower()]
    room = view.height - len(page.lines)
    table = Table(RUNS, view.width, headed=view.zoomed or room > 1)
    if table.headed:
        page.add(*table.header())
    base = baseline(reading)
    for run in found:
        page.add(*table.row(_run(run, base, reading, view)), row=f"run:{run.id}")


def baseline(reading: BenchReading) -> Run | None:
    return next((run for run in reading.runs if run.id is not None and run.id == reading.baseline_id), None)


def verdict(run: Run) -> tuple[str, str]:
    """The word for a run and its style: ok, suspect, invalid, partial."""
    if not run.valid:
        return "invalid", "bad"
    if run.partial:
        return "partial", "warn"
    if any(gate.severity != "info" for gate in run.gates):
        return "suspect", "warn"
    return "ok", "good"


def comparable(run: Run, base: Run) -> bool:
    """Same load: a difference then says something about the server."""
    one, other = run.plan, base.plan
    return (one.streams, one.input_tokens, one.output_tokens) == (
        other.streams,
        other.input_tokens,
        other.output_tokens,
    )


def _run(run: Run, base: Run | None, reading: BenchReading, view: View) -> dict[str, Span | str]:
    word, style = verdict(run)
    metrics = run.metrics
    newest = run is reading.runs[0]
    p99 = MODES[view.mode % len(MODES)] == "p99"
    worst = next((gate for gate in run.gates if gate.severity == ("suspect" if run.valid else "invalid")), None)
    return {
        "mark": Span("*" if f"run:{run.id}" in view.marks else "", "key"),
        "id": "#?" if run.id is None else f"#{run.id}",
        "time": Span(words.clock_time(run.started_wall_ns)[:5], "dim"),
        "preset": run.plan.preset,
        "streams": str(run.plan.streams),
        "tok_s": Span(words.number(metrics.output_tok_s, 1), "loud" if newest and reading.progress is None else ""),
        "ttft": _figure(metrics.ttft_ms, p99),
        "itl": _figure(metrics.itl_ms, p99),
        "tpot": _figure(metrics.tpot_ms, p99),
        "state": Span(word, style),
        "delta": delta(run, base),
        "gate": Span("" if worst is None else worst.detail, "dim"),
    }


def _figure(spread: Quantiles | None, p99: bool) -> str:
    return words.UNKNOWN if spread is None else words.significant(spread.p99 if p99 else spread.mean)


def delta(run: Run, base: Run | None) -> Span:
    """tok/s against the baseline's; `other` where the loads differ and no number would mean anything."""
    if base is None:
        return Span("")
    if run is base:
        return Span("base", "key")
    if not comparable(run, base):
        return Span("other", "dim")
    return Span(words.delta_percent(base.metrics.output_tok_s, run.metrics.output_tok_s))
